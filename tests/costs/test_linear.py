"""The linear cost model, and the fits of it and of the roofline."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.calibration.fit import fit
from orsched.calibration.measurements import Measurements
from orsched.common.errors import InputError
from orsched.costs import LinearCost, RooflineCost, mixed_ns
from orsched.costs.linear import attended_tokens
from tests.costs.measured import measured, step
from tests.in_order import in_order

COST = st.builds(in_order, st.just(LinearCost), *[st.integers(0, 10**9)] * 8, st.integers(1, 3))
STAGE, ROUND = (9 * 10**12, 21 * 10**9, 10**6), (7 * 10**12, 14 * 10**9, 52 * 10**6)
TRUE = in_order(LinearCost, *STAGE, *ROUND, 5 * 10**12, 15 * 10**7)
ROOF = RooflineCost.from_s(
    fixed=4e-4, weights=256 * 20e-6, token=20e-6, context=53e-9, attended=0.6e-9
)


@given(
    COST, st.lists(st.integers(1, 3000), max_size=5), st.lists(st.integers(1, 10**5), max_size=5)
)
def test_all_steps_follow_the_formula(cost, prompts, contexts):
    load = (len(contexts), sum(contexts), max(contexts, default=0))
    stage = cost.stage_token_fs * sum(prompts)
    stage += cost.attended_fs * sum(sum(range(1, p + 1)) for p in prompts)
    a_round = cost.round_request_fs * len(contexts) + cost.context_fs * sum(contexts)

    def ns(exact):
        return (Fraction(exact, 10**6) + Fraction(1, 2)).__floor__() * cost.time_scale

    assert cost.prefill_ns(prompts) == ns(cost.stage_fixed_fs + stage)
    assert cost.round_ns(*load) == ns(cost.round_fixed_fs + a_round)
    if prompts and contexts:
        fixed = max(cost.stage_fixed_fs, cost.round_fixed_fs) + cost.mixed_fixed_fs
        both = ns(fixed + stage + a_round + cost.mixed_context_fs * sum(contexts))
        assert cost.mixed_ns(prompts, *load) == mixed_ns(cost, prompts, *load) == both


def test_cached_tokens_are_attended_to_where_they_are_known():
    assert attended_tokens([3], [5]) == 6 + 7 + 8
    assert TRUE.prefill_ns([3], [5]) - TRUE.prefill_ns([3]) == 15
    assert TRUE.mixed_ns([3], 1, 9, 9, [5]) - TRUE.mixed_ns([3], 1, 9, 9) == 15


def rows_of(cost, seed=0, grid=1.0, mixed=True, noise=0.0):
    """A grid and a run, with a grid's prompt tokens faster by a factor."""
    rng, steps = random.Random(seed), []
    quick = cost
    if hasattr(cost, "stage_token_fs"):
        quick = replace(cost, stage_token_fs=round(cost.stage_token_fs * grid))
    for run, model in enumerate((quick, cost)):
        for _ in range(40):
            prompts = [rng.choice((8, 60, 300, 900))] * rng.choice((1, 2, 4))
            steps.append(step(model, prompts, run=run))
            n, top = rng.choice((1, 8, 40, 150)), rng.choice((50, 400, 1500))
            steps.append(step(cost, [], (n, n * top, top), run=run))
            if mixed and not run:
                steps.append(step(model, [rng.choice((8, 128, 700))], (n, n * top, top)))
    noisy = [(*row, round(time * rng.uniform(1 - noise, 1 + noise))) for *row, time in steps]
    return measured(noisy)


@pytest.mark.parametrize("grid", [1.0, 0.6])
def test_the_linear_fit_finds_what_the_times_were_made_with(grid):
    """Also where a grid's tokens are faster than a run's: those of the run are returned."""
    found = fit("linear", rows_of(TRUE, grid=grid), holdout=0).cost
    for name, value in TRUE.to_dict().items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-3), name


@pytest.mark.parametrize("knee", [256, 300, 90])
def test_the_roofline_fit_finds_what_the_times_were_made_with(knee):
    true = replace(ROOF, weights_fs=knee * ROOF.token_fs)
    found = fit("roofline", rows_of(true), holdout=0).cost
    rel = 1e-3 if knee == 256 else 0.05
    for name, value in true.to_dict().items():
        tolerance = 5e10 if name == "fixed_fs" else 0
        assert getattr(found, name) == pytest.approx(value, rel=rel, abs=tolerance), name


def test_fits_report_errors_on_steps_held_out_and_stay_near_under_noise():
    for model, true in (("linear", TRUE), ("roofline", ROOF)):
        found = fit(model, rows_of(true, noise=0.05))
        for phase in ("prefill", "decode", "mixed"):
            assert 0 < found.report["phases"][phase]["mean_relative_error"] < 0.05
        load = (100, 50_000, 500)
        assert found.cost.round_ns(*load) == pytest.approx(true.round_ns(*load), rel=0.03)


def test_without_mixed_steps_the_larger_parts_are_left():
    found = fit("linear", rows_of(TRUE, mixed=False), holdout=0)
    assert (found.cost.mixed_fixed_fs, found.cost.mixed_context_fs) == (0, 0)
    assert any("no mixed measurement" in note for note in found.report["warnings"])


def test_coefficients_that_the_rows_do_not_determine_are_named():
    phases, tokens = ["prefill"] * 3 + ["decode"] * 3, [4] * 3 + [0] * 3
    one = Measurements(phases, [1] * 6, [5] * 6, tokens, tokens)
    for model in ("linear", "roofline"):
        with pytest.raises(InputError, match="do not determine"):
            fit(model, one, holdout=0)
        with pytest.raises(InputError, match="no decode measurement"):
            fit(model, Measurements(["prefill"], [1], [5], [4], [4]), holdout=0)
