"""A schedule that is followed is the same schedule again; after losses all are served still."""

from functools import partial
from itertools import islice

import pytest

import orsched
from orsched.common.errors import InfeasibleError, InputError
from orsched.runner import RunSettings, run
from orsched.runner.devices.device import VirtualDevice
from orsched.runner.loop.following import FollowSchedule, plan_of_rest
from orsched.runner.loop.live import execute_policy
from orsched.runner.loop.resume import merge, residual
from orsched.simulator import simulate_policy
from tests.product.policies import POLICIES
from tests.refusals import refused
from tests.runner.loop.fake_device import lost_at, played, reference
from tests.runner.loop.spec import merged, served
from tests.runner.loop.test_failover import faulty
from tests.runner.loop.test_stops import in_parts, measured, resumed, stopping

VIRTUAL = RunSettings("virtual")


def planned(spec, count):
    """Yield so many instances (if they can be found) and a policy's schedules for them."""
    return (case[1:] for case in islice(served(spec, spec, 4 * count, most=12), count))


@pytest.mark.parametrize("spec", POLICIES)
def test_following_a_schedule_gives_it_again(spec):
    served = 0
    for _, instance, schedule in planned(spec, 5):
        served += 1
        again = simulate_policy(instance, FollowSchedule(instance, schedule)).schedule
        assert (again.work, again.steps) == (schedule.work, schedule.steps)
        devices = [VirtualDevice() for _ in instance.workers]
        done = execute_policy(instance, FollowSchedule(instance, schedule), devices)
        assert merged(done.schedule) == merged(schedule)
    assert served


@pytest.mark.parametrize("spec", POLICIES)
def test_after_losses_all_requests_finish_once(spec):
    losses = 0
    for rng, instance, schedule in planned(spec, 8):
        devices = faulty(instance, rng, rng.choice((0.02, 0.1, 0.3)))
        done = played(instance, FollowSchedule(instance, schedule), devices, most_losses=1000)
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


def rest_of_plan(instance, plan, problem, rest):
    """Return the policy that follows what is left of a plan."""
    left = plan if rest is None else plan_of_rest(instance, plan, rest)
    assert orsched.check(problem, left) == []
    return FollowSchedule(problem, left)


@pytest.mark.parametrize("spec", POLICIES)
def test_the_whole_is_one_valid_run(spec):
    stops = 0
    for rng, instance, plan in planned(spec, 8):
        follow = partial(rest_of_plan, instance, plan)
        lose = partial(faulty, rng=rng, share=rng.choice((0, 0.1)))
        try:
            trace, tokens = in_parts(instance, follow, lose, [rng.randint(0, 12) for _ in range(6)])
        except (InfeasibleError, InputError):
            continue  # what was yielded does not fit into memory once more
        assert tokens == reference(instance)
        assert not trace.is_partial
        stops += resumed(trace)
    assert stops


@pytest.fixture(scope="module", params=["decode", "prefill"])
def instance(request):
    return orsched.load("pang-100x20").replace(first_token=request.param)


@pytest.fixture(scope="module")
def plan(instance):
    return orsched.solve(instance, "hybrid", iterations=2).schedule


def stopped(instance, plan, after):
    """Return the trace of a run of a plan that Ctrl-C ends after so many steps."""
    return measured(played(instance, FollowSchedule(instance, plan), observer=stopping(after)))


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
    followed = played(rest.instance, FollowSchedule(rest.instance, left)).schedule
    whole = merge(instance, trace, followed)
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


def test_a_run_that_has_lost_its_worker_goes_on_in_the_order_of_the_plan(instance, plan):
    done = played(instance, FollowSchedule(instance, plan), lost_at(9), observer=stopping(30))
    rest = residual(instance, measured(done))
    assert done.events[0]["what"] == "lost"
    assert orsched.check(rest.instance, plan_of_rest(instance, plan, rest)) == []


def test_a_schedule_is_resumed_twice_and_the_trace_names_its_plan(instance, plan, monkeypatch):
    monkeypatch.setattr("orsched.runner.execution._observer", lambda *_: stopping(20))
    once = run(instance, plan, VIRTUAL)
    assert once.trace.run["plan"]["followed"]
    twice = run(instance, plan, VIRTUAL, resume=once.trace)
    monkeypatch.undo()
    assert twice.trace.is_partial
    assert twice.trace.run["plan"] == once.trace.run["plan"]
    whole = run(instance, plan, VIRTUAL, resume=twice.trace)
    assert (once.violations, twice.violations, whole.violations) == ([], [], [])
    assert not whole.trace.is_partial
    assert (whole.trace.method, whole.trace.seed) == (plan.method, plan.seed)
    events = [event["what"] for event in whole.trace.run["events"]]
    assert events == ["stopped", "resumed", "stopped", "resumed"]
    assert len(whole.trace.steps) > len(twice.trace.steps) > len(once.trace.steps)


def test_what_does_not_fit_is_refused(instance, plan, monkeypatch):
    monkeypatch.setattr("orsched.runner.execution._observer", lambda *_: stopping(20))
    followed, live = run(instance, plan, VIRTUAL), run(instance, "fcfs", VIRTUAL)
    monkeypatch.undo()
    other = orsched.solve(instance, "fcfs").schedule
    refused("followed another schedule", run, instance, other, VIRTUAL, resume=followed.trace)
    refused("its policy decided live", run, instance, other, VIRTUAL, resume=live.trace)
    old = followed.trace.replace(run={**followed.trace.run, "plan": {"followed": True}})
    refused("followed another schedule", run, instance, plan, VIRTUAL, resume=old)
    two = instance.replace(workers=[instance.worker, instance.worker])
    refused("another instance", run, two, plan, VIRTUAL, resume=followed.trace)
    elsewhere = orsched.solve(two, "fcfs").schedule
    refused("another instance", FollowSchedule, instance, elsewhere)
    refused("another schedule", run, instance, elsewhere, VIRTUAL, resume=followed.trace)
