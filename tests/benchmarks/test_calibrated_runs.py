"""The table of runs beside their calibration, on a set whose times are those of a cost model."""

import random

import pytest

from benchmarks import calibrated_runs
from orsched.calibration.step_files import write_measurements
from tests.costs.test_plain_models import MEASURED, rows_of

HEAD = "phase,start_ns,end_ns,rounds,active,context_sum,context_max,prompts,tokens,longest\n"


def steps(factor, seed=0):
    """Return the steps of a run, the mixed ones slower by a factor."""
    draw, lines, now = random.Random(seed), [], 0
    for _ in range(60):
        tokens, n, top = draw.choice((20, 300, 900)), draw.randint(1, 150), draw.randint(50, 900)
        load = (n, n * top, top)
        for phase, time, rest in (
            ("prefill", MEASURED.prefill_ns([tokens]), f"1,0,0,0,1,{tokens},{tokens}"),
            ("decode", MEASURED.rounds_ns(9, *load), f"9,{n},{n * top},{top},0,0,0"),
            ("mixed", round(factor * MEASURED.mixed_ns([tokens], *load)),
             f"1,{n},{n * top},{top},1,{tokens},{tokens}"),
        ):  # fmt: skip
            lines.append(f"{phase},{now},{now + time},{rest}\n")
            now += time
    return HEAD + "".join(lines)


def test_each_phase_of_each_run_has_its_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(calibrated_runs, "data_directory", lambda: tmp_path)
    folder = tmp_path / "gpu"
    folder.mkdir()
    write_measurements(rows_of(MEASURED), folder / "x_calibration.csv")
    (folder / "x_calm_steps.csv").write_text(steps(1.0))
    (folder / "x_slow_steps.csv").write_text(steps(1.25, 1))
    rows = calibrated_runs.rows_of(folder / "x_calibration.csv")
    assert {row["model"] for row in rows} == {"roofline"}
    errors = {(row["policy"], row["phase"]): row["error %"] for row in rows}
    assert len(errors) == 8
    assert errors["slow", "mixed"] == pytest.approx(-20, abs=4)
    met = {key for key, error in errors.items() if abs(error) <= (3 if key[1] == "total" else 5)}
    assert met == set(errors) - {("slow", "mixed"), ("slow", "total")}
    assert {key for row in rows if row["met"] for key in [(row["policy"], row["phase"])]} == met
    assert calibrated_runs.main(["gpu"]) == 0
    assert "6 of 8 within 5 % (phases) and 3 % (totals)" in capsys.readouterr().out
