"""Workers that are lost: nothing is lost with them, and nothing happens twice."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import orsched
from orsched.common.errors import InfeasibleError, InputError, PolicyError
from orsched.runner.loop.live import execute_policy
from orsched.simulator import simulate_policy
from orsched.simulator.run_state import overridden
from tests.product.policies import METHODS, POLICIES, SHARING, is_dispatched
from tests.random_instances import random_batching_instance
from tests.runner.loop.fake_device import VOCABULARY, FormulaDevice, reference
from tests.runner.loop.spec import build


def faulty(instance, rng, share):
    """Return devices that are lost at random, but not for ever."""
    unit = 1 + instance.workers[0].cost.round_ns(1, 2, 2)
    left = [100]

    def fails(_):
        if not left[0] or rng.random() >= share:
            return None
        left[0] -= 1
        return rng.choice(("begin", "end", "end"))

    restarts = [rng.choice((0, 1, 30)) * unit for _ in instance.workers]
    return [FormulaDevice(fails, restart_ns) for restart_ns in restarts]


def served(spec, text, count, parameters=None):
    """Yield instances that a policy can serve."""
    for seed in range(count):
        rng = random.Random(f"{text} {spec} {seed}")
        instance = random_batching_instance(rng)
        try:
            simulate_policy(instance, build(instance, spec, seed, own(instance, parameters)))
        except (InputError, PolicyError, InfeasibleError):
            continue
        yield seed, rng, instance


def own(instance, parameters):
    """Return the parameters of a dispatcher, where there is one."""
    return parameters if len(instance.workers) > 1 else None


def losses_of(spec, text, count, most, parameters=None):
    """Run instances with losses, check all that comes of it, and return how many losses were."""
    losses = 0
    for runs, (seed, rng, instance) in enumerate(served(spec, text, count, parameters)):
        done = execute_policy(
            instance,
            build(instance, spec, seed, own(instance, parameters)),
            faulty(instance, rng, rng.choice((0.02, 0.1, 0.3))),
            vocabulary=VOCABULARY,
            most_losses=1000,
        )
        if done.stopped:  # a prompt with what it has yielded is too long for a whole prefill
            assert "can never be admitted" in done.stopped
            assert "prefill_first" in spec or "chunked_prefill=false" in spec
            assert orsched.check(instance, done.schedule, times="measured") == []
            continue
        assert done.tokens == reference(instance)
        assert orsched.check(instance, done.schedule) == []
        losses += sum(event["what"] == "lost" for event in done.events)
        if runs == most:
            break
    return losses


@pytest.mark.parametrize("spec", POLICIES)
def test_every_request_finishes_once_with_its_tokens(spec):
    assert losses_of(spec, "faults", 30, 12)


SHARED = [(s, name) for s in METHODS for name in SHARING if is_dispatched(f"{s}@")]


@pytest.mark.parametrize(("name", "sharing"), SHARED)
def test_every_request_finishes_once_under_each_dispatcher(name, sharing):
    assert losses_of(name, sharing, 60, 6, SHARING[sharing])


MOMENTS = st.dictionaries(st.integers(1, 40), st.sampled_from(("begin", "end")), max_size=12)


@given(st.sampled_from(POLICIES), st.integers(0, 999), st.lists(MOMENTS, min_size=4, max_size=4))
def test_every_request_finishes_once_whenever_workers_are_lost(spec, seed, moments):
    instance = random_batching_instance(random.Random(seed))
    try:
        simulate_policy(instance, build(instance, spec, seed))
    except (InputError, PolicyError, InfeasibleError):
        return
    finishes = []
    policy = build(instance, spec, seed)
    told = policy.on_finish
    policy.on_finish = lambda view, request, client: (
        finishes.append(request),
        told(view, request, client),
    )
    devices = [FormulaDevice(each.get) for each in moments[: len(instance.workers)]]
    done = execute_policy(instance, policy, devices, vocabulary=VOCABULARY, most_losses=100)
    if not done.stopped:
        assert done.tokens == reference(instance)
        assert orsched.check(instance, done.schedule) == []
        if "on_finish" in overridden(policy):
            assert sorted(finishes) == list(range(len(instance)))


@pytest.mark.full
@pytest.mark.parametrize("spec", POLICIES)
def test_every_request_finishes_once_in_many_runs(spec):
    assert losses_of(spec, "many faults", 600, 300)
