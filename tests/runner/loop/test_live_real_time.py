"""The loop in real time, on devices that take it without torch."""

import _thread
import random
from collections import deque
from time import perf_counter_ns, sleep

import pytest

import orsched
from orsched import AffineCost, Instance, Requests, Worker
from orsched.runner.devices.device import Times, WorkerLostError
from tests.in_order import in_order
from tests.runner.loop.fake_device import FormulaDevice, played, reference
from tests.runner.loop.spec import build


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
        assert moment_ns <= self.now_ns()

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
            self.model.is_lost, self.model.kept, self.model.slots = True, self.model.slots, {}
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
