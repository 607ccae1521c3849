"""Several workers at a time: the asked_of are those of the simulator, when times agree."""

from __future__ import annotations

import random

import pytest

import orsched
from orsched.common.errors import InfeasibleError, InputError, PolicyError
from orsched.runner.devices.device import VirtualDevice
from orsched.runner.loop import live_worker
from orsched.runner.loop.live import execute_policy
from orsched.simulator import simulate_policy
from tests.product.policies import POLICIES, SHARING, is_dispatched
from tests.random_instances import random_batching_instance
from tests.runner.loop.spec import build, merged

SHARED = [
    (spec, name) for spec in POLICIES for name in (SHARING if is_dispatched(spec) else ["as_it_is"])
]


class Losable(VirtualDevice):
    """Could be lost: so the loop does not look ahead."""

    def restart(self):
        """Be there again."""


def asked_of(instance, policy, execute):
    """Return what a policy saw and said, decision by decision, and what came of it."""
    seen = []

    def observe(view, step):
        seen.append((view.index, view.now_ns, view.rounds, tuple(view.running), step))

    return seen, execute(instance, policy, observer=observe)


def execute(instance, policy, observer=None):
    return execute_policy(instance, policy, [Losable() for _ in instance.workers], 0, 2, observer)


def instances(text, count):
    for seed in range(count):
        rng = random.Random(f"{text} {seed}")
        yield seed, random_batching_instance(rng)


@pytest.mark.parametrize(("spec", "sharing"), SHARED)
def test_decisions_on_several_are_those_of_the_simulator(monkeypatch, spec, sharing):
    monkeypatch.setattr(live_worker, "AT_ONCE", 10**9)
    served = 0
    for seed, instance in instances(f"{spec} {sharing}", 40):
        parameters = SHARING[sharing] if len(instance.workers) > 1 else {}
        try:
            planned, there = asked_of(
                instance, build(instance, spec, seed, parameters), simulate_policy
            )
        except (InputError, PolicyError, InfeasibleError):
            continue
        served += 1
        seen, here = asked_of(instance, build(instance, spec, seed, parameters), execute)
        assert seen == planned
        assert merged(here.schedule) == merged(there.schedule)
        steps = here.schedule.steps
        assert here.planned_ns.tolist() == (steps.end_ns - steps.start_ns).tolist()
        assert orsched.check(instance, here.schedule) == []
        assert not here.stopped
        assert not here.events
        if served == 5:
            break
    assert served


@pytest.mark.parametrize("spec", POLICIES)
def test_rounds_in_pieces_pass_the_check(spec):
    for seed, instance in instances(f"pieces {spec}", 10):
        try:
            there = simulate_policy(instance, build(instance, spec, seed)).schedule
        except (InputError, PolicyError, InfeasibleError):
            continue
        done = execute(instance, build(instance, spec, seed))
        assert orsched.check(instance, done.schedule) == []
        if len(instance.workers) == 1:  # pieces show policies more of other workers
            assert merged(done.schedule) == merged(there)
        assert done.schedule.steps.rounds.max(initial=1) <= live_worker.AT_ONCE
