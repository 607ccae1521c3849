"""A schedule that is followed is the same schedule again; after losses all are served still."""

from __future__ import annotations

import random

import pytest

import orsched
from orsched.common.errors import InfeasibleError, InputError, PolicyError
from orsched.runner.devices.device import VirtualDevice
from orsched.runner.loop.following import FollowSchedule
from orsched.runner.loop.live import execute_policy
from orsched.simulator import simulate_policy
from tests.product.policies import POLICIES
from tests.random_instances import random_batching_instance
from tests.runner.loop.fake_device import VOCABULARY, reference
from tests.runner.loop.spec import build, merged
from tests.runner.loop.test_faults_virtual import faulty


def planned(spec, count, most=12):
    """Yield so many instances (if they can be found) and a policy's schedules for them."""
    for seed in range(4 * count):
        rng = random.Random(f"{spec} {seed}")
        instance = random_batching_instance(rng, most)
        try:
            policy = build(instance, spec, seed)
            schedule = simulate_policy(instance, policy).schedule
        except (InputError, PolicyError, InfeasibleError):
            continue
        yield rng, instance, schedule
        count -= 1
        if not count:
            return


@pytest.mark.parametrize("spec", POLICIES)
def test_following_a_schedule_gives_it_again(spec):
    served = 0
    for _, instance, schedule in planned(spec, 5):
        served += 1
        again = simulate_policy(instance, FollowSchedule(instance, schedule)).schedule
        assert again.work == schedule.work
        assert again.steps == schedule.steps
        devices = [VirtualDevice() for _ in instance.workers]
        done = execute_policy(instance, FollowSchedule(instance, schedule), devices)
        assert merged(done.schedule) == merged(schedule)
    assert served


@pytest.mark.parametrize("spec", POLICIES)
def test_after_losses_all_requests_finish_once(spec):
    losses = 0
    for rng, instance, schedule in planned(spec, 8):
        done = execute_policy(
            instance,
            FollowSchedule(instance, schedule),
            faulty(instance, rng, rng.choice((0.02, 0.1, 0.3))),
            vocabulary=VOCABULARY,
            most_losses=1000,
        )
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


def test_a_schedule_of_another_instance_is_refused():
    schedule = orsched.solve(orsched.load("pang-100x20"), "fcfs").schedule
    with pytest.raises(InputError, match="another instance"):
        FollowSchedule(orsched.load("gsm8k-llama65b"), schedule)
