"""Long runs of rounds whose contexts grow are priced as each round would be."""

from dataclasses import replace

import numpy as np
import pytest

import orsched
from orsched import Instance, LinearCost, Requests, RooflineCost, Worker
from orsched.checker import durations
from tests.in_order import in_order

LARGE = 2**53
COSTS = (
    in_order(RooflineCost, 2 * 10**6, 30 * 10**6, 4 * 10**6, 333_333, 10**6),
    in_order(RooflineCost, 0, 0, 0, 10**5, 0),
    in_order(RooflineCost, LARGE, LARGE, LARGE, LARGE // 3, 1),
    in_order(LinearCost, 10**6, 1, 1, 20 * 10**6, 3 * 10**6, 10**6, 777_777, 1),
    in_order(LinearCost, 1, 1, 1, LARGE, LARGE, 1, LARGE // 7, 1),
)


class Own(RooflineCost):
    """A class of its own: nothing is known of its formula."""

    def round_ns(self, active, context_sum, context_max):
        return super().round_ns(active, int(context_sum), context_max) + context_max % 2

    def rounds_ns(self, rounds, active, context_sum, context_max):
        each = range(rounds)
        return sum(self.round_ns(active, context_sum + active * k, context_max + k) for k in each)


@pytest.mark.parametrize("cost", [*COSTS, in_order(Own, *[10**6] * 5)])
@pytest.mark.parametrize("many", [1 << 16, 7])
def test_each_round_of_a_long_run_counts(cost, many, monkeypatch):
    monkeypatch.setattr(durations, "_MANY", many)
    instance = Instance(Requests([5, 9, 2], [40, 20, 60]), Worker(2, cost), first_token="decode")
    schedule = orsched.simulate(instance, "fcfs").schedule
    assert orsched.check(instance, schedule) == []
    steps = schedule.steps
    long = int(np.argmax(steps.rounds))
    assert steps.rounds[long] > durations._FEW
    for late in (-1, 1):
        later = np.where(np.arange(len(steps)) >= long, late, 0)
        begins = steps.start_ns + np.where(np.arange(len(steps)) > long, late, 0)
        moved = replace(steps, start_ns=begins, end_ns=steps.end_ns + later)
        found = orsched.check(instance, schedule.replace(steps=moved))
        step = [each for each in found if each.field == "steps.end_ns"]
        assert [(each.step, each.found - each.expected) for each in step] == [(long, late)]
