"""The method ``rolling`` when plans take long: who waits for them, and for how long."""

from __future__ import annotations

import math
import threading
import time

import pytest

import orsched
from orsched.checker import check
from orsched.heuristics.dispatching import Dispatched, LeastWork
from orsched.heuristics.gated import GatedParams, GatedPolicy
from orsched.heuristics.rolling import background
from orsched.heuristics.rolling.background import Planner
from orsched.instances.gsm8k import gsm8k
from orsched.policy import Information
from orsched.result import Termination
from orsched.runner.devices.device import VirtualDevice
from orsched.runner.loop.live import execute_policy
from orsched.scenario import with_workers
from orsched.simulator import simulate_policy
from tests.heuristics.rolling.test_rolling import policy_of, small
from tests.runner.loop.fake_device import VOCABULARY
from tests.runner.loop.test_live_real_time import SleepingDevice

SOON = {"interval": 1.0, "planning_time": 0.5}
SPEC = "rolling+background=thread+interval=1+planning_time=0.5"


@pytest.fixture
def gate(monkeypatch):
    """No plan is made before this event."""
    event = threading.Event()

    def slow(left, iterations, seed, seconds):
        event.wait(30)
        return ()

    monkeypatch.setattr(background, "make_plan", slow)
    yield event
    event.set()


def taking(monkeypatch, seconds):
    """Let every plan take a while, and say that nothing is planned."""

    def slow(left, iterations, seed, limit):
        time.sleep(seconds)
        return ()

    monkeypatch.setattr(background, "make_plan", slow)


def test_who_is_told_not_to_wait_does_not(gate):
    """A plan that is late is skipped; the decision does not wait for it."""
    policy = policy_of(**SOON, wait=False)
    schedule = simulate_policy(small(), policy).schedule
    gate.set()
    policy.close()
    assert policy.waited_ns == policy.followed == 0
    assert policy.took_ns == []  # the run was over before the first plan
    assert policy.made >= 1
    assert check(small(), schedule) == []


def test_a_real_worker_does_not_wait(gate):
    instance = gsm8k(seed=0, requests=12, clients=4)
    policy = policy_of(**SOON)
    done = execute_policy(instance, policy, SleepingDevice(), vocabulary=VOCABULARY)
    gate.set()
    policy.close()
    assert policy.live
    assert policy.made >= 1
    assert policy.waited_ns == policy.followed == 0
    assert all(len(tokens) for tokens in done.tokens)


def test_where_nobody_waits_the_search_gets_most_of_the_time(monkeypatch):
    """It has a limit of its own, in seconds; where the run waits, attempts alone are limited."""
    asked, submit = [], Planner.submit

    def recording(self, snapshot, iterations, seed, seconds):
        asked.append(seconds)
        return submit(self, snapshot, iterations, seed, seconds)

    monkeypatch.setattr(Planner, "submit", recording)
    for wait, least, most in ((False, 0.3, 0.5), (True, math.inf, math.inf)):
        asked.clear()
        policy = policy_of(**SOON, wait=wait)
        simulate_policy(small(), policy)
        policy.close()
        assert len(asked) == policy.made >= 1
        assert all(least <= seconds <= most for seconds in asked)


@pytest.mark.parametrize("executor", ["simulator", "virtual"])
def test_where_time_is_virtual_it_waits(executor, monkeypatch):
    taking(monkeypatch, 0.02)
    policy = policy_of(**SOON)
    if executor == "simulator":
        simulate_policy(small(), policy)
    else:
        execute_policy(small(), policy, VirtualDevice())
    policy.close()
    assert not policy.live
    assert len(policy.took_ns) == policy.made >= 1
    assert policy.waited_ns >= 5 * 10**6  # less only by the rounds until the plan is due


def test_waits_are_no_time_of_decisions(monkeypatch):
    """Neither with one worker nor below a dispatcher."""
    taking(monkeypatch, 0.1)
    for workers in (1, 2):
        policies = []

        def make(policies=policies):
            policies.append(policy_of(**SOON))
            return policies[-1]

        policy = make() if workers == 1 else Dispatched(make, LeastWork())
        instance = with_workers(small(), workers)
        done = simulate_policy(instance, policy)
        for each in policies:
            each.close()
        assert policy.waited_ns == sum(each.waited_ns for each in policies) >= 5 * 10**7
        assert min(done.decision_ns) > 0
        assert max(done.decision_ns) < 5 * 10**7  # every wait is longer


def test_a_time_limit_ends_planning(gate):
    result = orsched.solve(small(), SPEC, time_limit=0.5)
    assert result.termination is Termination.TIME_LIMIT
    assert result.checked
    assert any("the time limit ended planning" in note for note in result.notes)
    alone = GatedPolicy(
        GatedParams("shared", "longest", gate="shadow_price"), Information.CLAIRVOYANT
    )
    assert result.makespan_ns == simulate_policy(small(), alone).schedule.makespan_ns


def test_late_plans_are_told(monkeypatch):
    taking(monkeypatch, 0.05)
    spec = "rolling+background=thread+interval=1+planning_time=0.01"
    result = orsched.solve(small(), spec, time_limit=60)
    assert result.termination is Termination.FINISHED
    assert any("took longer here than planning_time, 0.01 s" in note for note in result.notes)
    in_time = orsched.solve(small(), SPEC)
    assert in_time.notes == orsched.solve(small(), "fcfs").notes
