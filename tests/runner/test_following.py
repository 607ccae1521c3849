"""A schedule that is followed is the same schedule again."""

from __future__ import annotations

import random

import pytest

import orsched
from orsched.errors import InfeasibleError, InputError, PolicyError
from orsched.registry import resolve
from orsched.runner.device import VirtualDevice
from orsched.runner.following import FollowSchedule
from orsched.runner.live import execute_policy
from orsched.simulator import simulate_policy
from tests.product.policies import POLICIES
from tests.random_instances import random_batching_instance

SPECS = [
    spec
    for spec in POLICIES
    if hasattr(resolve("methods", spec.partition("@")[0]), "build") and "+steal" not in spec
]


def planned(spec, seed):
    rng = random.Random(f"{spec} {seed}")
    instance = random_batching_instance(rng, most=12)
    instance = instance.replace(workers=instance.workers[0])
    return instance, orsched.solve(instance, spec, seed=seed).schedule


@pytest.mark.parametrize("spec", SPECS)
def test_following_a_schedule_gives_it_again(spec):
    served = 0
    for seed in range(12):
        try:
            instance, schedule = planned(spec, seed)
        except (InputError, PolicyError, InfeasibleError):
            continue
        served += 1
        again = simulate_policy(instance, FollowSchedule(instance, schedule)).schedule
        assert again.work == schedule.work
        assert again.steps == schedule.steps
        done = execute_policy(instance, FollowSchedule(instance, schedule), VirtualDevice())
        assert done.schedule.work == schedule.work
    assert served >= 2


def test_a_schedule_of_another_instance_is_refused():
    schedule = orsched.solve(orsched.load("pang-100x20"), "fcfs").schedule
    with pytest.raises(InputError, match="another instance"):
        FollowSchedule(orsched.load("gsm8k-llama65b"), schedule)
