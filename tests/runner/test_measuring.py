"""Rehearsals: made-up requests, stages of many sizes, and what they say of the steps."""

from dataclasses import replace

import numpy as np
import pytest

from orsched import BilinearCost, Instance, Requests, RooflineCost, Step, Worker
from orsched.calibration.candidates import predicted_ns
from orsched.calibration.observed import averaged, observed, step_contents
from orsched.data.schedule import PREFILL
from orsched.runner.measuring import Rehearsal, made_up_requests
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
    assert len(speed.reference_ns) == 1 + 2 + 2
    assert speed.moved >= 0
    assert int(found.column("duration_ns").min()) > 0
    assert int(found.column("context_max").max()) <= 49
