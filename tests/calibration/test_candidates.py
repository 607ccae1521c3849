"""Fits of all cost models to one set of measurements, scored on points not fitted."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest

from orsched import load, solve
from orsched.calibration import candidates
from orsched.calibration.candidates import MODELS, anchored, calibrate, predicted_ns, select
from orsched.calibration.fit import fit
from orsched.calibration.measurements import Measurements
from orsched.calibration.observed import averaged, observed
from orsched.costs import AffineCost, BilinearCost, LevelsCost
from tests.refusals import refused

AFFINE = AffineCost()
BILINEAR = BilinearCost.from_ms((0.12, 1.7, 0.4, 31.5), (0.00061, 0.09, 0.0021, 29.3))


def measured(cost, noise=0.0, seed=0, mixed=False):
    """Steps over a grid, with the times of a cost model and some noise."""
    draw = random.Random(seed)
    rows = [("prefill", n, n * p, p, 0, 0) for n in (1, 2, 4, 8) for p in (8, 32, 128, 512)]
    rows += [("decode", n, 0, 0, n * c, c) for n in (1, 2, 4, 8, 16) for c in (8, 32, 128, 512)]
    if mixed:
        rows += [("mixed", n, p, p, n * 64, 64) for n in (1, 4, 15) for p in (8, 64, 512)]
    names = ("phase", "count", "tokens", "longest", "context_sum", "context_max")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    blank = Measurements(**columns, duration_ns=[1] * len(rows))
    exact = [predicted_ns(cost, blank, row) for row in range(len(blank))]
    times = [round(time * (1 + noise * draw.uniform(-1, 1))) for time in exact]
    return Measurements(**columns, duration_ns=times)


@pytest.mark.parametrize(("name", "cost"), [("affine", AFFINE), ("bilinear", BILINEAR)])
def test_the_model_that_made_the_times_is_found_and_has_no_error(name, cost):
    done = calibrate(measured(cost))
    best = done.candidate()
    assert best.errors["all"]["worst"] < 1e-6
    assert done.candidate(name).errors["all"]["mean"] <= 1e-6
    parameters, true = done.candidate(name).cost.to_dict(), cost.to_dict()
    for key, value in true.items():
        assert parameters[key] == pytest.approx(value, rel=1e-3, abs=1e6)
    assert [c.model for c in done.candidates] == list(MODELS)


def test_errors_are_those_of_points_that_were_not_fitted():
    data = measured(AFFINE, noise=0.1)
    done = calibrate(data)
    held = [row for row in done.held.tolist() if data.phase[row] != "mixed"]
    cost = done.candidate("affine").cost
    true = data.column("duration_ns")
    errors = [abs(predicted_ns(cost, data, row) - true[row]) / true[row] for row in held]
    found = done.candidate("affine").errors["all"]
    assert found["points"] == len(held)
    assert found["mean"] == pytest.approx(np.mean(errors))
    assert found["worst"] == max(errors)
    # other times at the points held out leave the fit as it was
    times = [3 * t if row in done.held else t for row, t in enumerate(true.tolist())]
    assert calibrate(replace(data, duration_ns=times)).candidate("affine").cost == cost


def test_what_is_handed_out_is_fitted_to_all_points():
    data = measured(AFFINE, noise=0.1)
    done = calibrate(data)
    whole = done.whole("affine")
    assert whole.cost == fit("affine", data, holdout=0).cost != done.candidate("affine").cost
    assert whole.errors == done.candidate("affine").errors
    assert done.report("affine")["constants"] == whole.constants
    assert whole.missed == ("", 0.0)  # there was no rehearsal


def test_the_best_is_one_that_meets_its_rehearsal_if_there_is_one():
    def candidate(model, score, prefill):
        run = {"rehearsed": ["prefill", "decode"], "prefill": prefill, "decode": 0.02}
        return candidates.Candidate(model, AFFINE, {"run": run | {"score": score}})

    off, near = candidate("linear", 0.05, -0.2), candidate("roofline", 0.09, 0.08)
    assert off.missed == ("prefill", -0.2)
    nothing = [np.array([], np.int64)] * 2
    assert candidates.Calibration((off, near), *nothing).candidate() is near
    assert candidates.Calibration((off,), *nothing).candidate() is off


def test_a_quarter_of_each_phase_is_held_out_and_never_the_extremes():
    data = measured(AFFINE, mixed=True)
    fitted, held = candidates.interleaved(data)
    assert sorted([*fitted.tolist(), *held.tolist()]) == list(range(len(data)))
    for phase in ("prefill", "decode", "mixed"):
        rows = set(data.rows(phase).tolist())
        share = len(rows & set(held.tolist())) / len(rows)
        assert 0.15 <= share <= 0.3
    for phase, size in (("prefill", "tokens"), ("decode", "context_sum")):
        kept = select(data, fitted)
        here, there = (each.column(size)[each.rows(phase)] for each in (kept, data))
        assert (here.min(), here.max()) == (there.min(), there.max())


def test_mixed_steps_are_for_those_that_know_them_and_all_are_scored_on_them():
    data = measured(AFFINE, mixed=True)
    done = calibrate(data)
    assert done.candidate("affine").errors["mixed"]["worst"] < 1e-6
    able = [c for c in done.candidates if c.cost is not None]
    assert {"affine", "levels", "bilinear", "profiled"} <= {c.model for c in able}
    assert all(c.errors["mixed"]["points"] == 2 for c in able)


def test_a_model_that_the_points_do_not_determine_is_named_and_the_others_stay():
    data = measured(AFFINE)
    none = [0] * len(data)
    done = calibrate(replace(data, context_sum=none, context_max=none))
    failed = {c.model: c.notes[0] for c in done.candidates if c.cost is None}
    assert "d1_fs" in failed["bilinear"]
    assert done.candidate("affine").cost is not None
    refused("do not determine", done.candidate, "bilinear")
    assert json.loads(json.dumps(done.report()))["others"]["bilinear"] == failed["bilinear"]


def test_levels_get_the_median_of_their_stages():
    cost = calibrate(measured(AFFINE)).candidate("levels").cost
    assert isinstance(cost, LevelsCost)
    assert cost.prefill_limit == 4096
    assert candidates.level_caps(measured(AFFINE)) == [32, 64, 128, 256, 512, 1024, 2048, 4096]


def test_too_few_points_and_unknown_models_are_refused():
    data = measured(AFFINE)
    refused("at least 5", calibrate, select(data, np.arange(4)))
    refused("no fit for 'cubic'", calibrate, data, ["cubic"])
    refused("no fit for 'cubic'", calibrate(data).candidate, "cubic")
    nothing = calibrate(replace(data, context_sum=None, context_max=None), ["bilinear"])
    refused("no cost model could be fitted", nothing.candidate)


def test_a_grid_is_anchored_to_a_run():
    fast = measured(AFFINE)
    rows = zip(fast.column("duration_ns").tolist(), fast.phase, strict=True)
    run = replace(fast, duration_ns=[t * (2 if phase == "prefill" else 3) for t, phase in rows])
    found, factors = anchored(fast, run)
    assert factors == pytest.approx({"prefill": 2, "decode": 3, "mixed": 3}, rel=1e-6)
    assert found.to_dict() == run.to_dict()
    assert anchored(run, run)[1] == pytest.approx({"prefill": 1, "decode": 1, "mixed": 1}, rel=1e-6)


def test_parts_are_joined_in_order():
    data = measured(AFFINE)
    both = candidates.joined(select(data, np.arange(7)), select(data, np.arange(7, len(data))))
    assert both.to_dict() == data.to_dict()


def test_the_steps_of_a_simulation_give_back_its_cost_model():
    instance = load("pang-100x20")
    steps = observed(instance, solve(instance, "online").schedule)
    assert fit("affine", steps.measurements()).cost == instance.workers[0].cost
    cost = calibrate(averaged(steps)).candidate("affine").cost
    assert (cost.round_fixed_ns, cost.round_client_ns) == (29_000_000, 210_000)
    assert cost.prefill_fixed_ns == pytest.approx(25e6, rel=0.003)
