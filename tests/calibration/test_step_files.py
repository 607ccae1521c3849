"""Measurements as CSV: what is written is read back, what is wrong is named with its line."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orsched.calibration.candidates import (
    Calibration,
    Candidate,
    calibrate,
    interleaved,
    with_runs,
)
from orsched.calibration.measurements import Measurements
from orsched.calibration.step_files import (
    RunStep,
    judge,
    read_measurements,
    read_steps,
    write_measurements,
)
from orsched.common.errors import InputError
from orsched.costs import AffineCost, RooflineCost
from tests.costs.test_linear import TRUE, rows_of
from tests.in_order import in_order

HEAD = "phase,count,duration_ns,tokens,longest,context_sum,context_max\n"


def test_what_is_written_is_read_back(tmp_path):
    found = Measurements(
        phase=["prefill", "decode", "mixed"],
        count=[2, 3, 4],
        duration_ns=[7, 8, 9],
        tokens=[30, 0, 5],
        longest=[20, 0, 5],
        context_sum=[0, 30, 44],
        context_max=[0, 12, 11],
        cached=[0, 0, 70],
    )
    path = tmp_path / "m.csv"
    write_measurements(found, path)
    assert path.read_text().splitlines()[0] + "\n" == HEAD.replace("\n", ",run,cached\n")
    assert read_measurements(path).to_dict() == found.to_dict()


def test_columns_come_in_any_order_and_may_be_left_out(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("duration_ns,phase,count\n\n5,decode,2\n")
    assert read_measurements(path).to_dict()["duration_ns"] == [5]


@pytest.mark.parametrize(
    ("text", "row", "field"),
    [
        ("", None, None),
        ("phase,count\n", 1, "duration_ns"),
        ("phase,count,duration_ns,colour\n", 1, "colour"),
        ("phase,count,duration_ns,count\n", 1, "count"),
        (HEAD + "decode,2\n", 2, None),
        (HEAD + "decode,2,x,0,0,0,0\n", 2, "duration_ns"),
        (HEAD + "decode,2,-5,0,0,0,0\n", 2, "duration_ns"),
        (HEAD + "\ndecode,2,5,0,0,0,0\ndecode,0,5,0,0,0,0\n", 4, "count"),
        (HEAD + "rest,2,5,0,0,0,0\n", 2, "phase"),
        (HEAD + "prefill,2,5,0,0,0,0\n", 2, "longest"),
        (HEAD + 'decode,"2,5,0,0,0,0\n', 2, None),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, text, row, field):
    path = tmp_path / "m.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_measurements(path)
    assert (caught.value.file, caught.value.row, caught.value.field) == (str(path), row, field)


COST = in_order(AffineCost, 100, 10, 1000, 50)
STEPS_HEAD = (
    "phase,start_ns,end_ns,rounds,active,context_sum,context_max,prompts,tokens,longest,cached\n"
)
STEPS = (
    STEPS_HEAD + "prefill,0,130,1,0,0,0,2,3,2,0\n"
    "decode,140,2440,2,2,9,5,0,0,0,0\n"
    "mixed,2440,3550,1,1,6,6,1,4,4,2\n"
)


@pytest.fixture
def steps(tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text(STEPS)
    return path


def test_a_run_is_summed_by_phase(steps):
    found = judge(COST, "steps.csv", read_steps(steps)).to_dict()
    assert found["file"] == "steps.csv"
    assert found["phases"]["prefill"] == {"measured_s": 130e-9, "predicted_s": 130e-9, "error": 0.0}
    assert found["phases"]["decode"]["predicted_s"] == 2200e-9
    assert found["phases"]["decode"]["error"] == pytest.approx(2200 / 2300 - 1)
    assert found["phases"]["mixed"]["predicted_s"] == 1090e-9
    assert found["measured_s"] == pytest.approx(3540e-9)
    assert found["error"] == pytest.approx(3420 / 3540 - 1)


def test_columns_that_a_phase_does_not_use_may_be_empty_or_left_out(tmp_path, steps):
    path = tmp_path / "short.csv"
    path.write_text("end_ns,phase,start_ns,prompts,tokens,longest\n130,prefill,0,2,3,2\n")
    assert read_steps(path) == read_steps(steps)[:1]


@pytest.mark.parametrize(
    ("text", "row", "field"),
    [
        ("", None, None),
        (STEPS_HEAD.replace("tokens", "token"), 1, "token"),
        (STEPS_HEAD, None, None),
        (STEPS_HEAD + "prefil,0,130,1,0,0,0,2,3,2,0\n", 2, "phase"),
        (STEPS_HEAD + "prefill,0,0,1,0,0,0,2,3,2,0\n", 2, "end_ns"),
        (STEPS_HEAD + "prefill,0,130,1,0,0,0,2,3,x,0\n", 2, "longest"),
        (STEPS_HEAD + "prefill,0,130,1,0,0,0,2,9,2,0\n", 2, "tokens"),
        (STEPS_HEAD + "decode,0,130,0,2,9,5,0,0,0,0\n", 2, "rounds"),
        (STEPS_HEAD + "decode,0,130,,2,9,5,0,0,0,0\n", 2, "rounds"),
        (STEPS_HEAD + "decode,0,130\n", 2, None),
    ],
)
def test_wrong_steps_are_located(tmp_path, text, row, field):
    path = tmp_path / "steps.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_steps(path)
    assert (caught.value.row, caught.value.field) == (row, field)
    assert caught.value.file == str(path)


def test_the_choice_is_by_the_run_and_the_model_of_the_times_wins():
    found = calibrate(rows_of(TRUE, grid=0.6, noise=0.02))
    assert found.candidate().model == "linear"
    errors = found.candidate().errors["run"]
    assert all(abs(errors[phase]) < 0.02 for phase in ("prefill", "decode"))
    assert 0 < errors["score"] < 0.05


@pytest.mark.parametrize("seed", range(6))
def test_repeats_choose_alike(seed):
    assert calibrate(rows_of(TRUE, seed, grid=0.7, noise=0.1)).candidate().model == "linear"


def test_of_models_that_are_as_good_the_simplest_is_taken():
    def of(model, score):
        return Candidate(model, COST, {"run": {"score": score}})

    rows = np.array([], np.int64)

    def best(*candidates):
        return Calibration(candidates, rows, rows).candidate().model

    assert best(of("profiled", 0.050), of("linear", 0.052), of("affine", 0.06)) == "linear"
    assert best(of("profiled", 0.050), of("linear", 0.056), of("affine", 0.06)) == "profiled"
    assert best(of("linear", 0.0), of("affine", 0.00009)) == "affine"


def test_all_of_the_last_run_is_held_out():
    data = rows_of(TRUE)
    twice = replace(data, run=data.column("run") * (1 + np.arange(len(data)) % 2))
    _, held = interleaved(twice)
    assert set(np.flatnonzero(twice.column("run") == 2)) <= set(held.tolist())
    assert 0 < np.isin(np.flatnonzero(twice.column("run") == 1), held).mean() < 0.5


def test_files_of_older_versions_have_their_run_behind_the_mixed_steps():
    data = rows_of(TRUE)
    old = replace(data, run=None)
    run = with_runs(old).column("run")
    last = int(data.rows("mixed")[-1])
    assert run[: last + 1].sum() == 0
    assert run[last + 1 :].all()
    assert with_runs(data) is data
    alone = replace(rows_of(TRUE, mixed=False), run=None)
    assert with_runs(alone) is alone


DATA = Path(os.environ.get("ORSCHED_DATA", "none")) / "h100"


@pytest.mark.skipif(not DATA.is_dir(), reason="ORSCHED_DATA has no folder h100")
@pytest.mark.parametrize("name", ["d_gsm8k_200slots", "c_sharegpt_64slots"])
def test_the_runs_beside_a_calibration_of_an_h100_are_met_within_4_per_cent(name):
    best = calibrate(read_measurements(DATA / f"{name}_calibration.csv")).candidate()
    assert best.cost is not None
    runs = sorted(DATA.glob(f"{name}_*_steps.csv"))
    assert len(runs) >= 2
    for path in runs:
        assert abs(judge(best.cost, path.name, read_steps(path)).error) < 0.04, path.name


def test_steps_of_a_run_behind_cached_tokens_cost_what_they_attend_to():
    cost = in_order(RooflineCost, 0, 0, 10**6, 0, 10**6)
    alone = RunStep("prefill", 0, 1, prompts=1, tokens=100, longest=100)
    assert alone.predicted_ns(cost) == 100 + 5_050
    behind = alone._replace(cached=400)
    assert behind.predicted_ns(cost) == 100 + 5_050 + 40_000
    # Of several prompts only what they attend to in all says which is behind what.
    both = RunStep("prefill", 0, 1, prompts=2, tokens=104, longest=100, cached=400)
    assert both.predicted_ns(cost) == 104 + 5_050 + 10
    attended = 5_050 + 10 + 4 * 400
    assert both._replace(attended=attended).predicted_ns(cost) == pytest.approx(
        104 + attended, abs=104
    )
