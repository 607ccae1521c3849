"""A time limit ends a command in phases that look at no clock."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from orsched.cli.deadline import ended_by
from orsched.cli.main import run
from orsched.errors import TimeLimitError

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="this system has no interval timers"
)


def _forever(*args, **kwargs):
    while True:
        time.sleep(0.01)


@pytest.mark.parametrize("phase", ["orsched.locate.load", "orsched.models.bounds.makespan_bound"])
@pytest.mark.parametrize("command", ["solve", "compare"])
def test_loading_and_bounding_are_ended(monkeypatch, capsys, phase, command):
    monkeypatch.setattr(phase, _forever)
    assert run([command, "two-by-two", "--time-limit", "0.05"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "the time limit ended before there was a checked schedule" in err


def test_generating_is_ended(monkeypatch):
    monkeypatch.setattr("orsched.instances.catalog.generate", _forever)
    assert run(["compare", "gsm8k", "--seeds", "0:2", "--time-limit", "0.05"]) == 3


def test_it_rings_again_after_a_method_kept_its_incumbent():
    rings = []
    with ended_by(0.01):
        for _ in range(2):
            with pytest.raises(TimeLimitError):
                _forever()
            rings.append(True)
    assert len(rings) == 2


def test_nothing_rings_afterwards_or_without_a_limit():
    before = signal.getsignal(signal.SIGALRM)
    for limit in (0.01, None, float("inf"), 1e300):
        with ended_by(limit):
            pass
        assert signal.getsignal(signal.SIGALRM) == before
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_other_threads_go_without():
    ended = []

    def work():
        with ended_by(0.001):
            time.sleep(0.2)
        ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended == [True]


def test_compare_says_which_method_had_no_time(capsys):
    arguments = ["compare", "gsm8k-llama65b", "--methods", "fcfs,hybrid", "--time-limit", "1e-6"]
    assert run(arguments) == 3
    assert capsys.readouterr().err.startswith("orsched: fcfs: the time limit ended")
