"""While a worker is away, one with nothing to do serves what waits for it."""

from __future__ import annotations

import numpy as np
import pytest

import orsched
from orsched.common.registry import resolve
from orsched.runner.loop.following import FollowSchedule
from orsched.runner.loop.live import execute_policy
from tests.runner.loop.fake_device import VOCABULARY, FormulaDevice, reference

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
