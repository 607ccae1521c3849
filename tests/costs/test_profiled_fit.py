"""The fit of the profiled cost model: what it finds again, and what it leaves out."""

from __future__ import annotations

import random
from typing import Any

import pytest

from orsched.calibration.fit import fit
from orsched.calibration.fit_jointly import Basis
from orsched.calibration.measurements import Measurements
from orsched.common.errors import InputError

BASIS = Basis((1, 16, 64, 512, 4096), (0, 16, 32, 64, 128, 256, 512))
VALUES = [15e6, 15.5e6, 17e6, 52e6, 400e6, 2.5, 140.0]
TRUE = BASIS.cost(VALUES, 64, 4096)


def measure(rows: int = 150, *, noise: float = 0.0, cost: Any = TRUE, mixed: bool = True) -> Any:
    """Measure stages of unequal prompts, rounds, and mixed steps of one prompt."""
    rng = random.Random(3)
    data: dict[str, list[Any]] = {
        name: [] for name in ("phase", "count", "duration_ns", "tokens", "longest")
    }
    data |= {"context_sum": [], "context_max": []}
    for row in range(rows):
        phase = ("prefill", "decode", "mixed")[row % (3 if mixed else 2)]
        count = rng.choice([1, 2, 5, 16, 40, 64])
        contexts = [0] if phase == "prefill" else [rng.randint(20, 4000) for _ in range(count)]
        prompts = [rng.randint(16, 512) for _ in range(rng.randint(1, 8))]
        if phase == "prefill":
            prompts, count = prompts[:1] * len(prompts), len(prompts)
            duration = cost.prefill_ns(prompts)
        elif phase == "decode":
            prompts = []
            duration = cost.round_ns(count, sum(contexts), max(contexts))
        else:
            prompts = prompts[:1]
            duration = cost.mixed_ns(prompts, count, sum(contexts), max(contexts))
        values = (phase, count, round(duration * (1 + rng.uniform(-noise, noise))))
        values += (sum(prompts), max(prompts, default=0), sum(contexts), max(contexts))
        for column, value in zip(data.values(), values, strict=True):
            column.append(value)
    return Measurements(**data)


def test_the_basis_and_its_cost_model_agree():
    for prompts, active, contexts in (
        ([300], 0, 0),
        ([16, 512, 77], 0, 0),
        ([], 5, 9_000),
        ([100], 64, 64 * 4096),
        ([30, 40], 3, 70),
    ):
        linear = sum(
            x * v for x, v in zip(BASIS.row(prompts, active, contexts), VALUES, strict=True)
        )
        found = TRUE.mixed_ns(prompts, active, contexts, 0) if active else TRUE.prefill_ns(prompts)
        assert found == pytest.approx(linear, abs=2)
    assert BASIS.names[-3:] == ["dense at 4096", "prefill", "decode"]


def test_noise_free_data_on_the_knots_give_the_model_back():
    line = Basis((1, 4096), (0, 16, 32, 64, 128, 256, 512))
    cost = line.cost([15e6, 400e6, 2.5, 140.0], 64, 4096)
    report = fit("profiled", measure(cost=cost), seed=1).report
    assert report["warnings"] == []
    for phase in ("prefill", "decode", "mixed"):
        assert report["phases"][phase]["held_out"] == 10
        assert report["phases"][phase]["worst_relative_error"] < 1e-4


def test_noise_and_a_curve_between_knots_show_in_the_error():
    report = fit("profiled", measure(noise=0.03), seed=1).report
    for phase in ("prefill", "decode", "mixed"):
        assert 0.005 < report["phases"][phase]["mean_relative_error"] < 0.08


def test_what_the_rows_do_not_tell_apart_is_left_out():
    rows = {
        "phase": ["prefill"] * 6 + ["decode"] * 6,
        "count": [1] * 6 + [1, 2, 4, 8, 16, 32],
        "duration_ns": [t * 10**6 for t in (20, 25, 33, 51, 80, 150, 15, 15, 15, 16, 17, 18)],
        "tokens": [100, 200, 400, 800, 1600, 3200] + [0] * 6,
        "longest": [100, 200, 400, 800, 1600, 3200] + [0] * 6,
    }
    found = fit("profiled", Measurements(**rows), holdout=0)
    assert [note.partition(":")[0] for note in found.report["warnings"]] == ["decode", "prefill"]
    assert len(found.cost.dense.axes[0]) <= 8
    assert found.cost.round_ns(4, 100, 50) == found.cost.round_ns(4, 9_000, 4_000)
    assert found.cost.prefill_ns([3200]) == pytest.approx(150e6, rel=0.05)


def test_a_file_reads_back(tmp_path):
    from orsched.files import load_cost, save_cost

    found = fit("profiled", measure(60), seed=2)
    save_cost(found.cost, tmp_path / "cost.json", found.report)
    assert load_cost(tmp_path / "cost.json") == found.cost


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_both_phases_are_needed(phase):
    data = measure(20, mixed=False).to_dict()
    keep = [i for i, name in enumerate(data["phase"]) if name != phase]
    with pytest.raises(InputError, match=phase):
        fit("profiled", Measurements(**{k: [v[i] for i in keep] for k, v in data.items()}))
