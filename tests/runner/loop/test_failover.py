"""While a worker is away, one with nothing to do serves what waits for it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orsched
from orsched.common.errors import InfeasibleError, InputError, PolicyError
from orsched.common.registry import resolve
from orsched.runner.loop.following import FollowSchedule
from orsched.runner.loop.live import execute_policy
from orsched.simulator import simulate_policy
from orsched.simulator.run_state import overridden
from tests.product.policies import METHODS, POLICIES, SHARING, is_dispatched
from tests.random_instances import random_batching_instance
from tests.runner.loop.fake_device import VOCABULARY, FormulaDevice, reference
from tests.runner.loop.spec import build

LONG_NS = 10**13
STEAL = {"dispatch": "round_robin", "steal": True}


@pytest.fixture
def instance():
    one = orsched.load("pang-100x20")
    return one.replace(workers=[orsched.Worker(5, one.worker.cost)] * 2)


def execute(instance, name, parameters=None):
    """Run a policy on two workers of which the second is lost in its ninth step, for long."""
    policy, _ = resolve("methods", name).build(instance, "none", parameters or {}, 0)
    lost = FormulaDevice(lambda number: "end" if number == 9 else None, LONG_NS)
    done = execute_policy(instance, policy, [FormulaDevice(), lost], vocabulary=VOCABULARY)
    assert done.tokens == reference(instance)
    assert orsched.check(instance, done.schedule) == []
    return done


def last_place(instance, schedule):
    """Return the worker and the end of each request's last step."""
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
    done = execute(instance, name, parameters)
    lost, *_ = done.events
    worker, ends = last_place(instance, done.schedule)
    assert lost["requests"]
    assert not worker[lost["requests"]].any()
    assert ends.max() < LONG_NS


def test_all_is_served_elsewhere_of_a_schedule(instance):
    plan = orsched.solve(instance, "fcfs").schedule
    lost = FormulaDevice(lambda number: "end" if number == 9 else None, LONG_NS)
    policy = FollowSchedule(instance, plan)
    done = execute_policy(instance, policy, [FormulaDevice(), lost], vocabulary=VOCABULARY)
    assert done.tokens == reference(instance)
    assert orsched.check(instance, done.schedule) == []
    worker, ends = last_place(instance, done.schedule)
    assert done.events[0]["requests"]
    assert not worker[done.events[0]["requests"]].any()
    assert ends.max() < LONG_NS
    homes, planned = last_place(instance, plan)
    assert ends[homes == 0].tolist() == planned[homes == 0].tolist()  # its own part comes first


@pytest.mark.parametrize("name", ["fcfs", "dynamic", "static"])
def test_what_has_not_started_is_served_elsewhere_under_the_others(instance, name):
    done = execute(instance, name)
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
    policy, _ = resolve("methods", "fcfs").build(instance, "none", {}, 0)
    lost = FormulaDevice(lambda number: "end" if number == 9 else None, LONG_NS)
    execute_policy(
        instance, policy, [FormulaDevice(), lost],
        observer=lambda view, step: steps.append((view.index, view.now_ns, len(step.prefill))),
    )  # fmt: skip
    taken = [count for worker, _, count in steps if not worker and count]
    assert max(taken[-4:-1]) == 5
    alone = instance.replace(workers=instance.workers[:1])
    policy, _ = resolve("methods", "fcfs").build(alone, "none", {}, 0)
    assert not policy.take_over(None, [0])


def test_any_policy_is_asked_to_move_what_waits_for_a_lost_worker(instance):
    policy, _ = resolve("methods", "fcfs").build(instance, "none", {}, 0)
    asked = []
    policy.take_over = lambda view, away: bool(asked.append((view.index, list(away))))
    lost = FormulaDevice(lambda number: "end" if number == 9 else None, LONG_NS)
    execute_policy(instance, policy, [FormulaDevice(), lost])
    assert asked
    assert {worker for worker, _ in asked} <= {0, 1}
    assert (0, [1]) in asked


def faulty(instance, rng, share):
    """Return devices that are lost at random, but not for ever."""
    unit = 1 + instance.workers[0].cost.round_ns(1, 2, 2)
    left = [100]

    def fails(_):
        if not left[0] or rng.random() >= share:
            return None
        left[0] -= 1
        return rng.choice(("begin", "end", "end"))

    restarts = [rng.choice((0, 1, 30)) * unit for _ in instance.workers]
    return [FormulaDevice(fails, restart_ns) for restart_ns in restarts]


def served(spec, text, count, parameters=None):
    """Yield instances that a policy can serve."""
    for seed in range(count):
        rng = random.Random(f"{text} {spec} {seed}")
        instance = random_batching_instance(rng)
        try:
            simulate_policy(instance, build(instance, spec, seed, own(instance, parameters)))
        except (InputError, PolicyError, InfeasibleError):
            continue
        yield seed, rng, instance


def own(instance, parameters):
    """Return the parameters of a dispatcher, where there is one."""
    return parameters if len(instance.workers) > 1 else None


def losses_of(spec, text, count, most, parameters=None):
    """Run instances with losses, check all that comes of it, and return how many losses were."""
    losses = 0
    for runs, (seed, rng, instance) in enumerate(served(spec, text, count, parameters)):
        done = execute_policy(
            instance,
            build(instance, spec, seed, own(instance, parameters)),
            faulty(instance, rng, rng.choice((0.02, 0.1, 0.3))),
            vocabulary=VOCABULARY,
            most_losses=1000,
        )
        if done.stopped:  # a prompt with what it has yielded is too long for a whole prefill
            assert "can never be admitted" in done.stopped
            assert "prefill_first" in spec or "chunked_prefill=false" in spec
            assert orsched.check(instance, done.schedule, times="measured") == []
            continue
        assert done.tokens == reference(instance)
        assert orsched.check(instance, done.schedule) == []
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


MOMENTS = st.dictionaries(st.integers(1, 40), st.sampled_from(("begin", "end")), max_size=12)


@given(st.sampled_from(POLICIES), st.integers(0, 999), st.lists(MOMENTS, min_size=4, max_size=4))
def test_every_request_finishes_once_whenever_workers_are_lost(spec, seed, moments):
    instance = random_batching_instance(random.Random(seed))
    try:
        simulate_policy(instance, build(instance, spec, seed))
    except (InputError, PolicyError, InfeasibleError):
        return
    finishes = []
    policy = build(instance, spec, seed)
    told = policy.on_finish
    policy.on_finish = lambda view, request, client: (
        finishes.append(request),
        told(view, request, client),
    )
    devices = [FormulaDevice(each.get) for each in moments[: len(instance.workers)]]
    done = execute_policy(instance, policy, devices, vocabulary=VOCABULARY, most_losses=100)
    if not done.stopped:
        assert done.tokens == reference(instance)
        assert orsched.check(instance, done.schedule) == []
        if "on_finish" in overridden(policy):
            assert sorted(finishes) == list(range(len(instance)))


@pytest.mark.full
@pytest.mark.parametrize("spec", POLICIES)
def test_every_request_finishes_once_in_many_runs(spec):
    assert losses_of(spec, "many faults", 600, 300)
