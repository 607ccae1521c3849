"""A time limit ends a command in phases that look at no clock."""

from __future__ import annotations

import json
import signal
import threading
import time

import pytest

import orsched
from orsched.cli.commands import run
from orsched.cli.ending import ended_by
from orsched.common.errors import TimeLimitError
from orsched.instances import catalog

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="this system has no interval timers"
)


def _forever(*args, **kwargs):
    while True:
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch):
    """The alarm rings soon: what it ends here would go on for ever, on any machine."""
    monkeypatch.setattr("orsched.common.stop.FIRST_S", 0.0)
    monkeypatch.setattr("orsched.solving.methods.FIRST_S", 0.0)


@pytest.mark.parametrize(
    "phase", ["orsched.files.locate.load", "orsched.models.bounds.bounds.bound"]
)
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


def test_compare_says_which_method_had_no_time(capsys, monkeypatch):
    monkeypatch.setattr(
        "orsched.common.stop.FIRST_S", 1000.0
    )  # no alarm: each method looks at the clock
    arguments = ["compare", "gsm8k-llama65b", "--methods", "fcfs,hybrid", "--time-limit", "1e-6"]
    assert run(arguments) == 3
    assert capsys.readouterr().err.startswith("orsched: fcfs: the time limit ended")


@pytest.fixture
def slow_windows(monkeypatch):
    """The method ``windows`` has no schedule when its time ends, and no policy had one."""

    def too_late(self, instance, run):
        raise TimeLimitError("the time limit ended before there was a schedule")

    monkeypatch.setattr("orsched.models.windows.method.WindowsMethod.__call__", too_late)
    monkeypatch.setattr("orsched.solving.checked_run._first", lambda instance, run: None)


def test_finished_methods_are_printed_beside_one_that_timed_out(slow_windows, capsys, tmp_path):
    arguments = ["compare", "two-by-two", "--methods", "fcfs,windows,online", "--format", "json"]
    arguments += ["--time-limit", "30", "--report", str(tmp_path / "r.html")]
    assert run(arguments) == 3
    out, err = capsys.readouterr()
    rows = json.loads(out)
    assert [row["method"] for row in rows] == ["fcfs", "windows", "online"]
    assert [row["error"] for row in rows] == [
        None, "the time limit ended before there was a schedule", None,
    ]  # fmt: skip
    assert rows[1]["makespan_s"] is None
    assert "orsched: windows: the time limit ended before there was a schedule\n" in err
    assert (tmp_path / "r.html").is_file()


def test_a_library_comparison_names_what_timed_out(slow_windows):
    found = orsched.compare(orsched.load("two-by-two"), ("windows", "fcfs"))
    assert [result.schedule.method for result in found] == ["fcfs"]
    assert found.timed_out == ("windows: the time limit ended before there was a schedule",)
    with pytest.raises(TimeLimitError, match="windows: the time limit"):
        orsched.compare(orsched.load("two-by-two"), ("windows",))


def test_seeds_before_one_that_timed_out_are_printed(monkeypatch, capsys):
    generate = catalog.generate

    def slow_from_2_on(name, *, seed, **arguments):
        if seed == 2:
            raise TimeLimitError("the time limit ended before there was a checked schedule")
        return generate(name, seed=seed, **arguments)

    monkeypatch.setattr(catalog, "generate", slow_from_2_on)
    arguments = ["compare", "gsm8k", "--seeds", "0:4", "--methods", "fcfs", "--format", "json"]
    arguments += ["--set", "requests=20", "--set", "clients=4", "--each", "--time-limit", "1000"]
    assert run(arguments) == 3
    out, err = capsys.readouterr()
    assert [row["seed"] for row in json.loads(out)] == [0, 1]
    assert "orsched: seed 2: the time limit ended" in err
