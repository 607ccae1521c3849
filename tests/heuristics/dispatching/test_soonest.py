"""The default dispatcher: suits unequal workers, and knows no lengths."""

from __future__ import annotations

import numpy as np
import pytest

import orsched
from benchmarks.dispatching import FLEETS, LENGTHS, instance, saturation_per_s
from orsched.checker import check
from orsched.costs import AffineCost
from orsched.heuristics.dispatching import DEFAULT, DISPATCHERS, Dispatched, Soonest
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.simulator import simulate_policy
from tests.in_order import in_order


def workers_of(problem, **parameters):
    """The worker of each request."""
    schedule = orsched.simulate(problem, "vllm", parameters=parameters).schedule
    assert check(problem, schedule) == []
    worker = np.full(len(problem), -1)
    worker[schedule.work.request] = schedule.steps.worker[schedule.work.first_step]
    return worker


def jct(problem, dispatch):
    figures = orsched.simulate(problem, "vllm", parameters={"dispatch": dispatch}).figures
    return figures["jct_mean_s"]


def test_it_is_the_default():
    assert DISPATCHERS[DEFAULT] is Soonest
    problem = instance("all three", "chat", 0.7, 60, 0)
    assert (workers_of(problem) == workers_of(problem, dispatch="soonest")).all()


@pytest.mark.parametrize("fleet", FLEETS)
def test_it_loses_little_where_workers_are_equal_and_gains_where_they_are_not(fleet):
    problem = instance(fleet, "documents", 0.7, 300, 1)
    soonest = jct(problem, "soonest")
    assert soonest <= 1.02 * jct(problem, "fewest_requests")
    assert soonest <= (0.5 if "1/4" in fleet else 1.01) * jct(problem, "round_robin")


def test_a_request_goes_where_it_is_done_first():
    """A worker twice as fast gets all that come one by one; of two alike the first."""
    fast, slow = in_order(AffineCost, 0, 10, 1000, 0), in_order(AffineCost, 0, 20, 2000, 0)
    requests = orsched.Requests([5] * 4, [3] * 4, arrival_ns=[0, 10**5, 2 * 10**5, 3 * 10**5])
    three = tuple(
        orsched.Worker(4, cost, name=str(index)) for index, cost in enumerate((slow, fast, fast))
    )
    assert workers_of(orsched.Instance(requests, three, first_token="decode")).tolist() == [
        1,
        1,
        1,
        1,
    ]


def test_a_slow_worker_is_used_once_it_is_the_sooner_one():
    """Rounds of 1 and 2 us, one client each: of three at once the second best is the slow one."""
    fast, slow = in_order(AffineCost, 0, 10, 1000, 0), in_order(AffineCost, 0, 10, 2500, 0)
    requests = orsched.Requests([5] * 3, [30] * 3, arrival_ns=[0] * 3)
    two = (orsched.Worker(1, slow, name="slow"), orsched.Worker(1, fast, name="fast"))
    assert workers_of(orsched.Instance(requests, two, first_token="decode")).tolist() == [1, 1, 0]


def test_outputs_that_are_not_done_change_nothing():
    """It learns from what has finished only: other lengths of the last request, same workers."""
    problem = instance("all three", "chat", 0.9, 80, 1)
    outputs = problem.requests.output_tokens.copy()
    outputs[-1] = 1000 if outputs[-1] < 500 else 1
    other = problem.replace(requests=problem.requests.replace(output_tokens=outputs))
    assert (workers_of(problem) == workers_of(other)).all()


def test_nothing_is_left_open_in_the_end():
    for seed in range(3):
        problem = instance("all three", "chat", 1.2, 120, seed)
        dispatcher = Soonest()
        policy = Dispatched(FirstComeFirstServed, dispatcher, steal=False)
        simulate_policy(problem, policy)
        assert not any(dispatcher.open)
        assert not dispatcher.unstarted
        assert not dispatcher.began
        assert max(map(abs, dispatcher.waiting_ns)) < 1e-3
        assert dispatcher.finished == len(problem)
        assert dispatcher.outputs == problem.requests.output_tokens.sum()


def test_saturation_is_what_a_worker_does():
    """The loads of the benchmark are shares of it."""
    worker, lengths = FLEETS["equal"][0], LENGTHS["chat"]
    rate = saturation_per_s(worker, lengths)
    problem = instance("equal", "chat", 4.0, 600, 0).replace(workers=(worker,))
    done = orsched.simulate(problem, "vllm")
    assert 0.5 * rate < len(problem) / done.makespan < 1.5 * rate
