"""Looks at a machine's speed, and the clocks of devices that the host times."""

import math
from collections import deque

import pytest

from orsched.runner.devices.clock import CPU_TIME, WALL, HostClock
from orsched.runner.devices.device import Times
from orsched.runner.speed import EVERY_NS, LEAST_NS, PARTS, ROUNDS, Reference, Speed
from tests.refusals import refused


class Paced(HostClock):
    """Takes ``pace_ns`` for each step, on a clock of its own that begins at 0."""

    name, slots, length = "paced", 4, 40

    def __init__(self, on_cpu=False):
        self.on_cpu, self.begun, self.steps, self.pace_ns = on_cpu, deque(), [], 1_000_000
        self.passed_ns = 0
        self.start()

    def now_ns(self):
        return self.passed_ns - self.zero_ns

    def start(self, zero_ns=None):
        self.zero_ns = self.passed_ns

    def begin(self, chunks, active, rounds, planned_ns):
        self.steps.append((tuple(chunk.slot for chunk in chunks), tuple(active), rounds))
        start = self.now_ns()
        self.passed_ns += self.pace_ns
        self.begun.append(Times(start, self.now_ns()))

    def end(self):
        return self.begun.popleft()

    def release(self, slot, prompt_tokens):
        self.steps.append(("released", slot))


def test_a_look_takes_its_time_and_keeps_the_mean():
    device = Paced()
    watch = Reference(device)
    watch.look()
    once = [((0,), (), 1), ((), (0,), ROUNDS), ("released", 0)]
    assert device.steps == once * (1 + math.ceil(LEAST_NS / 2_000_000))
    device.pace_ns = LEAST_NS
    watch.look()
    assert watch.times_ns == [2_000_000, 2 * LEAST_NS]
    assert watch.steady(100, 0) == 100  # between the two: their mean is the usual one
    watch.due_in_run()
    assert len(watch.times_ns) == 2  # other requests may be on the worker


def test_a_look_in_a_run_on_the_cpu_does_not_count_and_leaves_other_steps_alone():
    device = Paced(on_cpu=True)
    watch = Reference(device, slot=3)
    device.begin([], [0], 5, 0)
    before, others = device.now_ns(), list(device.begun)
    watch.due_in_run()
    watch.due_in_run()
    assert (device.now_ns(), list(device.begun)) == (before, others)
    assert (watch.times_ns, watch.run_ns) == ([], [2_000_000])
    assert device.steps[1:] == [((3,), (), 1), ((), (3,), ROUNDS), ("released", 3)]
    device.passed_ns += EVERY_NS
    watch.due_in_run()
    assert len(watch.run_ns) == 2
    device.pace_ns = 500_000
    watch.look()
    assert watch.speed() == Speed((1_000_000,), watch.name, 2_000_000)


def test_times_are_related_to_the_looks_around_them():
    watch = Reference(Paced(on_cpu=True))
    watch.times_ns = [100] * 8 + [300] * 8
    assert watch.steady(50, 2) == 100  # in the fast half: twice as long at the mean speed
    assert watch.steady(300, 13) == 200
    assert watch.steady(70, 7) == 70  # at the border as many of both
    speed = watch.speed()
    assert len(speed.reference_ns) == PARTS
    assert speed.usual_ns == 200
    watch = Reference(Paced())
    assert [watch.due() for _ in range(17)] == [0] * 16 + [1]


@pytest.mark.parametrize(("times", "moved", "told"), [
    ((100, 100), 0.0, False), ((100, 109, 104), 0.09, False), ((100, 140, 100), 0.4, True),
    ((300, 150), 1.0, True),
])  # fmt: skip
def test_a_machine_that_does_not_keep_its_speed_is_told(times, moved, told):
    speed = Speed(times, "a step", 50)
    assert speed.moved == pytest.approx(moved)
    found = speed.warnings()
    assert len(found) == told
    assert not told or f"moved by {100 * moved:.0f} %" in found[0]
    assert speed.to_dict()["moved"] == pytest.approx(moved)
    assert Speed.read({"speed": speed.to_dict()}) == speed
    assert speed.beside(Speed((7,), "a step", 100))["drift"] == 2


GOOD = {"reference_ns": [1], "reference": "x", "usual_ns": 1}


@pytest.mark.parametrize("speed", [
    None, "fast", [1], {}, GOOD | {"reference_ns": []}, GOOD | {"reference_ns": [0]},
    GOOD | {"reference_ns": 5}, GOOD | {"usual_ns": 0}, GOOD | {"usual_ns": 1.5},
    {"reference_ns": [1], "usual_ns": 1},
])  # fmt: skip
def test_reports_without_a_speed_are_refused(speed):
    refused("orsched calibrate", Speed.read, {"speed": speed})
    refused("orsched calibrate", Speed.read, {})
    assert Speed.read({"speed": GOOD}) == Speed((1,), "x", 1)


def test_another_reference_is_refused():
    refused("not possible here", Reference, Paced(), 0, Speed((5,), "a round", 5))


class Busy(HostClock):
    """A device whose steps are computed here."""

    on_cpu = True

    def begin(self, chunks, active, rounds, planned_ns):
        raise NotImplementedError


def test_cpu_time_passes_by_itself_and_waits_are_skipped():
    device = Busy()
    device.start()
    assert device.clock == CPU_TIME
    hour_ns = 3600 * 10**9
    device.sleep_until(hour_ns)
    assert hour_ns <= device.now_ns() < 2 * hour_ns
    before = device.now_ns()
    device.sleep_until(5)  # past: nothing is skipped
    assert before <= device.now_ns() < before + hour_ns
    device.start(0)  # a moment that others share: by the wall
    assert device.clock == WALL
    HostClock.sleep_until(device, device.now_ns() + 1)
