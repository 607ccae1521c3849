from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from orsched.calibration.fit import fit
from orsched.calibration.measurements import Measurements
from orsched.common.errors import InputError
from orsched.costs import AffineCost, BilinearCost, LevelsCost, PoolingCost

if TYPE_CHECKING:
    from orsched.costs import CostModel

BILINEAR = BilinearCost.from_ms((0.05, 1.0, 0.02, 20.0), (0.00003, 0.08, 0.001, 25.0))
POOLING = PoolingCost.from_ms(alpha=2e-6, beta=0.1, c=18.5, gamma=0.003, delta=0.011, lambda_=1.2)
LEVELS = LevelsCost(levels=((512, 91_560_000), (2048, 291_240_000)), round_fixed_ns=71_000_000)
MODELS: list[Any] = [AffineCost(), BILINEAR, POOLING, LEVELS]
CAPS = [512, 2048]


def measure(cost: CostModel, *, noise: float = 0.0, rows: int = 120, seed: int = 0) -> Measurements:
    """Measure a model: stages of equal prompts, rounds of random contexts, multiplied by noise."""
    rng = random.Random(seed)
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "phase",
            "count",
            "duration_ns",
            "tokens",
            "longest",
            "context_sum",
            "context_max",
        )
    }
    phases = ["prefill", "decode"] + (["mixed"] if cost.model == "pooling" else [])
    for row in range(rows):
        phase = phases[row % len(phases)]
        count = rng.randint(1, 8)
        length = rng.randint(16, 256) if cost.model == "levels" else rng.randint(8, 2000)
        contexts = [0] if phase == "prefill" else [rng.randint(1, 3000) for _ in range(count)]
        tokens = {"prefill": count * length, "decode": 0, "mixed": length}[phase]
        work = (tokens, length if tokens else 0, sum(contexts), max(contexts))
        if phase == "prefill":
            duration = cost.prefill_ns([length] * count)
        elif phase == "decode":
            duration = cost.round_ns(count, sum(contexts), max(contexts))
        else:
            duration = POOLING.mixed_ns([length], count, sum(contexts), max(contexts))
        duration = round(duration * (1 + rng.uniform(-noise, noise)))
        names = ("tokens", "longest", "context_sum", "context_max")
        for name, value in zip(names, work, strict=True):
            columns[name].append(value)
        columns["phase"].append(phase)
        columns["count"].append(count)
        columns["duration_ns"].append(duration)
    return Measurements(**columns)


def options(cost: CostModel) -> dict[str, Any]:
    return {"level_caps": CAPS} if cost.model == "levels" else {}


@pytest.mark.parametrize("weighting", ["relative", "absolute"])
@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("cost", MODELS, ids=lambda cost: cost.model)
def test_noise_free_data_give_the_coefficients_back(
    cost: Any, nonnegative: bool, weighting: str
) -> None:
    found = fit(
        cost.model,
        measure(cost),
        nonnegative=nonnegative,
        weighting=weighting,
        **options(cost),
    )
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
def test_noisy_data_give_an_error_of_the_size_of_the_noise(cost: Any) -> None:
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


def test_the_error_is_that_of_points_not_fitted() -> None:
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


def test_relative_weighting_serves_small_steps() -> None:
    rng = random.Random(1)
    tokens = [2**i for i in range(3, 15) for _ in range(4)]
    duration = [round((25e6 + 130e3 * t) * (1 + rng.uniform(-0.1, 0.1))) for t in tokens]
    n = len(tokens)
    data = Measurements(
        phase=["prefill"] * n + ["decode"] * 9,
        count=[1] * n + list(range(1, 10)),
        duration_ns=duration + [29_000_000 + 210_000 * i for i in range(1, 10)],
        tokens=tokens + [0] * 9,
        longest=tokens + [0] * 9,
    )
    fixed = {}
    for weighting in ("relative", "absolute"):
        cost = fit("affine", data, weighting=weighting, holdout=0).cost
        assert isinstance(cost, AffineCost)
        fixed[weighting] = abs(cost.prefill_fixed_ns - 25_000_000)
    assert fixed["relative"] < 2_500_000 < fixed["absolute"]


def bilinear_with(sign: int) -> Measurements:
    cost = BilinearCost.from_ms((0.05, 1.0, 0.02, 20.0), (0.00003, 0.08, 0.001, sign * 0.05))
    return measure(cost, noise=0)


def test_a_negative_coefficient_is_held_at_0_or_reported() -> None:
    data = bilinear_with(-1)
    held = fit("bilinear", data)
    assert isinstance(held.cost, BilinearCost)
    assert held.cost.d4_fs == 0
    assert min(held.cost.to_dict().values()) >= 0
    assert any("d4_fs would be negative" in text for text in held.report["warnings"])
    free = fit("bilinear", data, nonnegative=False)
    assert isinstance(free.cost, BilinearCost)
    assert free.cost.d4_fs == pytest.approx(-0.05e12, rel=1e-3)
    assert any("d4_fs is negative" in text for text in free.report["warnings"])
    assert fit("bilinear", bilinear_with(1)).report["warnings"] == []


def test_holding_at_0_is_optimal_among_nonnegative_coefficients() -> None:
    data = measure(BilinearCost.from_ms((0.05, 1, 0.02, 20), (0.00003, 0.08, 0.001, -0.05)))
    best = fit("bilinear", data, holdout=0).cost
    rows = data.rows("decode").tolist()
    durations = np.array(data.duration_ns)

    def error(cost: CostModel) -> float:
        return sum((data.predicted_ns(cost, r) / int(durations[r]) - 1) ** 2 for r in rows)

    least = error(best)
    for name in ("d1_fs", "d2_fs", "d3_fs", "d4_fs"):
        for step in (-1, 1):
            values = best.to_dict()
            values[name] = max(0, values[name] + step * max(10**9, values[name] // 1000))
            assert error(BilinearCost(**values)) >= least - 1e-12


def test_levels_take_the_quantile_of_their_stages() -> None:
    tokens = [100, 200, 300, 400, 600, 700]
    data = Measurements(
        phase=["prefill"] * 6 + ["decode"] * 4,
        count=[1] * 10,
        duration_ns=[10, 40, 20, 30, 15, 25, 5, 8, 7, 6],
        tokens=tokens + [0] * 4,
        longest=tokens + [0] * 4,
    )
    most = fit("levels", data, level_caps=[400, 700], holdout=0)
    assert most.cost == LevelsCost(levels=((400, 40), (700, 40)), round_fixed_ns=8)
    assert most.report["warnings"] == ["the level of 700 tokens was faster than the one before"]
    assert most.report["phases"]["prefill"]["worst_relative_error"] is None
    half = fit("levels", data, level_caps=[400, 700], holdout=0, quantile=0.5)
    assert half.cost == LevelsCost(levels=((400, 20), (700, 20)), round_fixed_ns=6)


def test_pooling_without_short_prompts_or_mixed_steps_says_so() -> None:
    lengths = list(range(300, 2000, 50))
    n = len(lengths)
    data = Measurements(
        phase=["prefill"] * n + ["decode"] * n,
        count=[1] * n + [2] * n,
        duration_ns=[POOLING.prefill_ns([x]) for x in lengths]
        + [POOLING.round_ns(2, x + 7 * i, x) for i, x in enumerate(lengths)],
        tokens=lengths + [0] * n,
        longest=lengths + [0] * n,
        context_sum=[0] * n + [x + 7 * i for i, x in enumerate(lengths)],
        context_max=[0] * n + lengths,
    )
    found = fit("pooling", data)
    assert isinstance(found.cost, PoolingCost)
    assert found.cost.c_fs == 0
    assert found.cost.alpha_fs == pytest.approx(POOLING.alpha_fs, rel=1e-4)
    assert [text.split(":")[0] for text in found.report["warnings"]] == [
        "no measured prompt is short enough to show c_fs",
        "no mixed measurement",
    ]


def test_the_fit_is_plain_json_and_reads_back() -> None:
    for cost in MODELS:
        found = fit(cost.model, measure(cost), **options(cost))
        values = json.loads(json.dumps(found.to_dict()))
        assert values["fit_report"] == found.report
        assert values["cost"].pop("model") == cost.model
        assert type(cost).from_dict(values["cost"]) == found.cost


def base(**change: Any) -> dict[str, Any]:
    """Two prefill, two decode rows and one mixed row that are right, with changed columns."""
    columns: dict[str, Any] = {
        "phase": ["prefill", "prefill", "decode", "decode", "mixed"],
        "count": [1, 3, 1, 3, 2],
        "duration_ns": [10, 20, 30, 40, 50],
        "tokens": [5, 12, 0, 0, 9],
        "longest": [5, 6, 0, 0, 9],
        "context_sum": [0, 0, 8, 20, 9],
        "context_max": [0, 0, 8, 9, 5],
    }
    return {**columns, **change}


@pytest.mark.parametrize(
    ("change", "field", "row"),
    [
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
    ],
)
def test_malformed_measurements(change: dict[str, Any], field: str, row: int | None) -> None:
    with pytest.raises(InputError) as caught:
        Measurements(**base(**change))
    assert (caught.value.field, caught.value.row) == (field, row)


def test_a_mixed_row_has_as_few_prompts_as_its_longest_allows() -> None:
    for longest, prompts in ((9, [9]), (5, [5, 4]), (3, [3, 3, 3]), (2, [2, 2, 2, 2, 1])):
        rows = Measurements(**base(longest=[5, 6, 0, 0, longest]))
        assert rows.prompts(4) == prompts


def test_measurements_round_trip() -> None:
    data = Measurements(**base())
    again = Measurements.from_dict(json.loads(json.dumps(data.to_dict()))).to_dict()
    assert again == base() | {"run": [0] * len(data), "cached": [0] * len(data)}
    short = Measurements.from_dict({"phase": ["decode"], "count": [3], "duration_ns": [7]})
    assert short.to_dict()["context_max"] == [0]
    assert len(short) == 1
    for wrong in ({"phase": [], "count": []}, {**base(), "time": []}, None):
        with pytest.raises(InputError):
            Measurements.from_dict(wrong)  # type: ignore[arg-type]


def rounds(counts: list[int], longest: list[int]) -> dict[str, list[Any]]:
    n = len(counts)
    return {
        "phase": ["prefill"] * 12 + ["decode"] * n,
        "count": [1, 2, 3, 4] * 3 + counts,
        "duration_ns": [1000 + 7 * i for i in range(12 + n)],
        "tokens": [c * x for c, x in zip([1, 2, 3, 4] * 3, range(10, 130, 10), strict=True)]
        + [0] * n,
        "longest": [*range(10, 130, 10), *[0] * n],
        "context_sum": [0] * 12 + [c * x for c, x in zip(counts, longest, strict=True)],
        "context_max": [0] * 12 + longest,
    }


@pytest.mark.parametrize(
    ("model", "counts", "longest", "names"),
    [
        ("affine", [4] * 9, [50] * 9, "round_fixed_ns, round_client_ns"),
        ("affine", [4], [50], "round_fixed_ns, round_client_ns"),
        ("affine", [], [], "round_fixed_ns, round_client_ns"),
        ("bilinear", [4] * 9, [*range(50, 140, 10)], "d1_fs, d2_fs, d3_fs, d4_fs"),
        ("bilinear", [1, 2, 3, 4] * 3, [0] * 12, "d1_fs, d3_fs"),
        ("bilinear", [1, 2, 3], [5, 9, 4], "d1_fs, d2_fs, d3_fs, d4_fs"),
        ("pooling", [1, 2, 3, 4] * 3, [*range(50, 170, 10)], "gamma_fs, delta_fs"),
    ],
)
def test_undetermined_coefficients_are_named(
    model: str, counts: list[int], longest: list[int], names: str
) -> None:
    with pytest.raises(InputError, match=names):
        fit(model, Measurements(**rounds(counts, longest)))


@pytest.mark.parametrize(
    ("model", "change", "field"),
    [
        ("parabola", {}, "model"),
        ("affine", {"weighting": "log"}, "weighting"),
        ("affine", {"holdout": 1.0}, "holdout"),
        ("affine", {"holdout": -0.1}, "holdout"),
        ("affine", {"holdout": float("nan")}, "holdout"),
        ("affine", {"holdout": "half"}, "holdout"),
        ("affine", {"seed": 1.5}, "seed"),
        ("affine", {"level_caps": [5]}, "level_caps"),
        ("levels", {}, "level_caps"),
        ("levels", {"level_caps": []}, "level_caps"),
        ("levels", {"level_caps": [2048, 512]}, "level_caps"),
        ("levels", {"level_caps": [512, 2048, 4096]}, "level_caps"),
        ("levels", {"level_caps": [512, 600]}, "tokens"),
        ("levels", {"level_caps": CAPS, "quantile": 0}, "quantile"),
        ("levels", {"level_caps": CAPS, "quantile": 1.1}, "quantile"),
    ],
)
def test_wrong_options(model: str, change: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        fit(model, measure(LEVELS), **change)
    assert caught.value.field == field


def test_too_few_rows_to_hold_out() -> None:
    data = Measurements(**rounds([1, 2], [5, 9]))
    with pytest.raises(InputError, match="2 decode measurements leave none to hold out"):
        fit("affine", data)
    report = fit("affine", data, holdout=0).report
    assert report["phases"]["decode"]["held_out"] == 0
    assert report["phases"]["decode"]["mean_relative_error"] is None


def test_rows_that_a_model_cannot_take_are_named() -> None:
    mixed = Measurements(**base())
    for model in ("affine", "bilinear", "levels"):
        with pytest.raises(InputError) as caught:
            fit(model, mixed, **({"level_caps": CAPS} if model == "levels" else {}))
        assert (caught.value.row, caught.value.field) == (4, "phase")
    with pytest.raises(InputError) as caught:
        fit("pooling", mixed)
    assert (caught.value.row, caught.value.field) == (1, "tokens")
