"""While a worker is away, one with nothing to do serves what waits for it."""

import numpy as np
import pytest

import orsched
from orsched.runner.loop.following import FollowSchedule
from orsched.simulator.run_state import overridden
from tests.product.policies import METHODS, POLICIES, SHARING, is_dispatched
from tests.runner.loop.fake_device import FormulaDevice, lost_at, played, reference
from tests.runner.loop.spec import build, served

LONG_NS = 10**13
STEAL = {"dispatch": "round_robin", "steal": True}


@pytest.fixture
def instance():
    one = orsched.load("pang-100x20")
    return one.replace(workers=[orsched.Worker(5, one.worker.cost)] * 2)


def execute(instance, policy, **more):
    """Run a policy on two workers of which the second is lost in its ninth step, for long."""
    done = played(instance, policy, [FormulaDevice(), lost_at(9, LONG_NS)], **more)
    assert done.tokens == reference(instance)
    assert orsched.check(instance, done.schedule) == []
    return done


def last_place(instance, schedule):
    work, steps = schedule.work, schedule.steps
    ends = np.zeros(len(instance), np.int64)
    np.maximum.at(ends, work.request, steps.end_ns[work.last_step])
    worker = np.full(len(instance), -1)
    last = steps.end_ns[work.last_step] == ends[work.request]
    worker[work.request[last]] = steps.worker[work.last_step[last]]
    return worker, ends


@pytest.mark.parametrize("parameters", [{}, STEAL])
@pytest.mark.parametrize("name", ["vllm", "fcfs_batched"])
def test_all_is_served_elsewhere_by_policies_that_hear_of_evictions(instance, name, parameters):
    done = execute(instance, build(instance, f"{name}@none", 0, parameters))
    lost, *_ = done.events
    worker, ends = last_place(instance, done.schedule)
    assert lost["requests"]
    assert not worker[lost["requests"]].any()
    assert ends.max() < LONG_NS


def test_all_is_served_elsewhere_of_a_schedule(instance):
    plan = orsched.solve(instance, "fcfs").schedule
    done = execute(instance, FollowSchedule(instance, plan))
    worker, ends = last_place(instance, done.schedule)
    assert done.events[0]["requests"]
    assert not worker[done.events[0]["requests"]].any()
    assert ends.max() < LONG_NS
    homes, planned = last_place(instance, plan)
    assert ends[homes == 0].tolist() == planned[homes == 0].tolist()  # its own part comes first


@pytest.mark.parametrize("name", ["fcfs", "dynamic", "static"])
def test_what_has_not_started_is_served_elsewhere_under_the_others(instance, name):
    done = execute(instance, build(instance, f"{name}@none"))
    lost, back = done.events
    worker, ends = last_place(instance, done.schedule)
    were_there = np.zeros(len(instance), bool)
    were_there[lost["requests"]] = True
    assert were_there.any()
    assert worker[were_there].all()  # the policy does not know that they have left
    assert ends[were_there].min() > back["time_ns"] > LONG_NS
    waited = ~were_there & (ends > lost["time_ns"])
    assert waited.sum() > 30
    assert not worker[waited].any()
    assert ends[waited].max() < LONG_NS


def test_as_many_as_there_are_free_clients_and_none_where_nobody_dispatches(instance):
    steps = []
    watch = lambda view, step: steps.append((view.index, len(step.prefill)))  # noqa: E731
    execute(instance, build(instance, "fcfs@none"), observer=watch)
    taken = [count for worker, count in steps if not worker and count]
    assert max(taken[-4:-1]) == 5
    alone = instance.replace(workers=instance.workers[:1])
    assert not build(alone, "fcfs@none").take_over(None, [0])


def test_any_policy_is_asked_to_move_what_waits_for_a_lost_worker(instance):
    policy, asked = build(instance, "fcfs@none"), []
    policy.take_over = lambda view, away: bool(asked.append((view.index, list(away))))
    execute(instance, policy)
    assert asked
    assert {worker for worker, _ in asked} <= {0, 1}
    assert (0, [1]) in asked


def faulty(instance, rng, share):
    unit = 1 + instance.workers[0].cost.round_ns(1, 2, 2)
    left = [100]

    def fails(_):
        if not left[0] or rng.random() >= share:
            return None
        left[0] -= 1
        return rng.choice(("begin", "end", "end"))

    restarts = [rng.choice((0, 1, 30)) * unit for _ in instance.workers]
    return [FormulaDevice(fails, restart_ns) for restart_ns in restarts]


def finishes_of(policy):
    """Return the list to which a policy's hook will add who finishes; without one, none."""
    if "on_finish" not in overridden(policy):
        return None
    found, told = [], policy.on_finish
    policy.on_finish = lambda *what: (found.append(what[1]), told(*what))
    return found


def losses_of(spec, text, count, most, parameters=None):
    """Run instances with losses, check all that comes of it, and return how many losses were."""
    losses = 0
    cases = served(f"{text} {spec}", spec, count, parameters)
    for runs, (seed, rng, instance, _) in enumerate(cases):
        policy = build(instance, spec, seed, parameters)
        finishes = finishes_of(policy)
        devices = faulty(instance, rng, rng.choice((0.02, 0.1, 0.3)))
        done = played(instance, policy, devices, most_losses=1000)
        if done.stopped:  # a prompt with what it has yielded is too long for a whole prefill
            assert "can never be admitted" in done.stopped
            assert "prefill_first" in spec or "chunked_prefill=false" in spec
            assert orsched.check(instance, done.schedule, times="measured") == []
            continue
        assert done.tokens == reference(instance)
        assert orsched.check(instance, done.schedule) == []
        assert finishes is None or sorted(finishes) == list(range(len(instance)))
        losses += sum(event["what"] == "lost" for event in done.events)
        if runs == most:
            break
    return losses


@pytest.mark.parametrize("spec", POLICIES)
def test_every_request_finishes_once_with_its_tokens(spec):
    assert losses_of(spec, "faults", 30, 12)


SHARED = [(s, name) for s in METHODS for name in SHARING if is_dispatched(f"{s}@")]


@pytest.mark.parametrize(("name", "sharing"), SHARED)
def test_every_request_finishes_once_under_each_dispatcher(name, sharing):
    assert losses_of(name, sharing, 60, 6, SHARING[sharing])


@pytest.mark.full
@pytest.mark.parametrize("spec", POLICIES)
def test_every_request_finishes_once_in_many_runs(spec):
    assert losses_of(spec, "many faults", 600, 300)
