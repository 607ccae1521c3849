"""A policy takes the same decisions on devices as in the simulator; the loop in real time."""

import _thread
import random
from collections import deque
from itertools import islice
from time import perf_counter_ns, sleep

import numpy as np
import pytest

import orsched
from orsched import AffineCost, Instance, Requests, Worker
from orsched.common.errors import PolicyError
from orsched.data.step import Wait, decode_rounds, prefill_stage
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.runner.devices.device import Times, VirtualDevice, WorkerLostError
from orsched.runner.loop import live_worker
from orsched.runner.loop.live import AT_ONCE, execute_policy
from orsched.simulator import simulate_policy
from tests.in_order import in_order
from tests.product.policies import METHODS, POLICIES, SHARING, is_dispatched
from tests.random_instances import random_batching_instance
from tests.refusals import refused
from tests.runner.loop.fake_device import FormulaDevice, played, reference
from tests.runner.loop.spec import UNSERVED, build, merged, served
from tests.seeds import in_turn

SHARED = [
    (spec, name) for spec in POLICIES for name in (SHARING if is_dispatched(spec) else ["as_it_is"])
]


class Losable(VirtualDevice):
    """Could be lost: so the loop does not look ahead."""

    def restart(self):
        """Be there again."""


def losable(instance, policy, observer=None):
    return execute_policy(instance, policy, [Losable() for _ in instance.workers], 0, 2, observer)


def virtual(instance, policy, observer=None):
    return execute_policy(instance, policy, VirtualDevice(), observer=observer)


def on_one_worker(instance):
    return instance.replace(workers=instance.workers[0])


def asked_of(instance, policy, execute):
    """Return what a policy saw and said, decision by decision, and what came of it."""
    seen = []

    def observe(view, step):
        seen.append((view.index, view.now_ns, view.rounds, tuple(view.running), step))

    return seen, execute(instance, policy, observer=observe)


def decides_alike(execute, instance, spec, seed, parameters=None):
    """A run has the decisions, the schedule and the times of the simulation."""
    policies = [build(instance, spec, seed, parameters) for _ in range(2)]
    planned, there = asked_of(instance, policies[0], simulate_policy)
    seen, here = asked_of(instance, policies[1], execute)
    assert seen == planned
    assert merged(here.schedule) == merged(there.schedule)
    steps = here.schedule.steps
    assert here.planned_ns.tolist() == (steps.end_ns - steps.start_ns).tolist()
    assert orsched.check(instance, here.schedule) == []
    assert not here.stopped
    assert not here.events


@pytest.mark.parametrize("name", METHODS)
def test_decisions_are_those_of_the_simulator(name):
    cases = list(served(name, name, 25, change=on_one_worker))
    assert len(cases) >= 8
    for seed, _, instance, _ in cases:
        decides_alike(virtual, instance, name, seed)


@pytest.mark.parametrize(("spec", "sharing"), in_turn(SHARED))
def test_decisions_on_several_are_those_of_the_simulator(monkeypatch, spec, sharing):
    monkeypatch.setattr(live_worker, "AT_ONCE", 10**9)
    cases = list(islice(served(f"{spec} {sharing}", spec, 40, SHARING[sharing]), 5))
    assert cases
    for seed, _, instance, _ in cases:
        decides_alike(losable, instance, spec, seed, SHARING[sharing])


@pytest.mark.parametrize("spec", POLICIES)
def test_rounds_in_pieces_pass_the_check(spec):
    for seed, _, instance, there in served(f"pieces {spec}", spec, 10):
        done = losable(instance, build(instance, spec, seed))
        assert orsched.check(instance, done.schedule) == []
        if len(instance.workers) == 1:  # pieces show policies more of other workers
            assert merged(done.schedule) == merged(there)
        assert done.schedule.steps.rounds.max(initial=1) <= AT_ONCE


class Uneven(VirtualDevice):
    """Takes twice as long as planned, and lets the host see that one step later."""

    def __init__(self):
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


@pytest.mark.parametrize("name", METHODS)
def test_runs_on_a_slow_device_pass_the_check_for_measured_times(name):
    count = 0
    for seed in range(15):
        instance = on_one_worker(random_batching_instance(random.Random(f"slow {name} {seed}")))
        try:
            done = execute_policy(instance, build(instance, name, seed), Uneven())
        except UNSERVED:
            continue
        count += 1
        assert orsched.check(instance, done.schedule, times="measured") == []
        steps = done.schedule.steps
        assert (steps.end_ns - steps.start_ns).tolist() == (2 * done.planned_ns).tolist()
    assert count >= 5


@pytest.fixture
def pang():
    return orsched.load("pang-100x20")


def test_few_rounds_are_begun_at_once_while_an_arrival_may_end_them(pang):
    arrivals = np.zeros(len(pang), np.int64)
    arrivals[-1] = 60 * 10**9
    late = pang.replace(requests=pang.requests.replace(arrival_ns=arrivals))
    device, free = Uneven(), Uneven()
    execute_policy(late, FirstComeFirstServed(), device)
    execute_policy(pang, FirstComeFirstServed(), free)
    assert device.largest >= AT_ONCE
    assert free.largest > AT_ONCE


def test_a_policy_that_waits_lets_the_device_sleep(pang):
    class Patient(FirstComeFirstServed):
        waited = False

        def decide(self, view):
            if not self.waited and view.now_ns < 10**9:
                self.waited = True
                return Wait(10**9)
            return super().decide(view)

    assert int(virtual(pang, Patient()).schedule.steps.start_ns[0]) == 10**9


def test_impossible_steps_are_refused_before_the_device_sees_them(pang):
    class Wrong(FirstComeFirstServed):
        def decide(self, view):
            return prefill_stage([0], [0]) if not view.running else prefill_stage([0], [1])

    class Counting(VirtualDevice):
        steps = 0

        def begin(self, *step):
            self.steps += 1
            super().begin(*step)

    device = Counting()
    refused("prefilled before", execute_policy, pang, Wrong(), device, kind=PolicyError)
    assert device.steps == 1
    assert decode_rounds(1).rounds == 1


def test_there_is_one_device_for_each_worker(pang):
    twice = pang.replace(workers=[pang.worker, pang.worker])
    refused("1 devices for 2 workers", virtual, twice, FirstComeFirstServed())


class SleepingDevice:
    """A formula that sleeps a fiftieth of the planned time; Ctrl-C comes twice where it hangs."""

    name, clock = "sleeping", "perf_counter"

    def __init__(self, lost=(), hangs=None):
        self.model = FormulaDevice()
        self.yielded, self.release = self.model.yielded, self.model.release
        self.lost, self.hangs = set(lost), hangs
        self.begun = deque()
        self.number = self.ready_ns = self.zero_ns = 0

    def start(self, zero_ns=None):
        self.zero_ns = perf_counter_ns() if zero_ns is None else zero_ns

    def now_ns(self):
        return perf_counter_ns() - self.zero_ns

    def sleep_until(self, moment_ns):
        sleep(max(0, moment_ns - self.now_ns()) / 1e9)

    def begin(self, chunks, active, rounds, planned_ns):
        self.number += 1
        self.model.begin(chunks, active, rounds, 0)
        start = self.now_ns()
        self.begun.append((start, start + planned_ns // 50, self.number))
        if self.number == self.hangs:
            _thread.interrupt_main()

    def done(self):
        return bool(self.begun) and (
            self.begun[0][2] != self.hangs and self.now_ns() >= self.begun[0][1]
        )

    def end(self):
        if self.begun[0][2] == self.hangs:
            _thread.interrupt_main()
        while not self.done():
            sleep(0.001)
        start, end, number = self.begun.popleft()
        if number in self.lost:
            self.model.is_lost, self.model.kept, self.model.caches = True, self.model.caches, {}
            self.model.ends.clear()
            self.model.begun.clear()
            raise WorkerLostError("died", "as it was asked to")
        self.model.end()
        return Times(start, end)

    def restart(self):
        self.model.restart()
        self.ready_ns = self.now_ns() + 20_000_000

    def ready(self):
        return self.now_ns() >= self.ready_ns

    def handles(self):
        return ()


def case(workers=2):
    rng = random.Random(2)
    cost = in_order(AffineCost, 10_000_000, 100_000, 12_000_000, 300_000)
    columns = [[rng.randint(1, most) for _ in range(40)] for most in (50, 25, 200_000_000, 25)]
    return Instance(in_order(Requests, *columns), (Worker(4, cost),) * workers, "decode")


@pytest.mark.parametrize("spec", ["fcfs@none", "gittins@predicted", "scls@none+interval_s=0.02"])
def test_devices_that_take_time(spec):
    instance = case()
    devices = [SleepingDevice(), SleepingDevice(lost={9, 40})]
    done = played(instance, build(instance, spec), devices)
    assert done.tokens == reference(instance)
    assert orsched.check(instance, done.schedule, times="measured") == []
    assert [event["what"] for event in done.events][:2] == ["lost", "restarted"]
    steps = done.schedule.steps
    assert set(steps.worker.tolist()) == {0, 1}
    assert done.events[1]["time_ns"] - done.events[0]["time_ns"] >= 20_000_000
    assert steps.start_ns[0] >= instance.requests.arrival_ns.min()


def test_one_device_that_may_be_lost_does_not_look_ahead():
    instance = case(1)
    done = played(instance, build(instance, "vllm@none"), SleepingDevice(lost={5}))
    assert done.tokens == reference(instance)
    assert orsched.check(instance, done.schedule, times="measured") == []


def test_a_second_ctrl_c_leaves_the_step_that_hangs():
    instance = case()
    devices = [SleepingDevice(), SleepingDevice(hangs=12)]
    done = played(instance, build(instance, "fcfs@none"), devices)
    assert done.stopped == "interrupted"
    assert (done.schedule.steps.worker == 1).sum() == 11
    assert orsched.check(instance, done.schedule, times="measured") == []
