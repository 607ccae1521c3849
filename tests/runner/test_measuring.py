"""Rehearsals and profiles: made-up requests, stages of many sizes, and what is measured."""

from dataclasses import replace

import numpy as np
import pytest

from orsched import BilinearCost, Instance, Requests, RooflineCost, Step, Worker
from orsched.calibration.candidates import predicted_ns
from orsched.calibration.fit import fit
from orsched.calibration.observed import averaged, observed, step_contents
from orsched.data.schedule import PREFILL
from orsched.runner.measuring import Rehearsal, made_up_requests
from orsched.runner.profiling import SEVERAL, Point, grid, profile
from orsched.simulator import simulate_policy
from tests.in_order import in_order
from tests.refusals import refused
from tests.simulator.scripted import Script

COST = BilinearCost.from_ms((0.12, 1.7, 0.4, 31.5), (0.00061, 0.09, 0.0021, 29.3))


def rehearsal(seed=0, clients=16):
    requests = made_up_requests(60, 300, seed)
    instance = Instance(requests, (Worker(clients, COST, 1024),), first_token="prefill")
    return instance, simulate_policy(instance, Rehearsal(seed)).schedule


def test_requests_fit_a_slot_and_come_from_the_example():
    made = made_up_requests(500, 64, seed=1)
    assert int((made.prompt_tokens + made.output_tokens).max()) <= 64
    assert int(made.output_tokens.min()) == 1
    like = Requests([10, 50, 7], [20, 50, 3])
    drawn = made_up_requests(200, 64, 1, like)
    pairs = set(zip(drawn.prompt_tokens.tolist(), drawn.output_tokens.tolist(), strict=True))
    assert pairs == {(10, 20), (7, 3)}
    refused("no request fits", made_up_requests, 5, 8, 1, like)


def test_stages_are_of_many_sizes_and_steps_take_what_the_cost_model_says():
    instance, schedule = rehearsal()
    sizes = step_contents(instance, schedule).prompts[schedule.steps.phase == PREFILL]
    assert {1, 2, 4} <= set(sizes.tolist())
    found = observed(instance, schedule).measurements()
    assert len(found) == len(schedule.steps)
    true = found.column("duration_ns").tolist()
    for row, time in enumerate(true):
        # a run of rounds stands for its middle one, which is half a token off at most
        assert predicted_ns(COST, found, row) == pytest.approx(time, rel=1e-3)
    rounds = schedule.steps.rounds[schedule.steps.phase != PREFILL]
    decoded = (rounds * found.column("count")[found.rows("decode")]).sum()
    assert decoded == (instance.requests.output_tokens - 1).sum()


def test_later_chunks_of_a_prompt_say_what_is_cached_before_them():
    cost = in_order(RooflineCost, 10**12, 10**12, 10**9, 10**6, 10**6)
    instance = Instance(Requests([700], [3]), Worker(1, cost), first_token="prefill")
    steps = Step([0], [300]), Step([0], [300]), Step([0], [100])
    seen = observed(instance, simulate_policy(instance, Script(*steps)).schedule)
    found = seen.measurements()
    rows = found.rows("prefill")
    assert found.column("cached")[rows].tolist() == [0, 300, 600]
    for row in rows.tolist():
        assert predicted_ns(cost, found, row) == int(found.column("duration_ns")[row])
    assert averaged(seen).column("cached").max() == 600


def test_a_gap_counts_to_the_step_after_it():
    instance, schedule = rehearsal()
    steps = schedule.steps
    shift = 1000 * np.arange(len(steps))
    moved = replace(steps, start_ns=steps.start_ns + shift, end_ns=steps.end_ns + shift)
    late = schedule.replace(steps=moved)
    plain, wide = (observed(instance, late, gaps).measurements() for gaps in (False, True))
    assert plain.to_dict() == observed(instance, schedule).measurements().to_dict()
    more = wide.column("duration_ns") - plain.column("duration_ns")
    assert more[0] == 0
    assert (more[1:] >= 1000 // steps.rounds[1:]).all()
    assert (more[1:] <= 1000 // steps.rounds[1:] + 1).all()


@pytest.mark.parametrize("rows", [1, 4, 32])
def test_means_keep_the_time_and_the_count(rows):
    instance, schedule = rehearsal(clients=8)
    steps = observed(instance, schedule)
    found, each = averaged(steps, rows), steps.measurements()
    for phase in ("prefill", "decode"):
        here, there = found.rows(phase), each.rows(phase)
        assert set(found.column("count")[here]) == set(each.column("count")[there])
        assert len(here) <= rows + len(set(each.column("count")[there]))
    for row, time in enumerate(found.column("duration_ns").tolist()):
        if rows == 32:
            assert predicted_ns(COST, found, row) == pytest.approx(time, rel=0.05)


def test_a_rehearsal_runs_on_a_worker():
    torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    torch.set_num_threads(1)
    from orsched.runner.devices.device import TorchDevice
    from orsched.runner.measuring import measure_worker
    from tests.runner.torch_workers import torch_worker

    device = TorchDevice(torch_worker("tiny", slots=4, length=48))
    told = []
    found, speed = measure_worker(device, 64, repeats=1, requests=12, report=told.append)
    alone = measure_worker(device, 64, repeats=1, requests=0).steps
    assert len(found) > len(alone)
    parts = [said for said in told if said.startswith("a rehearsal")]
    assert parts == [f"a rehearsal with 12 requests, part {part} of 2" for part in (1, 2)]
    # at the begin, after two walks through the grid, and after the parts that follow each
    assert min(speed.reference_ns) > 0
    assert int(found.column("duration_ns").min()) > 0
    assert int(found.column("context_max").max()) <= 49


def test_the_grid_holds_the_extremes_and_fits_the_worker():
    points = grid(slots=20, length=300, most_tokens=2048)
    assert len(set(points)) == len(points)
    for point in points:
        assert 1 <= point.count <= 20
        assert point.length + point.context >= 1
        assert max(point.length, point.context) <= 300
        if point.phase == "prefill":
            assert point.count * point.length <= 2048
    assert {point.count for point in points if point.phase == "decode"} >= {1, 20}
    assert {point.phase for point in points} == {"prefill", "decode", "mixed"}
    assert {point.phase for point in grid(1, 40, 100)} == {"prefill", "decode"}


def test_small_stages_are_denser():
    points = grid(slots=20, length=3000, most_tokens=2048)
    single = {p.length for p in points if p.phase == "prefill" and p.count == 1}
    assert {8, 16, 32, 64, 128, 256, 512, 2048} <= single
    pairs = {p.length for p in points if p.phase == "prefill" and p.count == 2}
    assert {8, 32, 128, 512} <= pairs
    assert not {16, 64, 256} & pairs


@pytest.mark.parametrize(("length", "cap"), [(1, 2048), (4, 2048), (35, 2048), (64, 35)])
def test_what_is_too_short_for_a_grid_is_refused(length, cap):
    refused("too few sizes", grid, 4, length, cap)


SIZES = [(36, 36), (100, 64), (515, 2048), (4000, 2048), (4000, 36)]


@pytest.mark.parametrize("slots", [1, 2, 3, 200])
@pytest.mark.parametrize(("length", "cap"), SIZES)
def test_every_grid_has_points_to_hold_out(slots, length, cap):
    points = grid(slots, length, cap)
    for phase in ("prefill", "decode"):
        assert sum(point.phase == phase for point in points) >= 5


def torch_device(**settings):
    pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    from orsched.runner.devices.device import TorchDevice
    from tests.runner.torch_workers import torch_worker

    return TorchDevice(torch_worker("tiny", **settings))


def test_profiles_become_measurements_that_can_be_fitted():
    device = torch_device(slots=4, length=64)
    points = [point for point in grid(4, 64, 128) if point.phase != "mixed"]
    told, walks = [], []
    hear = {"report": lambda *of: told.append(of),
            "between": lambda walk: walks.append((walk, len(told)))}  # fmt: skip
    found = profile(device, points, repeats=2, **hear)
    assert told[-1] == (3 * len(points), 3 * len(points))
    assert walks == [(walk, walk * len(points)) for walk in (1, 2, 3)]
    assert len(found) == len(points)
    assert found.column("duration_ns").min() > 0
    assert fit("affine", found, holdout=0.2).report["phases"]["decode"]["held_out"] > 0
    passes = device.worker.forward_passes
    assert passes == 3 * sum(4 if p.phase == "decode" else 1 for p in points)
    cached = sorted(p.cached for p in points if p.cached)
    assert {(p.phase, p.count) for p in points if p.cached} == {("prefill", 1)}
    assert sorted(found.column("cached").tolist())[-len(cached) :] == cached
    refused("does not fit", profile, device, [Point("prefill", 5, 8, 0)])
    refused("does not fit", profile, device, [Point("prefill", 1, 8, 0, cached=57)])


def test_mixed_steps_of_a_grid_have_one_prompt_or_several():
    slots = SEVERAL + 2
    mixed = [point for point in grid(slots, 64, 128) if point.phase == "mixed"]
    assert {point.beside for point in mixed} == {1, SEVERAL}
    assert all(point.count + point.beside <= slots for point in mixed)
    points = [next(p for p in mixed if p.beside == beside) for beside in (1, SEVERAL)]
    found = profile(torch_device(slots=slots, length=64), points, repeats=1)
    for point in points:
        row = found.column("tokens").tolist().index(point.length * point.beside)
        assert found.prompts(row) == [point.length] * point.beside
        assert int(found.column("count")[row]) == point.count
