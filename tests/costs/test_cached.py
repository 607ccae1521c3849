"""What is cached before chunks: which models are told, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched.costs import (
    AffineCost,
    LinearCost,
    PoolingCost,
    ProfiledCost,
    RooflineCost,
    knows_cached,
    mixed_ns,
    prefill_ns,
)
from orsched.costs.linear import attended_tokens
from tests.costs.test_floor import SHIPPED

ROOFLINE = RooflineCost(10**9, 5 * 10**9, 10**8, 10**5, 10**6)
LINEAR = LinearCost(10**9, 10**8, 10**6, 10**9, 10**7, 10**5, 10**8, 10**4)
PROFILED = ProfiledCost(
    1_000,
    {"tokens": [1, 4096], "time_ns": [10_000, 900_000]},
    {"chunk": [1, 2048], "context": [0, 8192], "time_ns": [[10, 900], [9_000, 80_000]]},
    {"beside": [0], "batch": [1, 64], "context": [1, 4096], "time_ns": [[[1, 50], [9, 900]]]},
)
TOLD = (ROOFLINE, LINEAR, PROFILED)


class Old(AffineCost):
    """A model as users wrote them before: no argument ``cached``."""

    def prefill_ns(self, prompts):
        return 7 * sum(prompts)

    def mixed_ns(self, prompts, active, context_sum, context_max):
        return 7 * sum(prompts) + active


class OldOfRoofline(RooflineCost):
    """A model derived from one that is told, with a method that takes no such argument."""

    def mixed_ns(self, prompts, active, context_sum, context_max):
        return super().mixed_ns(prompts, active, context_sum, context_max) + 1


class Own(AffineCost):
    """A model that is told, without mixed steps of its own."""

    cached_matters = True
    mixed_ns = None

    def prefill_ns(self, prompts, cached=()):
        return 1_000 * sum(prompts) + sum(cached)


@pytest.mark.parametrize("cost", TOLD, ids=lambda cost: cost.model)
def test_a_chunk_takes_longer_behind_cached_tokens(cost):
    assert knows_cached(cost)
    assert prefill_ns(cost, [500], [4000]) > prefill_ns(cost, [500], [0]) == cost.prefill_ns([500])
    beside = mixed_ns(cost, [500], 3, 300, 100)
    assert mixed_ns(cost, [500], 3, 300, 100, [4000]) > beside
    assert mixed_ns(cost, [500], 3, 300, 100, [0]) == beside == cost.mixed_ns([500], 3, 300, 100)


def test_only_models_that_say_so_are_told():
    told = {cost.model for cost in SHIPPED if knows_cached(cost)}
    assert told == {"roofline", "linear", "profiled"} & {cost.model for cost in SHIPPED}
    assert not knows_cached(PoolingCost(1, 1, 1, 1, 1))


@pytest.mark.parametrize("cost", [Old(), OldOfRoofline(10**9, 5 * 10**9, 10**8, 10**5, 10**6)])
def test_models_without_the_argument_are_called_as_before(cost):
    assert not knows_cached(cost)
    assert prefill_ns(cost, [5, 6], [10, 0]) == cost.prefill_ns([5, 6])
    assert mixed_ns(cost, [5, 6], 2, 9, 5, [10, 0]) == cost.mixed_ns([5, 6], 2, 9, 5)
    instance = orsched.load("pang-100x20")
    instance = instance.replace(workers=replace(instance.worker, cost=cost))
    result = orsched.solve(instance, "vllm", parameters={"max_num_batched_tokens": 64})
    assert (result.schedule.work.phase == 0).sum() > len(instance)  # there are chunks
    assert orsched.check(instance, result.schedule) == []


def test_a_users_model_that_says_so_is_told_by_simulator_and_checker():
    instance = orsched.Instance(
        orsched.Requests([1_000], [1]), orsched.Worker(1, Own()), first_token="prefill"
    )
    result = orsched.solve(instance, "vllm", parameters={"max_num_batched_tokens": 300})
    steps = result.schedule.steps
    took = (steps.end_ns - steps.start_ns).tolist()
    assert took == [300_000, 300_300, 300_600, 100_900]
    assert orsched.check(instance, result.schedule) == []


chunkings = st.lists(st.integers(1, 400), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(chunkings)
def test_attended_tokens_add_up_over_chunks(chunks):
    before = [sum(chunks[:k]) for k in range(len(chunks))]
    parts = sum(attended_tokens([c], [k]) for c, k in zip(chunks, before, strict=True))
    assert parts == attended_tokens([sum(chunks)]) == attended_tokens(chunks, before)


@settings(max_examples=60, deadline=None)
@given(chunkings, st.sampled_from((ROOFLINE, LINEAR)))
def test_no_prompt_takes_less_in_chunks(chunks, cost):
    before = [sum(chunks[:k]) for k in range(len(chunks))]
    parts = [prefill_ns(cost, [c], [k]) for c, k in zip(chunks, before, strict=True)]
    assert sum(parts) >= cost.prefill_ns([sum(chunks)]) - len(chunks)  # each rounded for itself
