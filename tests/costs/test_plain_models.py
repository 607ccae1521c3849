"""The bilinear, the pooling, the levels and the linear model, by hand and fitted."""

import random
from dataclasses import replace
from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched import AffineCost, BilinearCost, InputError, LevelsCost, PoolingCost
from orsched.calibration.fit import fit
from orsched.calibration.measurements import Measurements
from orsched.costs import LinearCost, RooflineCost, mixed_ns
from orsched.costs.linear import attended_tokens
from tests.costs.measured import measured, step
from tests.costs.test_models import BILINEAR
from tests.in_order import in_order
from tests.refusals import refusal


def test_bilinear_by_hand():
    # 8 prompts padded to 512: 0.05*8*512 + 8 + 0.02*512 + 20 = 204.8 + 8 + 10.24 + 20 ms
    assert BILINEAR.prefill_ns([512] + [10] * 7) == 243_040_000
    # 8 requests at 600: 0.00003*8*600 + 0.64 + 0.6 + 25 = 0.144 + 26.24 ms
    assert BILINEAR.round_ns(8, 0, 600) == 26_384_000
    # SCLS eq. (2): the sum over l = 601..700 of the rounds, 0.00124 ms a token more each time
    assert BILINEAR.rounds_ns(100, 8, 0, 600) == 100 * 26_384_000 + 1240 * (99 * 100 // 2)


def test_only_the_longest_counts():
    assert BILINEAR.prefill_ns([512, 1]) == BILINEAR.prefill_ns([512, 512])
    assert BILINEAR.round_ns(8, 1, 600) == BILINEAR.round_ns(8, 4800, 600)


def test_each_round_is_rounded_once_half_up():
    half = in_order(BilinearCost, 0, 0, 0, 0, 0, 0, 500_000, 0)  # half a nanosecond a token
    assert [half.round_ns(1, 0, tokens) for tokens in range(5)] == [0, 1, 1, 2, 2]
    assert half.rounds_ns(4, 1, 0, 1) == 1 + 1 + 2 + 2
    assert half.scaled(10).rounds_ns(4, 1, 0, 1) == 60


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 500))
def test_without_contexts_it_is_the_affine_round(fixed, client, active):
    cost = in_order(BilinearCost, 0, 0, 0, 0, 0, client * 10**6, 0, fixed * 10**6)
    affine = in_order(AffineCost, 0, 0, fixed, client)
    assert cost.round_ns(active, 0, 77) == affine.round_ns(active)


def test_negative_coefficients_are_reported():
    assert BILINEAR.warnings() == ()
    cost = BilinearCost.from_ms((0.05, 1, -0.02, 20), (0, 0.08, 0, -1))
    assert ["p3_fs" in text or "d4_fs" in text for text in cost.warnings()] == [True, True]


def test_a_negative_duration_is_an_input_error():
    cost = in_order(BilinearCost, 1, 0, 0, -10, 0, 0, -2_000_000, 10_000_000)
    assert cost.prefill_ns([10]) == 0
    with pytest.raises(InputError, match=r"p4_fs=-10"):
        cost.prefill_ns([9])
    assert cost.round_ns(1, 0, 5) == 0
    with pytest.raises(InputError, match=r"d3_fs=-2000000"):
        cost.round_ns(1, 0, 6)
    assert cost.rounds_ns(5, 1, 0, 1) == 8 + 6 + 4 + 2 + 0
    with pytest.raises(InputError, match="context 1 to 6"):
        cost.rounds_ns(6, 1, 0, 1)
    with pytest.raises(InputError, match="context 7 to 7"):
        cost.rounds_ns(1, 1, 0, 7)


@pytest.mark.parametrize("wrong", [(1, 2, 3), (1, 2, 3, 4, 5), None, "abcd"])
def test_from_ms_needs_four_coefficients(wrong):
    assert refusal(BilinearCost.from_ms, (1, 2, 3, 4), wrong).field in ("d", "d1_fs")


def test_from_ms_rounds_to_femtoseconds():
    cost = BilinearCost.from_ms((0.13, 0, 0, 25), (0, 0.21, 0, 29))
    assert (cost.p1_fs, cost.p4_fs) == (130_000_000_000, 25 * 10**12)
    assert (cost.d2_fs, cost.d4_fs) == (210_000_000_000, 29 * 10**12)
    assert cost.round_ns(200, 0, 0) == 71_000_000


POOLED = PoolingCost.from_ms(alpha=2e-6, beta=0.1, c=18.5, gamma=0.003, delta=0.011, lambda_=1.2)


def test_pooling_by_hand():
    # 2e-6 * 1000^2 + 0.1 * 1000 = 102 ms; 100 tokens take 10.02 ms, below the floor of 18.5 ms
    assert POOLED.prefill_ns([1000]) == 102_000_000
    assert POOLED.prefill_ns([100]) == 18_500_000
    assert POOLED.prefill_ns([1000, 100]) == 120_500_000
    # contexts 300, 600, 900: 0.003 * 900 + 0.011 * 600 = 2.7 + 6.6 ms
    assert POOLED.round_ns(3, 1800, 900) == 9_300_000
    # both pools grow by one token a round: 0.014 ms
    assert POOLED.rounds_ns(10, 3, 1800, 900) == 93_000_000 + 14_000 * 45


def test_the_floor_meets_the_parabola():
    below, above = 184, 185  # 2e-6 l^2 + 0.1 l = 18.5 at l = 184.3
    assert POOLED.prefill_ns([below]) == POOLED.prefill_ns([1]) == 18_500_000
    assert POOLED.prefill_ns([above]) == 18_568_450


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.lists(st.integers(1, 999), min_size=1))
def test_a_round_is_the_rounded_fraction(gamma, delta, lengths):
    cost = in_order(PoolingCost, 0, 0, 0, gamma, delta)
    exact = gamma * max(lengths) + delta * Fraction(sum(lengths), len(lengths))
    expected = floor(exact / 10**6 + Fraction(1, 2))
    assert cost.round_ns(len(lengths), sum(lengths), max(lengths)) == expected


def test_a_mixed_step():
    # 102 ms of prefill beside 9.3 ms of decode: 1.2 * 102 - 0.2 * 9.3 ms
    assert POOLED.mixed_ns([1000], 3, 1800, 900) == 120_540_000
    assert POOLED.mixed_ns([], 3, 1800, 900) == POOLED.round_ns(3, 1800, 900)
    assert POOLED.mixed_ns([1000], 0, 0, 0) == POOLED.prefill_ns([1000])
    assert POOLED.scaled(7).mixed_ns([1000], 3, 1800, 900) == 7 * 120_540_000


@given(st.integers(-(10**6), 3 * 10**6), st.lists(st.integers(1, 3000), min_size=1, max_size=3))
def test_lambda_is_not_clipped(lambda_ppm, prompts):
    cost = in_order(PoolingCost, 2_000_000, 10**11, 185 * 10**11, 3 * 10**9, 11 * 10**9, lambda_ppm)
    prefill, decode = cost.prefill_ns(prompts), cost.round_ns(3, 180_000, 90_000)
    larger, smaller = max(prefill, decode), min(prefill, decode)
    exact = Fraction(lambda_ppm, 10**6) * larger + (1 - Fraction(lambda_ppm, 10**6)) * smaller
    if exact < 0:
        with pytest.raises(InputError, match="lambda_ppm"):
            cost.mixed_ns(prompts, 3, 180_000, 90_000)
        return
    mixed = cost.mixed_ns(prompts, 3, 180_000, 90_000)
    assert mixed == floor(exact + Fraction(1, 2))  # both parts are whole nanoseconds here
    assert (mixed > larger) <= (lambda_ppm > 10**6)
    assert (mixed < smaller) <= (lambda_ppm < 0)


def test_negative_coefficients_of_pooling_are_reported():
    assert POOLED.warnings() == ()
    doubtful = in_order(PoolingCost, -1, 0, 0, -1, 0, -1).warnings()
    assert [text.split()[2] for text in doubtful] == ["alpha_fs", "gamma_fs", "lambda_ppm"]


def test_a_negative_duration_of_pooling_is_an_input_error():
    cost = in_order(PoolingCost, -5, 0, 0, -3_000_000, 2_000_000)
    assert cost.prefill_ns([100]) == 0  # the maximum with c keeps it at 0
    with pytest.raises(InputError, match="gamma_fs=-3000000"):
        cost.round_ns(2, 10, 5)
    # contexts 1 and 5 of mean 3 with gamma = -1, delta = 2: 6 - 5 ns, one more each round
    growing = in_order(PoolingCost, 0, 0, 0, -1_000_000, 2_000_000)
    assert growing.rounds_ns(3, 2, 6, 5) == 1 + 2 + 3
    falling = in_order(PoolingCost, 0, 0, 0, -2_000_000, 1_500_000)
    assert falling.round_ns(1, 0, 0) == 0
    with pytest.raises(InputError, match="at context 1 "):
        falling.rounds_ns(2, 1, 0, 0)


def test_a_round_needs_an_active_request():
    with pytest.raises(InputError, match="without an active request"):
        POOLED.round_ns(0, 0, 0)
    assert POOLED.rounds_ns(0, 0, 0, 0) == 0


@pytest.mark.parametrize("name", ["alpha", "beta", "c", "gamma", "delta", "lambda_"])
@pytest.mark.parametrize("wrong", [None, True, float("nan"), float("inf"), 1e300])
def test_from_ms_names_the_wrong_coefficient(name, wrong):
    values = {"alpha": 0, "beta": 0, "c": 0, "gamma": 0, "delta": 0, name: wrong}
    assert refusal(PoolingCost.from_ms, **values).field.startswith(name.rstrip("_"))


STAGES = ((512, 91_560_000), (2048, 291_240_000), (5000, 675_000_000))
BY_LEVEL = LevelsCost(levels=STAGES, round_fixed_ns=71_000_000)


def test_a_stage_takes_the_time_of_the_smallest_level_that_holds_it():
    expected = [(1, 0), (512, 0), (513, 1), (2048, 1), (2049, 2), (5000, 2)]
    for tokens, level in expected:
        assert BY_LEVEL.prefill_ns([tokens]) == STAGES[level][1]
    assert BY_LEVEL.prefill_ns([2000, 48]) == STAGES[1][1]
    assert BY_LEVEL.prefill_ns([2000, 49]) == STAGES[2][1]
    assert BY_LEVEL.prefill_limit == 5000


def test_over_the_largest_level_is_an_input_error():
    with pytest.raises(InputError, match="5001 tokens is over the largest level, 5000"):
        BY_LEVEL.prefill_ns([5000, 1])


def test_a_round_is_constant():
    assert BY_LEVEL.round_ns(200) == BY_LEVEL.round_ns(1, 7, 7) == 71_000_000
    assert BY_LEVEL.rounds_ns(10**9, 200) == 10**9 * BY_LEVEL.round_ns(200)
    assert BY_LEVEL.rounds_ns(0, 200) == 0


@pytest.mark.parametrize(("levels", "row"), [
    ([], None), ({}, None), (None, None), ("levels", None), ([[5, 1], 7], 1),
    ([[5, 1], [7]], 1), ([[0, 1]], 0), ([[-1, 1]], 0), ([[5, -1]], 0), ([[5, 1.5]], 0),
    ([[5, None]], 0), ([[True, 1]], 0), ([["5", 1]], 0), ([[5, float("nan")]], 0),
    ([[5, 2**62 + 1]], 0), ([[5, 1], [5, 2]], 1), ([[5, 1], [4, 2]], 1), ([[5, 3], [9, 2]], 1),
])  # fmt: skip
def test_malformed_levels(levels, row):
    with pytest.raises(InputError) as caught:
        LevelsCost.from_dict({"levels": levels, "round_fixed_ns": 1})
    assert (caught.value.field, caught.value.row) == ("levels", row)


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


MEASURED = replace(
    ROOF, row_fs=8 * 10**9, longest_fs=4 * 10**8, launch_fs=75 * 10**11,
    beside_request_fs=25 * 10**9, beside_context_fs=15 * 10**7, beside_launch_fs=11 * 10**12,
)  # fmt: skip


def test_the_fit_finds_what_steps_take_beyond_a_data_sheet():
    """Stages of a grid that are slower, and some that the host delays, do not move it."""
    data = rows_of(MEASURED)
    times, run = data.column("duration_ns").copy(), data.column("run")
    stages = data.rows("prefill")
    times[stages[run[stages] == 0]] *= 2
    times[stages[run[stages] > 0][::9]] += 15_000_000
    found = fit("roofline", replace(data, duration_ns=times), holdout=0).cost
    for name in ("launch_fs", "beside_launch_fs"):
        assert getattr(found, name) == pytest.approx(getattr(MEASURED, name), rel=1e-6), name
    load = (60, 30_000, 700)
    pairs = [(m.round_ns(*load), m.prefill_ns([900] * 2), m.mixed_ns([128], *load))
             for m in (found, MEASURED)]  # fmt: skip
    assert pairs[0] == pytest.approx(pairs[1], rel=0.05)
    small = found.prefill_ns([8]), MEASURED.prefill_ns([8])
    assert small[0] == pytest.approx(small[1], rel=0.05)


def test_fits_report_errors_on_steps_held_out_and_stay_near_under_noise():
    for model, true in (("linear", TRUE), ("roofline", ROOF)):
        found = fit(model, rows_of(true, noise=0.05))
        for phase in ("prefill", "decode", "mixed"):
            assert 0 < found.report["phases"][phase]["mean_relative_error"] < 0.06
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
