"""What is cached before chunks: which models are told, and what it costs."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import AffineCost, LinearCost, PoolingCost, ProfiledCost, RooflineCost
from orsched.calibration.fit import fit
from orsched.calibration.fit_jointly import Basis
from orsched.calibration.measurements import Measurements
from orsched.costs import knows_cached, mixed_ns, prefill_ns
from orsched.costs.linear import attended_tokens
from tests.costs.measured import measured, step
from tests.costs.test_models import EXAMPLES
from tests.in_order import in_order
from tests.refusals import refusal

ROOFLINE = in_order(RooflineCost, 10**9, 5 * 10**9, 10**8, 10**5, 10**6)
LINEAR = in_order(LinearCost, 10**9, 10**8, 10**6, 10**9, 10**7, 10**5, 10**8, 10**4)
PROFILED = in_order(
    ProfiledCost,
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
    error = refusal(cost.prefill_ns, [3, 4], [1])
    assert error.field == "cached"
    assert "1 values for 2 prompts" in str(error)


def test_only_models_that_say_so_are_told():
    told = {cost.model for cost in EXAMPLES if knows_cached(cost)}
    assert told == {"roofline", "linear", "profiled"}
    assert not knows_cached(in_order(PoolingCost, 1, 1, 1, 1, 1))


@pytest.mark.parametrize("cost", [Old(), OldOfRoofline(**vars(ROOFLINE))])
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
    requests, worker = orsched.Requests([1_000], [1]), orsched.Worker(1, Own())
    instance = orsched.Instance(requests, worker, first_token="prefill")
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


def rows(cost):
    """Steps of a cost model: whole prompts, chunks behind others, rounds, and steps of both."""
    sizes, before = (16, 64, 256, 1024, 2048), (0, 500, 4_000, 30_000)
    rounds = [(n, n * c, c) for n in (1, 4, 16, 64, 200) for c in (50, 1_000, 4_000)]
    beside = product((64, 1024), (0, 9_000), rounds[::4])
    found = [step(cost, [p], cached=k) for p, k in product(sizes, before)]
    found += [step(cost, [p] * n) for p, n in product((16, 100, 400), (2, 5))]
    found += [step(cost, [], load) for load in rounds]
    found += [step(cost, [p], load, cached=k) for p, k, load in beside]
    return measured(found)


@pytest.mark.parametrize("cost", [ROOFLINE, LINEAR], ids=lambda cost: cost.model)
def test_fits_to_rows_behind_cached_tokens_give_the_model_back(cost):
    found = fit(cost.model, rows(cost), holdout=0).cost
    assert found.attended_fs == pytest.approx(cost.attended_fs, rel=1e-3)
    plain = Measurements(**rows(cost).to_dict() | {"cached": None})
    wrong = fit(cost.model, plain, holdout=0).cost
    assert wrong.attended_fs != pytest.approx(cost.attended_fs, rel=0.01)


def test_a_fitted_table_knows_chunks_behind_others():
    basis = Basis((1, 256, 4096), (0, 16, 64, 256, 1024, 2048))
    true = basis.cost([5e6, 3e7, 4e8, 3.0, 90.0], 200, 4000)
    data = rows(true)
    found = fit("profiled", data, holdout=0).cost
    assert prefill_ns(true, [1024], [100_000]) > 2 * prefill_ns(true, [1024])
    for chunk, cached in ((1024, 30_000), (2048, 60_000), (1024, 100_000)):
        expected = prefill_ns(true, [chunk], [cached])
        assert prefill_ns(found, [chunk], [cached]) == pytest.approx(expected, rel=0.02)


def test_models_that_are_not_told_say_so_of_such_rows():
    steps = [step(LINEAR, [p], cached=k) for p in (16, 256, 2048) for k in (0, 500, 30_000)]
    steps += [step(LINEAR, [], (n, 50 * n, 50)) for n in (1, 4, 16, 64)]
    report = fit("affine", measured(steps), holdout=0).report
    assert "chunks behind cached tokens count as if nothing were cached" in report["warnings"]


def test_a_round_has_nothing_before_its_prompts():
    error = refusal(Measurements, ["decode"], [1], [1], cached=[3])
    assert (error.field, "a decode round has no prompts" in str(error)) == ("cached", True)
