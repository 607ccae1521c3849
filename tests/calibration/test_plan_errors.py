"""Plan against run: the sums are exact, and a wrong term is found."""

import json

import numpy as np
import pytest

import orsched
from orsched.calibration.runs import matches, modelled_ns, stages_of
from orsched.costs import AffineCost, LevelsCost
from orsched.metrics.timeline import Timeline
from orsched.runner import FollowSchedule, VirtualDevice, execute_policy, plan_against_run
from orsched.runner.devices.device import Times
from orsched.simulator import simulate_policy
from tests.in_order import in_order
from tests.product.policies import METHODS
from tests.refusals import refused
from tests.runner.loop.spec import build, served

PANG = ((25_000_000, 130_000), (29_000_000, 210_000))
"""The plan's coefficients, of prefills and of rounds."""


class Other(VirtualDevice):
    """Takes the times of other coefficients than the plan's, and a gap before each step."""

    clock = "other"

    def __init__(self, gap=0, prefill=(0, 0), rounds=(0, 0), context=0):
        super().__init__()
        self.gap, self.prefill, self.rounds, self.context = gap, prefill, rounds, context
        self.cached = {}

    def begin(self, chunks, active, rounds, planned_ns):
        sizes = [len(chunk.tokens) + (chunk.feeds is not None) for chunk in chunks]
        tokens = sum(sizes)
        for chunk, size in zip(chunks, sizes, strict=True):
            self.cached[chunk.slot] = chunk.start + size
        duration = 0
        if chunks:
            duration += self.prefill[0] + self.prefill[1] * tokens
        for _ in range(rounds if active else 0):
            duration += self.rounds[0] + self.rounds[1] * len(active)
            for slot in active:
                self.cached[slot] += 1
                duration += self.context * self.cached[slot]
        start = self.free_ns + self.gap
        self.free_ns = start + duration
        self.ends.append(Times(start, self.free_ns))


def traced(instance, schedule):
    return schedule.replace(run={"device": "other", "clock": "other"})


@pytest.fixture(scope="module")
def planned():
    return simulated(orsched.load("pang-100x20"))


def simulated(instance, name="fcfs"):
    return instance, simulate_policy(instance, build(instance, name)).schedule


def follow(instance, plan, device):
    return traced(instance, execute_policy(instance, FollowSchedule(instance, plan), device)[0])


@pytest.mark.parametrize("name", METHODS)
def test_the_model_says_of_each_step_what_the_simulator_took(name):
    cases = list(served(f"stages {name}", name, 30))
    assert len(cases) >= 5
    for _, _, instance, schedule in cases:
        line = Timeline(instance, schedule)
        assert modelled_ns(instance, line).tolist() == (line.end_ns - line.start_ns).tolist()
        stages = stages_of(instance, schedule)
        assert int(stages.rounds.sum()) == int(line.rounds_before[-1])
        assert int((stages.took_ns - stages.gap_ns).sum()) == int(line.time_before[-1])
        found = plan_against_run(instance, schedule, traced(instance, schedule))
        assert found.followed == len(stages.worker)
        assert not any(found.parts.values())


def test_a_run_at_the_planned_times_has_no_error(planned):
    instance, plan = planned
    found = plan_against_run(instance, plan, follow(instance, plan, VirtualDevice()))
    assert (found.makespan_error, found.followed) == (0, len(found.stages.worker))
    assert all(row.error == row.worst == 0 for row in found.phases if row.stages)
    assert all(term.error_ns == 0 for term in found.terms)
    assert abs(found.refit_error) < 1e-3


@pytest.mark.parametrize(("device", "phase", "term"), [
    (Other(0, (40_000_000, 130_000), PANG[1]), "prefill", "constant"),
    (Other(0, (25_000_000, 400_000), PANG[1]), "prefill", "tokens"),
    (Other(0, PANG[0], (35_000_000, 210_000)), "decode", "constant"),
    (Other(0, PANG[0], (29_000_000, 500_000)), "decode", "active"),
    (Other(0, *PANG, 900), "decode", "context"),
])  # fmt: skip
def test_the_term_that_was_wrong_is_found(planned, device, phase, term):
    instance, plan = planned
    found = plan_against_run(instance, plan, follow(instance, plan, device))
    worst = found.worst_term
    assert (worst.phase, worst.term) == (phase, term)
    error = found.run_makespan_ns - found.plan_makespan_ns
    assert worst.error_ns == pytest.approx(error, rel=1e-4)
    assert (sum(found.parts.values()), found.parts[phase]) == (error, error)
    for other in found.terms:
        if (other.phase, other.term) != (phase, term):
            assert abs(other.error_ns) <= 1e-4 * error


def test_the_refit_has_the_coefficients_of_the_device(planned):
    instance, plan = planned
    device = Other(0, (3_000_000, 20_000), (2_000_000, 30_000))
    found = plan_against_run(instance, plan, follow(instance, plan, device))
    truth = in_order(AffineCost, 3_000_000, 20_000, 2_000_000, 30_000)
    for name, value in truth.to_dict().items():
        assert found.refit.cost.to_dict()[name] == pytest.approx(value, rel=0.01)
    assert abs(found.refit_error) < 1e-3
    planned_ns = {t.term: t.planned_ns for t in found.terms if t.phase == "decode"}
    assert (planned_ns["active"], planned_ns["context"]) == pytest.approx((210_000, 0), abs=1e-3)


def test_gaps_count_to_the_stage_after_them(planned):
    instance, plan = planned
    trace = follow(instance, plan, Other(7_000, *PANG))
    found = plan_against_run(instance, plan, trace)
    gaps = 7_000 * (len(trace.steps) - 1)
    assert found.phases[-1].gap_ns == gaps
    assert found.parts["prefill"] + found.parts["decode"] == gaps
    assert found.parts["waiting"] == 7_000  # before the first step
    assert sum(found.parts.values()) == found.run_makespan_ns - found.plan_makespan_ns


def test_other_decisions_are_told_from_other_times(planned):
    instance, plan = planned
    other = simulated(instance, "vllm")[1]
    found = plan_against_run(instance, plan, traced(instance, other))
    assert found.followed < len(found.stages.worker)
    assert found.parts["decode"] == found.parts["prefill"] == 0
    assert found.parts["decisions"] == other.makespan_ns - plan.makespan_ns


def test_runs_of_rounds_may_be_divided_otherwise(planned):
    instance = planned[0]
    arrivals = np.zeros(len(instance), np.int64)
    arrivals[-1] = 50 * 10**9
    late = instance.replace(requests=instance.requests.replace(arrival_ns=arrivals))
    schedule = simulated(late)[1]
    trace = execute_policy(late, build(late, "fcfs"), VirtualDevice())[0]
    assert len(trace.steps) > len(schedule.steps)
    here, there = stages_of(late, trace), stages_of(late, schedule)
    assert matches(there, here).tolist() == list(range(len(there.worker)))


def test_content_tells_who_decodes_when():
    instance, schedule = simulated(orsched.load("two-by-two"))
    work = schedule.work
    swapped = schedule.replace(
        work=orsched.Work(
            work.request[::-1].copy()[np.argsort(work.request[::-1], kind="stable")],
            work.client, work.phase, work.first_step, work.last_step, work.tokens + 1,
        )
    )  # fmt: skip
    own = stages_of(instance, schedule)
    assert (matches(own, stages_of(instance, swapped)) >= 0).sum() < len(own.worker)


def test_without_a_plan_the_cost_model_says_what_was_planned(planned):
    instance, plan = planned
    trace = follow(instance, plan, Other(0, (3_000_000, 20_000), (2_000_000, 30_000)))
    found = plan_against_run(instance, None, trace)
    assert (found.plan_makespan_ns, found.followed) == (plan.makespan_ns, 0)
    assert found.parts["decisions"] == 0
    assert found.phases == plan_against_run(instance, plan, trace).phases


def test_everything_is_json_and_each_stage_has_a_row(planned):
    instance, plan = planned
    found = plan_against_run(instance, plan, follow(instance, plan, Other(5, (1, 1), (1, 1))))
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["stages"] == len(found.stage_rows())
    rows = found.stage_rows()
    assert sum(row["took_ns"] for row in rows) == found.phases[-1].took_ns
    assert {row["phase"] for row in rows} == {"prefill", "decode"}


def test_models_that_a_run_does_not_determine_say_so(planned):
    instance, _ = planned
    cost = LevelsCost(levels=((100, 10**6), (10**6, 10**7)), round_fixed_ns=10**6)
    levels, plan = simulated(instance.replace(workers=orsched.Worker(20, cost)))
    found = plan_against_run(levels, plan, traced(levels, plan))
    assert found.refit.cost is not None
    one, plan = simulated(orsched.load("one-request"))
    alone = plan_against_run(one, plan, traced(one, plan))
    assert alone.refit.cost is None
    assert "determine" in alone.refit.reason
    assert alone.makespan_error == 0


def test_other_instances_are_refused(planned):
    refused("another instance", plan_against_run, orsched.load("two-by-two"), None, planned[1])
