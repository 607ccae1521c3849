"""Standard errors and intervals: against draws of the noise, and where rows say nothing."""

from __future__ import annotations

import numpy as np
import pytest

from orsched.calibration.fit import fit
from orsched.calibration.least_squares import confidence
from orsched.calibration.measurements import Measurements
from orsched.cli.commands import run


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
    inside = [
        low.low <= 5.0 <= low.high and high.low <= 3.0 <= high.high
        for low, high in (judged(*rows(seed, 2.0)) for seed in range(2000))
    ]
    one = [c.low <= 3.0 <= c.high for _, c in (judged(*rows(seed, 2.0)) for seed in range(2000))]
    assert abs(np.mean(one) - 0.95) < 0.015
    assert 0.88 < np.mean(inside) < 0.95


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
    tokens = list(sizes) + [0] * 6
    count = [1] * len(sizes) + [1, 8, 16, 32, 64, 96]
    exact = [25e6 + 13e4 * t for t in sizes] + [29e6 + 21e4 * c for c in count[len(sizes) :]]
    return Measurements(
        phase=["prefill"] * len(sizes) + ["decode"] * 6,
        count=count,
        tokens=tokens,
        longest=tokens,
        duration_ns=[round(t * (1 + noise * dice.standard_normal())) for t in exact],
    )


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
        "fixed_fs", "token_fs", "context_fs", "attended_fs"
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
