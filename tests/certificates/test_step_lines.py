"""Charges by a line under all steps: by hand, and of random schedules under roofline and linear."""

import random
from dataclasses import replace

import pytest

import orsched
from orsched import Instance, LinearCost, Requests, RooflineCost, Worker
from orsched.checker.certificates import bound_violations
from orsched.common.errors import PolicyError
from orsched.data.schedule_classes import ALLOWANCES, allowances_of
from orsched.simulator import simulate_policy
from tests.forged import leaves, with_leaf
from tests.in_order import in_order
from tests.models.test_bound_scope import mean
from tests.random_instances import random_batching_instance
from tests.simulator.batching_policies import BATCHING

ROOFLINE = in_order(RooflineCost, 10**6, 9 * 10**6, 10**6, 0, 0)
"""A step takes 1 ns and the larger of 9 ns and 1 ns a token."""

POLICIES = sorted(BATCHING.keys() - {"static", "slices"})
SIZES = (0, 1, 10**5, 3 * 10**5, 10**6, 5 * 10**6, 3 * 10**7)
MODELS = ((RooflineCost, 5), (LinearCost, 8))


@pytest.mark.parametrize(("clients", "least"), [(1, 20 * (1 + 2 + 3) // 3), (3, 20)])
def test_a_token_pays_a_step_that_reads_the_weights_wherever_it_comes_from(clients, least):
    """Two tokens of three requests behind the first: 10 ns each, of one client one by one."""
    instance = Instance(Requests([1] * 3, [3] * 3), Worker(clients, ROOFLINE), "prefill")
    found = orsched.bound(instance, "mean_jct", allows=ALLOWANCES)
    assert found.value_ns >= least
    assert bound_violations(instance, found.to_dict(), "mean_jct") == []


def drawn(rng):
    """An instance whose workers are rooflines or linear, equal or not."""
    instance = random_batching_instance(rng)

    def cost():
        model, count = rng.choice(MODELS)
        return in_order(model, *(rng.choice(SIZES) for _ in range(count)))

    first = cost()
    costs = [first if rng.random() < 0.6 else cost() for _ in instance.workers]
    pairs = zip(instance.workers, costs, strict=True)
    instance = instance.replace(workers=tuple(replace(w, cost=each) for w, each in pairs))
    if rng.random() < 0.5:
        instance = instance.replace(workers=instance.workers[:1])
    if rng.random() < 0.5:
        at_once = instance.requests.replace(arrival_ns=[0] * len(instance))
        instance = instance.replace(requests=at_once)
    return instance


@pytest.mark.parametrize(
    "seeds", [range(25), pytest.param(range(25, 1_500), marks=pytest.mark.full)]
)
def test_no_random_schedule_beats_means_by_lines(seeds):
    by_line = refused = 0
    for seed in seeds:
        rng = random.Random(seed)
        instance, name = drawn(rng), rng.choice(POLICIES)
        try:
            schedule = simulate_policy(instance, BATCHING[name](seed)).schedule
        except PolicyError:  # it sees no way on
            continue
        allows = allowances_of(instance, schedule)
        for objective in ("mean_jct", "mean_ttft"):
            found = orsched.bound(instance, objective, allows=allows).to_dict()
            value = mean(schedule, instance, objective)
            assert found["value_ns"] <= value, (seed, name, objective)
            assert bound_violations(instance, found, objective) == []
            for path, old in leaves(found):
                if path[-1] == "step_line":
                    by_line += 1
                    for other in (old + 1, 64, None):
                        forged = with_leaf(found, path, other)
                        refused += bool(bound_violations(instance, forged, objective))
    assert by_line > len(seeds) // 5
    assert refused > by_line
