"""A schedule comes before every search, however short its time is."""

from __future__ import annotations

import math

import pytest

import orsched
from orsched.cli.commands import run
from orsched.common.errors import InfeasibleError, InputError
from orsched.instances.catalog import generate
from orsched.solving.methods import methods
from orsched.solving.result import Termination
from tests.stops import TimeUp

SEARCHES = tuple(each for each in methods() if each.searches)
AIMS = ("makespan", "jct_mean", "ttft_mean", "0.3*makespan+0.7*jct_mean", "slo_attainment")
GSM8K = generate("gsm8k", seed=0, requests=12, clients=3)
LIMITS = orsched.SLO(ttft_ns=10**9, tpot_ns=10**8)


def _needs_chunks():
    worker = orsched.Worker(2, prefill_cap_tokens=4)
    return orsched.Instance(orsched.Requests([9, 3], [2, 2]), worker)


INSTANCES = {
    "at once": GSM8K,
    "with arrivals": generate("peers", seed=0, requests=12, clients=3),
    "two workers": GSM8K.replace(workers=[GSM8K.worker] * 2),
    "longer prompts than a prefill": _needs_chunks(),
}


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch):
    """A first schedule may take any time: no machine is too busy for these tests."""
    monkeypatch.setattr("orsched.solving.methods.FIRST_S", math.inf)
    monkeypatch.setattr("orsched.common.stop.FIRST_S", 1e6)


@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize("aim", AIMS)
@pytest.mark.parametrize("method", SEARCHES, ids=lambda each: each.name)
def test_a_search_out_of_time_returns_a_checked_schedule(method, aim, name):
    instance = INSTANCES[name]
    try:
        result = orsched.solve(instance, method.name, aim, stop=TimeUp(), slo=LIMITS)
    except (InputError, InfeasibleError):  # it is not for such an instance or objective
        return
    assert result.checked
    if method.name != "auto":  # which picks a policy, too
        assert result.schedule.method == method.name
        assert result.schedule.information == method.information[0]


@pytest.mark.parametrize("method", ["hybrid", "windows", "latency_search"])
def test_the_command_answers_within_a_millisecond_s_limit(capsys, method):
    arguments = ["-q", "solve", "pang-100x20", "--method", method, "--time-limit", "0.001"]
    assert run([*arguments, "--format", "csv"]) == 0
    assert method in capsys.readouterr().out


def test_a_given_schedule_is_what_a_search_out_of_time_returns():
    given = orsched.solve(GSM8K, "online").schedule
    result = orsched.solve(GSM8K, "hybrid", stop=TimeUp(), initial_schedule=given)
    assert result.makespan_ns == given.makespan_ns
    assert result.termination is Termination.TIME_LIMIT
    assert "time ended before hybrid had a schedule; this is the given one" in result.notes


def test_a_method_of_your_own_that_runs_out_of_time_gets_the_first_schedule_too():
    class TooLate:
        name, information, summary = "too_late", (orsched.Information.CLAIRVOYANT,), ""

        def __call__(self, instance, run):
            run.require_time()

    result = orsched.solve(GSM8K, TooLate(), stop=TimeUp())
    assert result.makespan_ns == orsched.solve(GSM8K, "fcfs").makespan_ns
    assert result.notes[0] == "time ended before too_late had a schedule; this is that of fcfs"
