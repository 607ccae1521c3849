"""A schedule that is followed is the same schedule again; after losses all are served still."""

from __future__ import annotations

import random

import pytest

import orsched
from orsched.common.errors import InfeasibleError, InputError, PolicyError
from orsched.runner import RunSettings, run
from orsched.runner.devices.device import VirtualDevice
from orsched.runner.loop.following import FollowSchedule, plan_of_rest
from orsched.runner.loop.live import execute_policy
from orsched.runner.loop.resume import merge, prompts_of_rest, residual
from orsched.simulator import simulate_policy
from tests.product.policies import POLICIES
from tests.random_instances import random_batching_instance
from tests.runner.loop.fake_device import VOCABULARY, FormulaDevice, reference
from tests.runner.loop.spec import build, merged
from tests.runner.loop.test_failover import faulty
from tests.runner.loop.test_stops import measured, stopping


def planned(spec, count, most=12):
    """Yield so many instances (if they can be found) and a policy's schedules for them."""
    for seed in range(4 * count):
        rng = random.Random(f"{spec} {seed}")
        instance = random_batching_instance(rng, most)
        try:
            policy = build(instance, spec, seed)
            schedule = simulate_policy(instance, policy).schedule
        except (InputError, PolicyError, InfeasibleError):
            continue
        yield rng, instance, schedule
        count -= 1
        if not count:
            return


@pytest.mark.parametrize("spec", POLICIES)
def test_following_a_schedule_gives_it_again(spec):
    served = 0
    for _, instance, schedule in planned(spec, 5):
        served += 1
        again = simulate_policy(instance, FollowSchedule(instance, schedule)).schedule
        assert again.work == schedule.work
        assert again.steps == schedule.steps
        devices = [VirtualDevice() for _ in instance.workers]
        done = execute_policy(instance, FollowSchedule(instance, schedule), devices)
        assert merged(done.schedule) == merged(schedule)
    assert served


@pytest.mark.parametrize("spec", POLICIES)
def test_after_losses_all_requests_finish_once(spec):
    losses = 0
    for rng, instance, schedule in planned(spec, 8):
        done = execute_policy(
            instance,
            FollowSchedule(instance, schedule),
            faulty(instance, rng, rng.choice((0.02, 0.1, 0.3))),
            vocabulary=VOCABULARY,
            most_losses=1000,
        )
        assert not done.stopped
        assert done.tokens == reference(instance)
        assert orsched.check(instance, done.schedule) == []
        losses += bool(done.events)
    assert losses


class Fast(VirtualDevice):
    """Takes no time: each step waits for its requests to arrive, not for its planned start."""

    def begin(self, chunks, active, rounds, planned_ns):
        super().begin(chunks, active, rounds, 0)


def test_a_step_waits_for_its_requests_on_a_device_that_is_faster_than_planned():
    served = 0
    for _, instance, schedule in planned("fcfs", 40):
        if instance.requests.arrival_ns.any():
            served += 1
            devices = [Fast() for _ in instance.workers]
            done = execute_policy(instance, FollowSchedule(instance, schedule), devices)
            assert orsched.check(instance, done.schedule, times="measured") == []
    assert served


def test_a_schedule_of_another_instance_is_refused():
    schedule = orsched.solve(orsched.load("pang-100x20"), "fcfs").schedule
    with pytest.raises(InputError, match="another instance"):
        FollowSchedule(orsched.load("gsm8k-llama65b"), schedule)


VIRTUAL = RunSettings("virtual")


def devices(instance, rng, share):
    """Return devices that are lost at random, or never."""
    return faulty(instance, rng, share) if share else [FormulaDevice() for _ in instance.workers]


def in_parts(rng, instance, plan, share):
    """Follow a plan with stops; return the trace, what was yielded, and how often it stopped."""
    tokens, rest, trace, stops = [[] for _ in range(len(instance))], None, None, 0
    while trace is None or trace.is_partial:
        problem, follows, prompts = instance, plan, None
        if trace is not None:
            rest, stops = residual(instance, trace), stops + 1
            follows = plan_of_rest(instance, plan, rest)
            problem = rest.instance
            assert orsched.check(problem, follows) == []
            prompts = prompts_of_rest(rest, trace, 0, VOCABULARY)
        done = execute_policy(
            problem,
            FollowSchedule(problem, follows),
            devices(problem, rng, share),
            vocabulary=VOCABULARY,
            observer=stopping(rng.randint(0, 12) if stops < 6 else 10**9),
            prompts=prompts,
            most_losses=1000,
        )
        rows = range(len(instance)) if rest is None else rest.rows.tolist()
        for row, found in zip(rows, done.tokens, strict=True):
            tokens[row] += found
        part = measured(done)
        trace = part if trace is None else merge(instance, trace, part)
        assert orsched.check(instance, trace, times="measured") == []
    return trace, tokens, stops


@pytest.mark.parametrize("spec", POLICIES)
def test_the_whole_is_one_valid_run(spec):
    stops = 0
    for rng, instance, plan in planned(spec, 8):
        try:
            _, tokens, count = in_parts(rng, instance, plan, rng.choice((0, 0.1)))
        except (InfeasibleError, InputError):
            continue  # what was yielded does not fit into memory once more
        assert tokens == reference(instance)
        stops += count
    assert stops


@pytest.fixture(scope="module", params=["decode", "prefill"])
def instance(request):
    return orsched.load("pang-100x20").replace(first_token=request.param)


@pytest.fixture(scope="module")
def plan(instance):
    return orsched.solve(instance, "hybrid", iterations=2).schedule


def stopped(instance, plan, after):
    """Return the trace of a run of a plan that Ctrl-C ends after so many steps."""
    devices = [FormulaDevice() for _ in instance.workers]
    policy = FollowSchedule(instance, plan)
    done = execute_policy(instance, policy, devices, observer=stopping(after))
    return measured(done)


@pytest.mark.parametrize("after", [0, 1, 7, 30, 45, 60])
def test_the_steps_that_are_left_are_those_of_the_plan(instance, plan, after):
    trace = stopped(instance, plan, after)
    rest = residual(instance, trace)
    left = plan_of_rest(instance, plan, rest)
    assert orsched.check(rest.instance, left) == []
    begun = rest.yielded > 0
    there, away = set(rest.rows[begun].tolist()), set(rest.rows[~begun].tolist())
    planned = [stage.keys() for stage in clients_by_stage(plan) if stage.keys() & away]
    back = set()
    for stage in clients_by_stage(left, rest.rows):
        assert there <= back or stage.keys() <= there - back or there <= back | stage.keys()
        back |= stage.keys() & there
        new = stage.keys() - there
        while new:  # whole stages of the plan, in their order
            assert planned[0] <= new
            new -= planned.pop(0)
    assert not planned
    whole = merge(instance, trace, execute(rest, left, trace))
    assert orsched.check(instance, whole, times="measured") == []
    # one more stage, and no more than the rounds of those who were there
    assert whole.makespan_ns - plan.makespan_ns < 0.03 * plan.makespan_ns


def clients_by_stage(schedule, rows=None):
    """Return request -> client of each prefill, in order."""
    work, stages = schedule.work, {}
    for request, client, phase, step in zip(
        work.request.tolist(), work.client.tolist(), work.phase.tolist(),
        work.first_step.tolist(), strict=True,
    ):  # fmt: skip
        if phase == 0:
            row = request if rows is None else int(rows[request])
            stages.setdefault(step, {})[row] = client
    return [stages[step] for step in sorted(stages)]


def execute(rest, left, trace):
    """Return the trace of a rest that is run to its end."""
    policy = FollowSchedule(rest.instance, left)
    devices = [FormulaDevice() for _ in rest.instance.workers]
    return execute_policy(rest.instance, policy, devices).schedule


def test_a_run_that_has_lost_its_worker_goes_on_in_the_order_of_the_plan(instance, plan):
    lost = FormulaDevice(lambda number: "end" if number == 9 else None)
    policy = FollowSchedule(instance, plan)
    done = execute_policy(instance, policy, lost, observer=stopping(30))
    rest = residual(instance, measured(done))
    assert done.events[0]["what"] == "lost"
    assert orsched.check(rest.instance, plan_of_rest(instance, plan, rest)) == []


def test_a_schedule_is_resumed_twice_and_the_trace_names_its_plan(instance, plan, monkeypatch):
    monkeypatch.setattr("orsched.runner.execution._observer", lambda say, planned: stopping(20))
    once = run(instance, plan, VIRTUAL)
    assert once.trace.run["plan"]["followed"]
    twice = run(instance, plan, VIRTUAL, resume=once.trace)
    monkeypatch.undo()
    assert twice.trace.is_partial
    assert twice.trace.run["plan"] == once.trace.run["plan"]
    whole = run(instance, plan, VIRTUAL, resume=twice.trace)
    assert (once.violations, twice.violations, whole.violations) == ([], [], [])
    assert not whole.trace.is_partial
    assert whole.trace.method == plan.method
    assert whole.trace.seed == plan.seed
    events = [event["what"] for event in whole.trace.run["events"]]
    assert events == ["stopped", "resumed", "stopped", "resumed"]
    assert len(whole.trace.steps) > len(twice.trace.steps) > len(once.trace.steps)


def test_what_does_not_fit_is_refused(instance, plan, monkeypatch):
    monkeypatch.setattr("orsched.runner.execution._observer", lambda say, planned: stopping(20))
    followed, live = run(instance, plan, VIRTUAL), run(instance, "fcfs", VIRTUAL)
    monkeypatch.undo()
    other = orsched.solve(instance, "fcfs").schedule
    with pytest.raises(InputError, match="followed another schedule"):
        run(instance, other, VIRTUAL, resume=followed.trace)
    with pytest.raises(InputError, match="its policy decided live"):
        run(instance, other, VIRTUAL, resume=live.trace)
    old = followed.trace.replace(run={**followed.trace.run, "plan": {"followed": True}})
    with pytest.raises(InputError, match="followed another schedule"):
        run(instance, plan, VIRTUAL, resume=old)
    two = instance.replace(workers=[instance.worker, instance.worker])
    with pytest.raises(InputError, match="another instance"):
        run(two, plan, VIRTUAL, resume=followed.trace)
    elsewhere = orsched.solve(two, "fcfs").schedule
    with pytest.raises(InputError, match="another schedule"):
        run(instance, elsewhere, VIRTUAL, resume=followed.trace)
