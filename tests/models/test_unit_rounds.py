"""The hindsight optimum of unit rounds: against all starts, by hand, and below every policy."""

from __future__ import annotations

import random
from itertools import product

import pytest

import orsched
from orsched.costs.unit_rounds import ROUND_NS
from orsched.errors import InputError
from orsched.instances.catalog import generate
from orsched.instances.unit_rounds import unit_instance
from orsched.models.unit_rounds import HindsightOptimum, hindsight_optimum, total_latency
from orsched.request_times import request_times

pytest.importorskip("ortools")

POLICIES = ("mc_sf", "svf", "a_max@clairvoyant", "vllm+mode=prefill_first")
"""Those that evict may be below it; where nothing is evicted none is."""


def least_total(prompts, outputs, arrivals, memory):
    """Least total latency over all vectors of starts, by trying them, and one that has it."""
    last = max(arrivals) + sum(outputs)
    best = None
    for starts in product(*(range(a, last) for a in arrivals)):
        total = sum(k + o - a for k, o, a in zip(starts, outputs, arrivals, strict=True))
        if best is not None and total >= best:
            continue
        rows = list(zip(prompts, outputs, starts, strict=True))
        ends = {k + o for k, o in zip(starts, outputs, strict=True)}
        if all(sum(s + t - k for s, o, k in rows if k < t <= k + o) <= memory for t in ends):
            best = total
    return best


def tiny(seed):
    draw = random.Random(seed)
    memory, n = draw.randint(4, 9), draw.randint(1, 3)
    prompts = [draw.randint(1, 3) for _ in range(n)]
    outputs = [draw.randint(1, memory - s) for s in prompts]
    return prompts, outputs, [draw.choice([0, 0, 1, 4]) for _ in range(n)], memory


@pytest.mark.parametrize("seed", range(25))
def test_bound_optimum_policy(seed):
    """Bound <= optimum <= every policy without evictions; the optimum is that of all starts."""
    case = tiny(seed)
    instance = unit_instance(*case)
    found = hindsight_optimum(instance)
    assert found.optimal
    assert found.bound == found.total == least_total(*case)
    for policy in POLICIES:
        schedule = orsched.simulate(instance, policy).schedule
        if not schedule.work.stay.any():
            assert total_latency(instance, schedule) >= found.total


def test_mc_sf_is_not_optimal_everywhere():
    """M = 12, (10, 2) beside three of (1, 3): the short one first holds all the others up.

    By length it runs to round 2 alone, and the others end in 5: 2 + 15. They first, ending in
    round 3, and it from then on: 9 + 5.
    """
    instance = unit_instance([10, 1, 1, 1], [2, 3, 3, 3], [0] * 4, 12)
    assert total_latency(instance, orsched.simulate(instance, "mc_sf").schedule) == 17
    assert hindsight_optimum(instance) == HindsightOptimum(14, 14, (3, 0, 0, 0))


def test_a_start_after_the_last_one_that_is_known_is_found():
    """The best schedule of this draw starts its last request later than both policies do theirs."""
    instance = generate("unit-rounds", seed=1, requests=8, memory_tokens=15)
    found = hindsight_optimum(instance)
    assert found.optimal
    for policy in ("mc_sf", "svf"):
        schedule = orsched.simulate(instance, policy).schedule
        begins = request_times(instance, schedule)["prefill_start_ns"] // ROUND_NS
        assert max(found.starts) > begins.max()
        assert found.total < total_latency(instance, schedule)


def test_without_time_what_is_known_is_returned():
    instance = generate("unit-rounds", seed=0)
    found = hindsight_optimum(instance, time_limit=0, iterations=0)
    assert not found.optimal
    known = [total_latency(instance, orsched.simulate(instance, name).schedule)
             for name in ("mc_sf", "svf")]  # fmt: skip
    assert found.total == min(known)
    assert found.bound <= found.total
    assert hindsight_optimum(generate("unit-rounds", requests=0)).optimal


@pytest.mark.parametrize("name", ["pang-100x20", "memory-bound", "with-arrivals"])
def test_other_instances_are_refused(name):
    with pytest.raises(InputError) as caught:
        hindsight_optimum(orsched.load(name))
    assert caught.value.field == "instance"
