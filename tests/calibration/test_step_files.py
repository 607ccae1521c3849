"""Measurements as CSV, wrong ones by their line; intervals of means by Student's t."""

import math
import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.calibration import step_files
from orsched.calibration.candidates import Calibration, Candidate, calibrate, interleaved, with_runs
from orsched.calibration.intervals import mean_interval, student_cdf, student_quantile
from orsched.calibration.measurements import Measurements
from orsched.calibration.step_files import RunStep, judge, read_measurements, read_steps
from orsched.costs import AffineCost, RooflineCost
from tests.costs.test_plain_models import TRUE, rows_of
from tests.in_order import in_order
from tests.refusals import refused

HEAD = "phase,count,duration_ns,tokens,longest,context_sum,context_max\n"


def test_what_is_written_is_read_back(tmp_path):
    found = Measurements(
        phase=["prefill", "decode", "mixed"], count=[2, 3, 4], duration_ns=[7, 8, 9],
        tokens=[30, 0, 5], longest=[20, 0, 5], context_sum=[0, 30, 44], context_max=[0, 12, 11],
        cached=[0, 0, 70],
    )  # fmt: skip
    path = tmp_path / "m.csv"
    step_files.write_measurements(found, path)
    assert path.read_text().splitlines()[0] + "\n" == HEAD.replace("\n", ",run,cached\n")
    assert read_measurements(path).to_dict() == found.to_dict()
    path.write_text("duration_ns,phase,count\n\n5,decode,2\n")  # in any order, some left out
    assert read_measurements(path).to_dict()["duration_ns"] == [5]


@pytest.mark.parametrize(("text", "row", "field"), [
    ("", None, None), ("phase,count\n", 1, "duration_ns"),
    ("phase,count,duration_ns,colour\n", 1, "colour"),
    ("phase,count,duration_ns,count\n", 1, "count"), (HEAD + "decode,2\n", 2, None),
    (HEAD + "decode,2,x,0,0,0,0\n", 2, "duration_ns"),
    (HEAD + "decode,2,-5,0,0,0,0\n", 2, "duration_ns"),
    (HEAD + "\ndecode,2,5,0,0,0,0\ndecode,0,5,0,0,0,0\n", 4, "count"),
    (HEAD + "rest,2,5,0,0,0,0\n", 2, "phase"), (HEAD + "prefill,2,5,0,0,0,0\n", 2, "longest"),
    (HEAD + 'decode,"2,5,0,0,0,0\n', 2, None),
])  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(tmp_path, text, row, field):
    where_it_is(read_measurements, tmp_path, text, row, field)


def where_it_is(read, folder, text, row, field):
    """What is wrong in a file is named with its line and its column."""
    path = folder / "some.csv"
    path.write_text(text)
    wrong = refused("", read, path)
    assert (wrong.file, wrong.row, wrong.field) == (str(path), row, field)


COST = in_order(AffineCost, 100, 10, 1000, 50)
STEPS = """phase,start_ns,end_ns,rounds,active,context_sum,context_max,prompts,tokens,longest,cached
prefill,0,130,1,0,0,0,2,3,2,0
decode,140,2440,2,2,9,5,0,0,0,0
mixed,2440,3550,1,1,6,6,1,4,4,2
"""
STEPS_HEAD = STEPS[: STEPS.index("\n") + 1]


@pytest.fixture
def steps(tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text(STEPS)
    return path


WRONG_STEPS = [
    ("prefil,0,130,1,0,0,0,2,3,2,0", "phase"), ("prefill,0,0,1,0,0,0,2,3,2,0", "end_ns"),
    ("prefill,0,130,1,0,0,0,2,3,x,0", "longest"), ("prefill,0,130,1,0,0,0,2,9,2,0", "tokens"),
    ("decode,0,130,0,2,9,5,0,0,0,0", "rounds"), ("decode,0,130,,2,9,5,0,0,0,0", "rounds"),
]  # fmt: skip


def test_a_run_is_summed_by_phase(steps):
    found = judge(COST, "steps.csv", read_steps(steps)).to_dict()
    assert found["file"] == "steps.csv"
    assert found["phases"]["prefill"] == {"measured_s": 130e-9, "predicted_s": 130e-9, "error": 0.0}
    assert found["phases"]["decode"]["predicted_s"] == 2200e-9
    assert found["phases"]["decode"]["error"] == pytest.approx(2200 / 2300 - 1)
    assert found["phases"]["mixed"]["predicted_s"] == 1090e-9
    assert (found["measured_s"], found["error"]) == pytest.approx((3540e-9, 3420 / 3540 - 1))
    short = steps.with_name("short.csv")  # without the columns that a phase does not use
    short.write_text("end_ns,phase,start_ns,prompts,tokens,longest\n130,prefill,0,2,3,2\n")
    assert read_steps(short) == read_steps(steps)[:1]


@pytest.mark.parametrize(("text", "row", "field"), [
    ("", None, None), (STEPS_HEAD.replace("tokens", "token"), 1, "token"),
    (STEPS_HEAD, None, None), (STEPS_HEAD + "decode,0,130\n", 2, None),
    *((STEPS_HEAD + row + "\n", 2, field) for row, field in WRONG_STEPS),
])  # fmt: skip
def test_wrong_steps_are_located(tmp_path, text, row, field):
    where_it_is(read_steps, tmp_path, text, row, field)


def test_the_choice_is_by_the_run_and_the_model_of_the_times_wins():
    found = calibrate(rows_of(TRUE, grid=0.6, noise=0.02))
    assert found.candidate().model == "linear"
    errors = found.candidate().errors["run"]
    assert all(abs(errors[phase]) < 0.02 for phase in ("prefill", "decode"))
    assert 0 < errors["score"] < 0.05
    for seed in range(6):
        assert calibrate(rows_of(TRUE, seed, grid=0.7, noise=0.1)).candidate().model == "linear"


def test_of_models_that_are_as_good_the_simplest_is_taken():
    def best(**scores):
        candidates = [Candidate(model, COST, {"run": {"score": x}}) for model, x in scores.items()]
        return Calibration(candidates, *[np.array([], np.int64)] * 2).candidate().model

    assert best(profiled=0.050, linear=0.052, affine=0.06) == "linear"
    assert best(profiled=0.050, linear=0.056, affine=0.06) == "profiled"
    assert best(linear=0.0, affine=0.00009) == "affine"


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
def test_phases_of_an_h100_are_met_within_5_per_cent_by_one_recipe():
    """All sets but b, whose stages the host slowed; and but one step, and one phase by 6.5 %."""
    beyond = {
        ("c_sharegpt_64slots_gittins", "prefill"): 0.16,
        ("d_gsm8k_200slots_vllm", "mixed"): 0.07,
    }
    judged = 0
    for path in sorted(DATA.glob("[acd]_*_calibration.csv")):
        best = calibrate(read_measurements(path)).whole()
        assert best.model == "roofline"
        for run in sorted(DATA.glob(path.name.replace("calibration.csv", "*_steps.csv"))):
            found = judge(best.cost, run.name, read_steps(run)).to_dict()
            name = run.name.removesuffix("_steps.csv")
            assert abs(found["error"]) < 0.03, name
            for phase, each in found["phases"].items():
                assert abs(each["error"]) < beyond.get((name, phase), 0.05), (name, phase)
                judged += 1
    assert judged == 22


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


# Quantiles of Student's t at 0.975, as printed in statistical tables.
PRINTED = {
    1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 11: 2.201, 19: 2.093,
    29: 2.045, 30: 2.042, 120: 1.980, 1000: 1.962,
}  # fmt: skip


def test_quantiles_are_those_of_printed_tables():
    for freedom, value in PRINTED.items():
        assert round(student_quantile(0.975, freedom), 3) == value
    assert student_quantile(0.975, 10**6) == pytest.approx(1.9599639845, abs=1e-5)
    assert student_quantile(0.75, 1) == pytest.approx(1)  # Cauchy: tan(pi / 4)
    assert student_quantile(0.9, 2) == pytest.approx(0.8 / math.sqrt(2 * 0.9 * 0.1))


@given(st.floats(0, 50), st.integers(1, 200))
def test_the_distribution_function_rises_and_has_its_quantiles(t, freedom):
    value = student_cdf(t, freedom)
    assert 0.5 <= value <= 1
    assert student_cdf(t + 1, freedom) >= value
    if 0.5 < value < 1 - 1e-9:
        assert student_quantile(value, freedom) == pytest.approx(t, rel=1e-5, abs=1e-6)


def test_intervals_hold_the_mean_as_often_as_they_say():
    draws = random.Random(0)
    held = 0
    for _ in range(2000):
        interval = mean_interval([draws.gauss(3, 2) for _ in range(5)])
        held += interval.low <= 3 <= interval.high
    assert 0.935 < held / 2000 < 0.965


def test_one_value_has_no_interval_and_none_no_mean():
    assert mean_interval([4.0]) == (1, 4.0, None, None)
    assert mean_interval([4.0, 4.0]) == (2, 4.0, 4.0, 4.0)
    refused("no values", mean_interval, [], kind=ValueError)
    for probability, freedom in ((0.4, 3), (1.0, 3), (0.9, 0)):
        refused("no quantile", student_quantile, probability, freedom, kind=ValueError)
