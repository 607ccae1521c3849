"""Bounds for schedules with chunks, mixed steps and restarts, beside random policies of all modes."""

from __future__ import annotations

import random

import pytest

from orsched.checker import check
from orsched.checker.latency_certificates import bound_violations
from orsched.models.bound_scope import ALLOWANCES, allowances_of
from orsched.models.bounds import bound, bound_for, makespan_bound
from orsched.models.latency_bounds import OBJECTIVES
from orsched.simulator import simulate_policy
from tests.random_instances import random_batching_instance
from tests.simulator.batching_policies import BATCHING

SETS = [tuple(a for k, a in enumerate(ALLOWANCES) if 1 << k & bits) for bits in range(8)]


def mean(schedule, instance, objective):
    """Sum over the requests of JCT or TTFT, divided and rounded down as the bounds are."""
    times = schedule.request_times(instance)
    column = times["finish_ns" if objective == "mean_jct" else "first_token_ns"]
    total = sum(column.tolist()) - sum(instance.requests.arrival_ns.tolist())
    return total // max(1, len(instance))


def sweep(seeds, names):
    """Check the bounds of random instances beside random policies; return what was allowed."""
    seen = set()
    for seed in seeds:
        instance = random_batching_instance(random.Random(seed))
        lower = makespan_bound(instance)
        for name in names:
            schedule = simulate_policy(instance, BATCHING[name](seed)).schedule
            needed = allowances_of(instance, schedule)
            seen.add(needed)
            found = bound_for(instance, schedule, lower)
            assert found.value_ns <= schedule.makespan_ns, (seed, name)
            assert found is lower or lower.allows < needed or not lower.allows >= needed
            bounded = schedule.replace(bound=found.to_dict())
            assert not check(instance, bounded), (seed, name)
            for objective in OBJECTIVES:
                latency = bound(instance, objective, allows=needed)
                assert latency.value_ns <= mean(schedule, instance, objective), (seed, name)
                assert bound_violations(instance, latency.to_dict(), objective) == []
    return seen


@pytest.mark.parametrize("name", sorted(BATCHING))
def test_no_policy_beats_the_bounds_for_its_schedules(name):
    assert sweep(range(25), [name])


@pytest.mark.full
def test_no_policy_beats_the_bounds_on_many_instances():
    assert len(sweep(range(1000, 1700), sorted(BATCHING))) == 8


def test_whoever_allows_more_proves_less():
    """A set of allowances includes the schedules of each smaller one (of weights, some are lucky)."""
    for seed in range(60):
        instance = random_batching_instance(random.Random(seed))
        instance = instance.replace(workers=instance.workers[0])
        for objective in ("makespan", *OBJECTIVES):
            values = {}
            for allows in SETS:
                found = bound(instance, objective, allows=allows)
                assert bound_violations(instance, found.to_dict(), objective) == [], allows
                assert set(allows) <= found.allows
                values[frozenset(allows)] = found.value_ns
            for some, value in values.items():
                assert all(value >= values[more] for more in values if some < more), (seed, some)
