"""A policy takes the same decisions on a device as in the simulator, when times agree."""

from __future__ import annotations

import random

import numpy as np
import pytest

import orsched
from orsched.common.errors import InputError, PolicyError
from orsched.common.registry import names, resolve
from orsched.data.step import Wait, decode_rounds, prefill_stage
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.heuristics.policy_method import PolicyMethod
from orsched.runner.devices.device import Times, VirtualDevice
from orsched.runner.loop.live import AT_ONCE, execute_policy
from orsched.simulator import simulate_policy
from tests.random_instances import random_batching_instance

POLICIES = [name for name in names("methods") if isinstance(resolve("methods", name), PolicyMethod)]


def build(instance, name, seed):
    method = resolve("methods", name)
    return method.build(instance, method.information[0], {}, seed)[0]


def decisions(instance, policy, execute):
    """Return what a policy saw and said, decision by decision, and what came of it."""
    seen = []

    def observe(view, step):
        seen.append((view.now_ns, view.rounds, tuple(view.running), step))

    return seen, execute(instance, policy, observer=observe)


def merged(schedule):
    """Return who is served when, whatever rows the rounds are divided into."""
    steps, work = schedule.steps, schedule.work
    return {
        (request, client, phase, int(steps.start_ns[first]), int(steps.end_ns[last]), tokens, stay)
        for request, client, phase, first, last, tokens, stay in zip(
            *(
                column.tolist()
                for column in (
                    work.request,
                    work.client,
                    work.phase,
                    work.first_step,
                    work.last_step,
                    work.tokens,
                    work.stay,
                )
            ),
            strict=True,
        )
    }


@pytest.mark.parametrize("name", POLICIES)
def test_decisions_are_those_of_the_simulator(name):
    served = 0
    for seed in range(25):
        instance = random_batching_instance(random.Random(f"{name} {seed}"))
        instance = instance.replace(workers=instance.workers[0])
        try:
            planned, there = decisions(instance, build(instance, name, seed), simulate_policy)
        except (InputError, PolicyError):
            continue
        served += 1

        def execute(instance, policy, observer):
            return execute_policy(instance, policy, VirtualDevice(), observer=observer)

        seen, here = decisions(instance, build(instance, name, seed), execute)
        assert seen == planned
        assert merged(here.schedule) == merged(there.schedule)
        steps = here.schedule.steps
        assert here.planned_ns.tolist() == (steps.end_ns - steps.start_ns).tolist()
        assert orsched.check(instance, here.schedule) == []
    assert served >= 8


class Uneven(VirtualDevice):
    """Takes twice as long as planned, and lets the host see that one step later."""

    def __init__(self) -> None:
        super().__init__()
        self.host_ns = 0
        self.largest = 0

    def now_ns(self):
        return self.host_ns

    def sleep_until(self, moment_ns):
        self.host_ns = max(self.host_ns, moment_ns)

    def begin(self, chunks, active, rounds, planned_ns):
        self.largest = max(self.largest, rounds)
        start = max(self.free_ns, self.host_ns)
        self.free_ns = start + 2 * planned_ns
        self.ends.append(Times(start, self.free_ns))

    def end(self):
        times = super().end()
        self.host_ns = max(self.host_ns, times.end_ns)
        return times


@pytest.mark.parametrize("name", POLICIES)
def test_runs_on_a_slow_device_pass_the_check_for_measured_times(name):
    served = 0
    for seed in range(15):
        instance = random_batching_instance(random.Random(f"slow {name} {seed}"))
        instance = instance.replace(workers=instance.workers[0])
        try:
            done = execute_policy(instance, build(instance, name, seed), Uneven())
        except (InputError, PolicyError):
            continue
        served += 1
        assert orsched.check(instance, done.schedule, times="measured") == []
        steps = done.schedule.steps
        assert (steps.end_ns - steps.start_ns).tolist() == (2 * done.planned_ns).tolist()
    assert served >= 5


def test_few_rounds_are_begun_at_once_while_an_arrival_may_end_them():
    instance = orsched.load("pang-100x20")
    arrivals = np.zeros(len(instance), np.int64)
    arrivals[-1] = 60 * 10**9
    requests = instance.requests
    late = instance.replace(
        requests=type(requests)(requests.prompt_tokens, requests.output_tokens, arrival_ns=arrivals)
    )
    device, free = Uneven(), Uneven()
    execute_policy(late, FirstComeFirstServed(), device)
    execute_policy(instance, FirstComeFirstServed(), free)
    assert device.largest >= AT_ONCE
    assert free.largest > AT_ONCE


def test_a_policy_that_waits_lets_the_device_sleep():
    class Patient(FirstComeFirstServed):
        waited = False

        def decide(self, view):
            if not self.waited and view.now_ns < 10**9:
                self.waited = True
                return Wait(10**9)
            return super().decide(view)

    done = execute_policy(orsched.load("pang-100x20"), Patient(), VirtualDevice())
    assert int(done.schedule.steps.start_ns[0]) == 10**9


def test_impossible_steps_are_refused_before_the_device_sees_them():
    class Wrong(FirstComeFirstServed):
        def decide(self, view):
            return prefill_stage([0], [0]) if not view.running else prefill_stage([0], [1])

    class Counting(VirtualDevice):
        steps = 0

        def begin(self, *step):
            self.steps += 1
            super().begin(*step)

    device = Counting()
    with pytest.raises(PolicyError, match="prefilled before"):
        execute_policy(orsched.load("pang-100x20"), Wrong(), device)
    assert device.steps == 1
    assert decode_rounds(1).rounds == 1


def test_there_is_one_device_for_each_worker():
    instance = orsched.load("pang-100x20")
    twice = instance.replace(workers=[instance.worker, instance.worker])
    with pytest.raises(InputError, match="1 devices for 2 workers"):
        execute_policy(twice, FirstComeFirstServed(), VirtualDevice())
