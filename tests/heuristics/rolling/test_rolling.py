"""The method ``rolling``: validity, information, reproducibility, and its background."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import orsched
from orsched.checker import check
from orsched.errors import InputError, OrschedError
from orsched.heuristics.dispatching import Dispatched, LeastWork
from orsched.heuristics.rolling.background import Planner, plan_snapshot
from orsched.heuristics.rolling.params import RollingParams
from orsched.heuristics.rolling.policy import RollingPolicy
from orsched.heuristics.rolling.snapshot import Running, Snapshot
from orsched.instances import with_arrivals
from orsched.instances.gsm8k import gsm8k
from orsched.metrics import summarise
from orsched.policy import Information
from orsched.scenario import with_workers
from orsched.simulator import simulate_policy
from tests.oracle import oracle
from tests.simulator.instances import instances

SHORT = {"interval": 1e-9, "planning_time": 1e-9, "iterations": 1, "background": "thread"}
SNAPSHOT = Snapshot(
    0, 0, Running({}), 2, 2, [7, 8], [], {7: 4, 8: 4}, {7: 1, 8: 1}, 50, 0, 10, 4, None, 99
)


def policy_of(information="clairvoyant", **changes):
    params = RollingParams(**{**SHORT, "tolerance": 100, **changes})
    return RollingPolicy(params, Information(information))


def with_predictions(instance):
    truth = instance.requests.output_tokens
    guess = np.where(np.arange(len(truth)) % 3, truth, truth // 2 + 1)
    return instance.replace(requests=instance.requests.replace(predicted_tokens=guess))


def run(instance, *arguments, **changes):
    policy = policy_of(*arguments, **changes)
    try:
        return simulate_policy(instance, policy).schedule
    finally:
        policy.close()


@pytest.mark.parametrize("information", ["predicted", "clairvoyant"])
@settings(max_examples=12, deadline=None)
@given(instance=instances(most=8))
def test_schedules_are_valid_and_reproducible(information, instance):
    """INV-1 to INV-7, INV-9, INV-13: checker, second run and oracle agree."""
    instance = with_predictions(instance)
    schedule = run(instance, information)
    assert check(instance, schedule.replace(results=summarise(instance, schedule))) == []
    policy = policy_of(information)
    expected = oracle(instance, policy)
    policy.close()
    for other in (run(instance, information), expected):
        assert (schedule.steps, schedule.work) == (other.steps, other.work)


@settings(max_examples=12, deadline=None)
@given(instance=instances(most=8))
def test_the_future_does_not_matter(instance):
    """INV-8: longer outputs of what has not ended change nothing before the first end."""
    instance = with_predictions(instance)
    req = instance.requests
    output = np.minimum(req.output_tokens + 3, instance.output_limit_tokens)
    longer = instance.replace(requests=req.replace(output_tokens=output))
    if not len(instance):
        return
    ours, theirs = run(instance, "predicted"), run(longer, "predicted")
    border = int(ours.request_times(instance)["finish_ns"].min())
    mine, other = (
        [
            row
            for row in zip(
                s.work.request.tolist(),
                s.work.client.tolist(),
                s.steps.start_ns[s.work.first_step].tolist(),
                strict=True,
            )
            if row[2] < border
        ]
        for s in (ours, theirs)
    )
    assert mine == other


def small(seed=0):
    return gsm8k(seed=seed, requests=40, clients=8)


def test_plans_are_followed_and_make_it_shorter():
    instance = small()
    policy = policy_of(interval=5.0, planning_time=1.0, iterations=4)
    schedule = simulate_policy(instance, policy).schedule
    policy.close()
    gate = orsched.solve(instance, "online+assignment=shared+gate=shadow_price")
    assert policy.followed >= 2
    assert schedule.makespan_ns < gate.makespan_ns
    assert schedule.makespan_ns >= orsched.bound(instance).value_ns
    assert check(instance, schedule) == []


def test_wrong_predictions_are_not_planned_with():
    """The mean error of those that have ended decides."""
    instance = small()
    wrong = instance.requests.output_tokens // 2 + 1
    instance = instance.replace(requests=instance.requests.replace(predicted_tokens=wrong))
    policy = policy_of("predicted", tolerance=0.1)
    simulate_policy(instance, policy)
    policy.close()
    assert policy.made == policy.followed == 0


def test_arrivals_over_time_and_several_workers():
    instance = with_arrivals(with_workers(small(), 2), "poisson:rate=4", seed=1)
    made = []

    def make():
        made.append(policy_of(interval=3.0, planning_time=0.5))
        return made[-1]

    policy = Dispatched(make, LeastWork())
    schedule = simulate_policy(instance, policy).schedule
    for each in made:
        each.close()
    assert check(instance, schedule) == []
    assert set(schedule.steps.worker.tolist()) == {0, 1}


def test_a_process_makes_the_same_plans():
    instance = small()
    values = {"interval": 10.0, "planning_time": 2.0, "iterations": 2}
    method = "rolling+" + "+".join(f"{name}={value}" for name, value in values.items())
    before = set(threading.enumerate())
    result = orsched.solve(instance, method)
    assert set(threading.enumerate()) <= before
    assert result.information == "clairvoyant"
    schedule = run(instance, **values)
    assert result.schedule.work == schedule.work


def test_the_process_ends_when_it_is_closed_even_while_it_plans():
    planner = Planner("process")
    process = planner._child.process
    future = planner.submit(SNAPSHOT, 2, 0)
    assert future.result(60) == plan_snapshot(SNAPSHOT, 2, 0)
    busy = planner.submit(SNAPSHOT, 10**9, 0)
    planner.close()
    planner.close()
    assert process.returncode is not None
    # It is never left open: cancelled, failed, or made before the process ended.
    made = not busy.cancelled() and busy.exception(10) is None
    assert not made or busy.result(0) == plan_snapshot(SNAPSHOT, 2, 0)


PARENT = """
import os, signal, time
from orsched.heuristics.rolling.background import Planner
from tests.heuristics.rolling.test_rolling import policy_of, run, small

submit = Planner.submit

def submitted(planner, snapshot, iterations, seed, seconds):
    submit(planner, snapshot, 1, seed, seconds).result(60)
    submit(planner, snapshot, 10**9, seed)
    time.sleep(0.2)
    print(planner._child.process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

Planner.submit = submitted
run(small(), interval=10.0, planning_time=2.0, background="process")
"""


def test_the_process_ends_with_its_parent_even_while_it_plans(repo_root):
    done = subprocess.run(
        [sys.executable, "-c", PARENT], cwd=repo_root, stdout=subprocess.PIPE, check=False
    )
    assert done.returncode == -signal.SIGKILL
    planner = int(done.stdout)
    try:
        assert any(time.sleep(0.05) or not Path(f"/proc/{planner}").exists() for _ in range(200))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(planner, signal.SIGKILL)


def test_a_process_that_dies_is_said():
    planner = Planner("process")
    planner._child.process.kill()
    future = planner.submit(SNAPSHOT, 1, 0)
    with pytest.raises(OrschedError, match="planning process ended"):
        future.result(10)
    planner.close()


def test_an_error_in_the_run_closes_the_background(monkeypatch):
    seen = []

    def broken(self, view):
        seen.append(self.planner)
        raise KeyboardInterrupt

    monkeypatch.setattr(RollingPolicy, "decide", broken)
    with pytest.raises(KeyboardInterrupt):
        orsched.solve(small(), "rolling")
    assert seen[0]._child.process.returncode is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [("horizon", 0), ("iterations", 1.5), ("interval", 0), ("interval", float("nan")),
     ("planning_time", "1"), ("background", "cloud"), ("wait", 1), ("tolerance", -1)],
)  # fmt: skip
def test_parameters_are_checked(name, value):
    with pytest.raises(InputError) as error:
        RollingParams(**{name: value})
    assert error.value.field == name


def test_it_needs_lengths():
    with pytest.raises(InputError, match="lengths"):
        policy_of("none")
