"""A worker count of 1 is no special case for parameters of a dispatcher."""

from __future__ import annotations

import pytest

import orsched
from orsched.common.errors import InputError
from orsched.data.step import decode_rounds, prefill_stage
from orsched.heuristics.policy_method import LiveMethod
from orsched.simulator.policy import Policy
from orsched.solving.method_choice import method_info, method_named, method_names
from orsched.solving.scenario import scenario, with_workers

POLICIES = [name for name in method_names() if isinstance(method_named(name), LiveMethod)]
TAKES = [
    name
    for name in POLICIES
    if method_info(name).workers == "one"
    or "dispatch" in {each.name for each in method_info(name).parameters}
]
CHOOSES = sorted(set(POLICIES) - set(TAKES))


@pytest.mark.parametrize("method", TAKES)
def test_a_dispatcher_of_one_worker_changes_nothing(method):
    """Nor for policies that serve only one."""
    instance = scenario(orsched.load("two-by-two"), predictions="classes")
    given = {"dispatch": "fewest_requests"}
    alone = orsched.solve(instance, method)
    told = orsched.solve(instance, method, parameters=given)
    assert told.schedule.replace(run={}) == alone.schedule.replace(run={})


@pytest.mark.parametrize("wrong", [{"dispatch": "random"}, {"dispatch": [1]}, {"steal": 1}])
def test_what_no_dispatcher_is_stays_wrong(wrong):
    with pytest.raises(InputError) as caught:
        orsched.solve(orsched.load("two-by-two"), "fcfs", parameters=wrong)
    assert caught.value.field in wrong


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("method", CHOOSES)
def test_a_policy_that_chooses_workers_itself_takes_no_dispatcher(method, workers):
    several = with_workers(scenario(orsched.load("two-by-two"), predictions="classes"), workers)
    with pytest.raises(InputError, match="chooses workers itself"):
        orsched.solve(several, method, parameters={"dispatch": "round_robin"})


class ChoosesItself(Policy):
    """Serves each request on the worker that asks first."""

    many_workers = True

    def __init__(self):
        self.queue = []

    def on_arrival(self, view, request):
        self.queue.append(request)

    def decide(self, view):
        if self.queue and view.free_clients:
            return prefill_stage([self.queue.pop(0)])
        return decode_rounds() if view.running else None


def test_an_own_policy_that_chooses_workers_itself_hears_nothing_on_one():
    given = {"dispatch": "least_work", "steal": True}
    told = orsched.simulate(orsched.load("two-by-two"), ChoosesItself, parameters=given)
    assert told.makespan == orsched.simulate(orsched.load("two-by-two"), ChoosesItself).makespan
