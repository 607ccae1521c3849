"""Fits of cost models: what they find again, and what they refuse."""

import json
import random

import numpy as np
import pytest

from orsched import AffineCost, BilinearCost, InputError, LevelsCost, PoolingCost
from orsched.calibration.fit import fit
from orsched.calibration.fit_jointly import Basis
from orsched.calibration.least_squares import confidence
from orsched.calibration.measurements import Measurements
from orsched.cli.commands import run
from tests.costs.measured import load_of, measured, step
from tests.costs.test_models import BILINEAR, LEVELS
from tests.refusals import place, refusal

POOLING = PoolingCost.from_ms(alpha=2e-6, beta=0.1, c=18.5, gamma=0.003, delta=0.011, lambda_=1.2)
MODELS = [AffineCost(), BILINEAR, POOLING, LEVELS]
CAPS = [512, 2048]


def measure(cost, *, noise=0.0, rows=120, seed=0):
    """Measure a model: stages of equal prompts, rounds of random contexts, multiplied by noise."""
    rng, steps = random.Random(seed), []
    phases = ["prefill", "decode"] + (["mixed"] if cost.model == "pooling" else [])
    for row in range(rows):
        phase = phases[row % len(phases)]
        count = rng.randint(1, 8)
        length = rng.randint(16, 256) if cost.model == "levels" else rng.randint(8, 2000)
        prompts = {"prefill": [length] * count, "decode": [], "mixed": [length]}[phase]
        load = load_of([] if phase == "prefill" else [rng.randint(1, 3000) for _ in range(count)])
        steps.append(step(cost, prompts, load, factor=1 + rng.uniform(-noise, noise)))
    return measured(steps)


def options(cost):
    return {"level_caps": CAPS} if cost.model == "levels" else {}


@pytest.mark.parametrize("weighting", ["relative", "absolute"])
@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("cost", MODELS, ids=lambda cost: cost.model)
def test_noise_free_data_give_the_coefficients_back(cost, nonnegative, weighting):
    how = {"nonnegative": nonnegative, "weighting": weighting, **options(cost)}
    found = fit(cost.model, measure(cost), **how)
    if cost.model in ("affine", "levels"):
        assert found.cost == cost
    for name, value in cost.to_dict().items():
        if name != "levels":  # measured in whole nanoseconds, hence not to the femtosecond
            assert found.cost.to_dict()[name] == pytest.approx(value, rel=1e-4)
    for errors in found.report["phases"].values():
        assert errors["held_out"] >= 8
        assert errors["worst_relative_error"] < 1e-6
    assert found.report["warnings"] == []


@pytest.mark.parametrize("cost", [AffineCost(), BILINEAR, POOLING], ids=lambda cost: cost.model)
def test_noisy_data_give_an_error_of_the_size_of_the_noise(cost):
    found = fit(cost.model, measure(cost, noise=0.05, rows=600), seed=3)
    for errors in found.report["phases"].values():
        assert 0.015 < errors["mean_relative_error"] < 0.035  # uniform noise of 5 %: 2.5 %
        mean, p95 = errors["mean_relative_error"], errors["p95_relative_error"]
        assert mean < p95 <= errors["worst_relative_error"] < 0.07
        assert errors["points"] == errors["fitted"] + errors["held_out"]
        assert errors["held_out"] == round(0.2 * errors["points"])
    same = fit(cost.model, measure(cost, noise=0.05, rows=600), seed=3)
    assert (same.cost, same.report) == (found.cost, found.report)
    other = fit(cost.model, measure(cost, noise=0.05, rows=600), seed=4)
    assert other.report["phases"] != found.report["phases"]


def test_the_error_is_that_of_points_not_fitted():
    data = measure(AffineCost())
    durations = np.array(data.duration_ns)
    worst = 0.0
    for row in data.rows("decode").tolist():  # spoil one point at a time: it is held out or not
        spoiled = durations.copy()
        spoiled[row] *= 2
        report = fit("affine", Measurements(**{**data.to_dict(), "duration_ns": spoiled})).report
        worst = max(worst, report["phases"]["decode"]["worst_relative_error"])
        if report["phases"]["decode"]["worst_relative_error"] == pytest.approx(0.5, abs=1e-6):
            break
    assert worst == pytest.approx(0.5, abs=1e-6)


def test_relative_weighting_serves_small_steps():
    rng = random.Random(1)
    tokens = [2**i for i in range(3, 15) for _ in range(4)]
    rows = [step(AffineCost(), [t], factor=1 + rng.uniform(-0.1, 0.1)) for t in tokens]
    rows += [step(AffineCost(), [], (i, 0, 0)) for i in range(1, 10)]
    data = measured(rows)
    fixed = {}
    for weighting in ("relative", "absolute"):
        cost = fit("affine", data, weighting=weighting, holdout=0).cost
        fixed[weighting] = abs(cost.prefill_fixed_ns - 25_000_000)
    assert fixed["relative"] < 2_500_000 < fixed["absolute"]


def bilinear_with(sign):
    decode = (0.00003, 0.08, 0.001, sign * 0.05)
    return measure(BilinearCost.from_ms((0.05, 1.0, 0.02, 20.0), decode))


def test_a_negative_coefficient_is_held_at_0_or_reported():
    data = bilinear_with(-1)
    held = fit("bilinear", data)
    assert held.cost.d4_fs == 0
    assert min(held.cost.to_dict().values()) >= 0
    assert any("d4_fs would be negative" in text for text in held.report["warnings"])
    free = fit("bilinear", data, nonnegative=False)
    assert free.cost.d4_fs == pytest.approx(-0.05e12, rel=1e-3)
    assert any("d4_fs is negative" in text for text in free.report["warnings"])
    assert fit("bilinear", bilinear_with(1)).report["warnings"] == []


def test_holding_at_0_is_optimal_among_nonnegative_coefficients():
    data = bilinear_with(-1)
    best = fit("bilinear", data, holdout=0).cost
    rows = data.rows("decode").tolist()
    durations = np.array(data.duration_ns)

    def error(cost):
        return sum((data.predicted_ns(cost, r) / int(durations[r]) - 1) ** 2 for r in rows)

    least = error(best)
    for name in ("d1_fs", "d2_fs", "d3_fs", "d4_fs"):
        for sign in (-1, 1):
            values = best.to_dict()
            values[name] = max(0, values[name] + sign * max(10**9, values[name] // 1000))
            assert error(BilinearCost(**values)) >= least - 1e-12


def test_levels_take_the_quantile_of_their_stages():
    tokens, times = [100, 200, 300, 400, 600, 700], [10, 40, 20, 30, 15, 25, 5, 8, 7, 6]
    phases, tokens = ["prefill"] * 6 + ["decode"] * 4, tokens + [0] * 4
    data = Measurements(phases, [1] * 10, times, tokens, tokens)
    most = fit("levels", data, level_caps=[400, 700], holdout=0)
    assert most.cost == LevelsCost(levels=((400, 40), (700, 40)), round_fixed_ns=8)
    assert most.report["warnings"] == ["the level of 700 tokens was faster than the one before"]
    assert most.report["phases"]["prefill"]["worst_relative_error"] is None
    half = fit("levels", data, level_caps=[400, 700], holdout=0, quantile=0.5)
    assert half.cost == LevelsCost(levels=((400, 20), (700, 20)), round_fixed_ns=6)


def test_pooling_without_short_prompts_or_mixed_steps_says_so():
    lengths = list(range(300, 2000, 50))
    steps = [step(POOLING, [x]) for x in lengths]
    steps += [step(POOLING, [], (2, x + 7 * i, x)) for i, x in enumerate(lengths)]
    found = fit("pooling", measured(steps))
    assert found.cost.c_fs == 0
    assert found.cost.alpha_fs == pytest.approx(POOLING.alpha_fs, rel=1e-4)
    assert [text.split(":")[0] for text in found.report["warnings"]] == [
        "no measured prompt is short enough to show c_fs", "no mixed measurement",
    ]  # fmt: skip


def test_the_fit_is_plain_json_and_reads_back():
    for cost in MODELS:
        found = fit(cost.model, measure(cost), **options(cost))
        values = json.loads(json.dumps(found.to_dict()))
        assert values["fit_report"] == found.report
        assert values["cost"].pop("model") == cost.model
        assert type(cost).from_dict(values["cost"]) == found.cost


def base(**change):
    """Two prefill, two decode rows and one mixed row that are right, with changed columns."""
    columns = {
        "phase": ["prefill", "prefill", "decode", "decode", "mixed"], "count": [1, 3, 1, 3, 2],
        "duration_ns": [10, 20, 30, 40, 50], "tokens": [5, 12, 0, 0, 9],
        "longest": [5, 6, 0, 0, 9], "context_sum": [0, 0, 8, 20, 9],
        "context_max": [0, 0, 8, 9, 5],
    }  # fmt: skip
    return {**columns, **change}


@pytest.mark.parametrize(("change", "field", "row"), [
    ({"phase": "prefill"}, "phase", None),
    ({"phase": ["prefill", "prefill", "decode", "decode", "other"]}, "phase", 4),
    ({"count": [1, 3, 1, 3]}, "count", None),
    ({"count": [1, 0, 1, 3, 2]}, "count", 1),
    ({"count": [1, 3, 1, None, 2]}, "count", 3),
    ({"duration_ns": [10, 20, 30, 0, 50]}, "duration_ns", 3),
    ({"duration_ns": [10, 20, 30, float("nan"), 50]}, "duration_ns", 3),
    ({"duration_ns": [10, 20, 30, 40.5, 50]}, "duration_ns", 3),
    ({"tokens": [5, 19, 0, 0, 9]}, "tokens", 1),
    ({"tokens": [5, 7, 0, 0, 9]}, "tokens", 1),
    ({"tokens": [4, 12, 0, 0, 9]}, "tokens", 0),
    ({"longest": [0, 6, 0, 0, 9], "tokens": [0, 12, 0, 0, 9]}, "longest", 0),
    ({"tokens": [5, 12, 0, 3, 9], "longest": [5, 6, 0, 3, 9]}, "tokens", 3),
    ({"tokens": [5, 12, 0, 0, 0], "longest": [5, 6, 0, 0, 0]}, "tokens", 4),
    ({"longest": [5, 6, 0, 0, 10]}, "longest", 4),
    ({"longest": [5, 6, 0, 0, 0]}, "longest", 4),
    ({"context_sum": [1, 0, 8, 20, 9], "context_max": [1, 0, 8, 9, 5]}, "context_sum", 0),
    ({"context_sum": [0, 0, 8, 28, 9]}, "context_sum", 3),
    ({"context_sum": [0, 0, 7, 20, 9]}, "context_max", 2),
    ({"context_sum": [0, 0, -8, 20, 9]}, "context_sum", 2),
])  # fmt: skip
def test_malformed_measurements(change, field, row):
    assert place(refusal(Measurements, **base(**change))) == (row, field)


def test_a_mixed_row_has_as_few_prompts_as_its_longest_allows():
    for longest, prompts in ((9, [9]), (5, [5, 4]), (3, [3, 3, 3]), (2, [2, 2, 2, 2, 1])):
        rows = Measurements(**base(longest=[5, 6, 0, 0, longest]))
        assert rows.prompts(4) == prompts


def test_measurements_round_trip():
    data = Measurements(**base())
    again = Measurements.from_dict(json.loads(json.dumps(data.to_dict()))).to_dict()
    assert again == base() | {"run": [0] * len(data), "cached": [0] * len(data)}
    short = Measurements.from_dict({"phase": ["decode"], "count": [3], "duration_ns": [7]})
    assert short.to_dict()["context_max"] == [0]
    assert len(short) == 1
    for wrong in ({"phase": [], "count": []}, {**base(), "time": []}, None):
        with pytest.raises(InputError):
            Measurements.from_dict(wrong)


def rounds(counts, longest):
    n, ten = len(counts), range(10, 130, 10)
    return {
        "phase": ["prefill"] * 12 + ["decode"] * n,
        "count": [1, 2, 3, 4] * 3 + counts,
        "duration_ns": [1000 + 7 * i for i in range(12 + n)],
        "tokens": [c * x for c, x in zip([1, 2, 3, 4] * 3, ten, strict=True)] + [0] * n,
        "longest": [*ten, *[0] * n],
        "context_sum": [0] * 12 + [c * x for c, x in zip(counts, longest, strict=True)],
        "context_max": [0] * 12 + longest,
    }


@pytest.mark.parametrize(("model", "counts", "longest", "names"), [
    ("affine", [4] * 9, [50] * 9, "round_fixed_ns, round_client_ns"),
    ("affine", [4], [50], "round_fixed_ns, round_client_ns"),
    ("affine", [], [], "round_fixed_ns, round_client_ns"),
    ("bilinear", [4] * 9, [*range(50, 140, 10)], "d1_fs, d2_fs, d3_fs, d4_fs"),
    ("bilinear", [1, 2, 3, 4] * 3, [0] * 12, "d1_fs, d3_fs"),
    ("bilinear", [1, 2, 3], [5, 9, 4], "d1_fs, d2_fs, d3_fs, d4_fs"),
    ("pooling", [1, 2, 3, 4] * 3, [*range(50, 170, 10)], "gamma_fs, delta_fs"),
])  # fmt: skip
def test_undetermined_coefficients_are_named(model, counts, longest, names):
    with pytest.raises(InputError, match=names):
        fit(model, Measurements(**rounds(counts, longest)))


@pytest.mark.parametrize(("model", "change", "field"), [
    ("parabola", {}, "model"), ("affine", {"weighting": "log"}, "weighting"),
    ("affine", {"holdout": 1.0}, "holdout"), ("affine", {"holdout": -0.1}, "holdout"),
    ("affine", {"holdout": float("nan")}, "holdout"), ("affine", {"holdout": "half"}, "holdout"),
    ("affine", {"seed": 1.5}, "seed"), ("affine", {"level_caps": [5]}, "level_caps"),
    ("levels", {}, "level_caps"), ("levels", {"level_caps": []}, "level_caps"),
    ("levels", {"level_caps": [2048, 512]}, "level_caps"),
    ("levels", {"level_caps": [512, 2048, 4096]}, "level_caps"),
    ("levels", {"level_caps": [512, 600]}, "tokens"),
    ("levels", {"level_caps": CAPS, "quantile": 0}, "quantile"),
    ("levels", {"level_caps": CAPS, "quantile": 1.1}, "quantile"),
])  # fmt: skip
def test_wrong_options(model, change, field):
    assert refusal(fit, model, measure(LEVELS), **change).field == field


def test_too_few_rows_to_hold_out():
    data = Measurements(**rounds([1, 2], [5, 9]))
    with pytest.raises(InputError, match="2 decode measurements leave none to hold out"):
        fit("affine", data)
    report = fit("affine", data, holdout=0).report
    assert report["phases"]["decode"]["held_out"] == 0
    assert report["phases"]["decode"]["mean_relative_error"] is None


def test_rows_that_a_model_cannot_take_are_named():
    mixed = Measurements(**base())
    for model in ("affine", "bilinear", "levels"):
        caps = {"level_caps": CAPS} if model == "levels" else {}
        assert place(refusal(fit, model, mixed, **caps)) == (4, "phase")
    assert place(refusal(fit, "pooling", mixed)) == (1, "tokens")


BASIS = Basis((1, 16, 64, 512, 4096), (0, 16, 32, 64, 128, 256, 512))
VALUES = [15e6, 15.5e6, 17e6, 52e6, 400e6, 2.5, 140.0]
TRUE = BASIS.cost(VALUES, 64, 4096)


def measure_table(rows=150, *, noise=0.0, cost=TRUE, mixed=True):
    """Measure stages of equal prompts, rounds, and mixed steps of one prompt."""
    rng, steps = random.Random(3), []
    for row in range(rows):
        phase = ("prefill", "decode", "mixed")[row % (3 if mixed else 2)]
        count = rng.choice([1, 2, 5, 16, 40, 64])
        load = load_of([] if phase == "prefill" else [rng.randint(20, 4000) for _ in range(count)])
        prompts = [rng.randint(16, 512) for _ in range(rng.randint(1, 8))]
        chosen = {"prefill": prompts[:1] * len(prompts), "decode": [], "mixed": prompts[:1]}
        steps.append(step(cost, chosen[phase], load, factor=1 + rng.uniform(-noise, noise)))
    return measured(steps)


@pytest.mark.parametrize("case", [
    ([300], 0, 0), ([16, 512, 77], 0, 0), ([], 5, 9_000), ([100], 64, 64 * 4096), ([30, 40], 3, 70),
])  # fmt: skip
def test_the_basis_and_its_cost_model_agree(case):
    prompts, active, contexts = case
    linear = sum(x * v for x, v in zip(BASIS.row(*case), VALUES, strict=True))
    found = TRUE.mixed_ns(prompts, active, contexts, 0) if active else TRUE.prefill_ns(prompts)
    assert found == pytest.approx(linear, abs=2)
    assert BASIS.names[-3:] == ["dense at 4096", "prefill", "decode"]


def test_noise_free_data_on_the_knots_give_the_model_back():
    line = Basis((1, 4096), (0, 16, 32, 64, 128, 256, 512))
    cost = line.cost([15e6, 400e6, 2.5, 140.0], 64, 4096)
    report = fit("profiled", measure_table(cost=cost), seed=1).report
    assert report["warnings"] == []
    for phase in ("prefill", "decode", "mixed"):
        assert report["phases"][phase]["held_out"] == 10
        assert report["phases"][phase]["worst_relative_error"] < 1e-4


def test_noise_and_a_curve_between_knots_show_in_the_error():
    report = fit("profiled", measure_table(noise=0.03), seed=1).report
    for phase in ("prefill", "decode", "mixed"):
        assert 0.005 < report["phases"][phase]["mean_relative_error"] < 0.08


def test_what_the_rows_do_not_tell_apart_is_left_out():
    tokens = [100, 200, 400, 800, 1600, 3200] + [0] * 6
    milliseconds = (20, 25, 33, 51, 80, 150, 15, 15, 15, 16, 17, 18)
    rows = Measurements(
        ["prefill"] * 6 + ["decode"] * 6, [1] * 6 + [1, 2, 4, 8, 16, 32],
        [t * 10**6 for t in milliseconds], tokens, tokens,
    )  # fmt: skip
    found = fit("profiled", rows, holdout=0)
    assert [note.partition(":")[0] for note in found.report["warnings"]] == ["decode", "prefill"]
    assert len(found.cost.dense.axes[0]) <= 8
    assert found.cost.round_ns(4, 100, 50) == found.cost.round_ns(4, 9_000, 4_000)
    assert found.cost.prefill_ns([3200]) == pytest.approx(150e6, rel=0.05)


def test_a_file_reads_back(tmp_path):
    from orsched.files import load_cost, save_cost

    found = fit("profiled", measure_table(60), seed=2)
    save_cost(found.cost, tmp_path / "cost.json", found.report)
    assert load_cost(tmp_path / "cost.json") == found.cost


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_both_phases_are_needed(phase):
    data = measure_table(20, mixed=False).to_dict()
    keep = [i for i, name in enumerate(data["phase"]) if name != phase]
    with pytest.raises(InputError, match=phase):
        fit("profiled", Measurements(**{k: [v[i] for i in keep] for k, v in data.items()}))


def rows(seed, noise, true=(5.0, 3.0), n=12):
    dice = np.random.default_rng(seed)
    x = np.linspace(1, 9, n)
    design = np.stack([np.ones(n), x], axis=1)
    return design, design @ np.array(true) + noise * dice.standard_normal(n)


def judged(design, target, *, nonnegative=False, values=None):
    names = ["fixed", "slope"]
    found = np.linalg.lstsq(design, target, rcond=None)[0] if values is None else values
    return confidence(design, target, names, found, nonnegative=nonnegative)


def test_an_interval_holds_the_true_constant_as_often_as_it_says():
    fixed, slope = zip(*(judged(*rows(seed, 2.0)) for seed in range(2000)), strict=True)
    first, one = (
        [c.low <= true <= c.high for c in each] for each, true in ((fixed, 5), (slope, 3))
    )
    assert abs(np.mean(one) - 0.95) < 0.015
    assert 0.88 < np.mean(np.logical_and(first, one)) < 0.95


def test_the_standard_error_is_that_of_repeats():
    found = [judged(*rows(seed, 2.0)) for seed in range(1000)]
    spread = np.std([each[1].value for each in found])
    assert abs(np.mean([each[1].standard_error for each in found]) / spread - 1) < 0.05


def test_rows_without_noise_leave_no_doubt():
    fixed, slope = judged(*rows(0, 0.0))
    assert slope.standard_error < 1e-9
    assert slope.determined
    assert fixed.low == pytest.approx(5.0)


def test_what_the_rows_do_not_tell_apart_has_no_interval():
    design = np.ones((6, 2))  # every row of the same size
    found = judged(design, np.arange(6.0), values=[1.0, 1.0])
    assert [each.determined for each in found] == [False, False]
    assert "not determined by these rows" in found[0].text()
    two = judged(*rows(0, 1.0, n=2))  # as many constants as rows
    assert not two[0].determined


def test_a_constant_held_at_0_has_an_upper_end():
    design, target = rows(3, 1.0, true=(-2.0, 3.0))
    held = judged(design, target, nonnegative=True, values=[0.0, 2.7])
    assert (held[0].value, held[0].low) == (0.0, 0.0)
    assert 0 <= held[0].high < 2
    assert held[1].low > 0


def steps(noise, sizes=(100, 400, 900, 1600, 2500, 3600)):
    dice = np.random.default_rng(2)
    found = [step(AffineCost(), [tokens]) for tokens in sizes]
    found += [step(AffineCost(), [], (count, 0, 0)) for count in (1, 8, 16, 32, 64, 96)]
    normal = dice.standard_normal
    return measured([(*row, round(time * (1 + noise * normal()))) for *row, time in found])


@pytest.mark.parametrize("weighting", ["relative", "seconds"])
def test_a_fit_reports_its_constants(weighting):
    report = fit("affine", steps(0.01), holdout=0, weighting=weighting).report
    true = {"prefill_fixed_ns": 25e6, "prefill_token_ns": 13e4}
    true |= {"round_fixed_ns": 29e6, "round_client_ns": 21e4}
    assert list(report["constants"]) == list(true)
    for name, value in true.items():
        found = report["constants"][name]
        low, high = found["interval_95"]
        assert low <= found["value"] <= high
        assert low < value < high
        assert found["determined"]
        assert found["standard_error"] < 0.2 * value


def test_models_fitted_otherwise_report_theirs():
    measured = steps(0.005)
    assert "dense at 1" in fit("profiled", measured, holdout=0).report["constants"]
    contexts = [0] * 6 + [100, 900, 1500, 9000, 9000, 40_000]
    data = Measurements(**measured.to_dict() | {"context_sum": contexts, "context_max": contexts})
    names = set(fit("linear", data, holdout=0).report["constants"])
    assert {"stage_token_fs", "round_fixed_fs", "context_fs"} <= names
    assert set(fit("roofline", data, holdout=0).report["constants"]) == {
        "fixed_fs", "row_fs", "token_fs", "context_fs", "attended_fs"
    }  # fmt: skip


def test_the_command_prints_them(tmp_path, capsys):
    pytest.importorskip("torch")
    path = tmp_path / "rows.csv"
    data = steps(0.01)
    columns = data.to_dict()
    names = ("phase", "count", "duration_ns", "tokens", "longest")
    lines = [",".join(names)]
    lines += [",".join(str(columns[n][i]) for n in names) for i in range(len(data))]
    path.write_text("\n".join(lines) + "\n")
    command = ["calibrate", "--from", str(path), "--cost-model", "affine", "--weighting", "seconds"]
    assert run(command) == 0
    assert "affine: prefill_token_ns" in capsys.readouterr().err
    assert run([*command, "--format", "json"]) == 0
    assert '"interval_95"' in capsys.readouterr().out
