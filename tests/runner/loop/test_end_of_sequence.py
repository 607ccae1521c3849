"""Requests that end when they say so: policies learn of lengths as they happen."""

from __future__ import annotations

import random

import pytest

import orsched
from orsched.common.errors import InfeasibleError, InputError, PolicyError
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.runner.devices.device import VirtualDevice
from orsched.runner.loop.live import execute_policy
from orsched.simulator import simulate_policy
from orsched.simulator.policy import ClairvoyantView
from tests.product.policies import POLICIES
from tests.random_instances import random_batching_instance
from tests.runner.loop.fake_device import VOCABULARY, FormulaDevice, reference
from tests.runner.loop.spec import build, merged
from tests.runner.loop.test_failover import faulty

SPECS = [spec for spec in POLICIES if "@clairvoyant" not in spec]
ENDS = frozenset(range(0, VOCABULARY, 5))


def ended(spec, most, devices):
    """Run a policy until requests say that they are done; yield what came of it."""
    left = most
    for seed in range(40):
        rng = random.Random(f"ends {spec} {seed}")
        instance = random_batching_instance(rng)
        longest = instance.replace(
            requests=instance.requests.replace(
                output_tokens=[instance.output_limit_tokens] * len(instance)
            )
        )
        try:
            simulate_policy(longest, build(longest, spec, seed))
        except (InputError, PolicyError, InfeasibleError):
            continue
        done = execute_policy(
            instance,
            build(instance, spec, seed),
            devices(instance, rng),
            vocabulary=VOCABULARY,
            end_of_sequence=ENDS,
            most_losses=1000,
        )
        yield seed, longest, done
        left -= 1
        if not left:
            return


@pytest.mark.parametrize("spec", SPECS)
def test_requests_end_where_they_say_so(spec):
    early = False
    for seed, longest, done in ended(spec, 5, lambda it, _: [FormulaDevice() for _ in it.workers]):
        assert done.tokens == reference(longest, ends=ENDS)
        came = done.instance
        assert came.requests.output_tokens.tolist() == [len(each) for each in done.tokens]
        assert orsched.check(came, done.schedule) == []
        early |= came.requests != longest.requests
        if len(came.workers) == 1:  # rounds one by one show more of other workers
            there = simulate_policy(came, build(came, spec, seed)).schedule
            assert merged(there) == merged(done.schedule)
    assert early


@pytest.mark.parametrize("spec", SPECS)
def test_requests_end_on_workers_that_are_lost(spec):
    for _, longest, done in ended(spec, 5, lambda it, rng: faulty(it, rng, 0.1)):
        if not done.stopped:
            assert done.tokens == reference(longest, ends=ENDS)
            assert orsched.check(done.instance, done.schedule) == []


def test_nothing_tells_a_policy_of_lengths():
    class Looks(FirstComeFirstServed):
        def decide(self, view):
            assert not isinstance(view, ClairvoyantView)
            return super().decide(view)

    instance = orsched.load("pang-100x20")
    done = execute_policy(
        instance, Looks(), FormulaDevice(), vocabulary=VOCABULARY, end_of_sequence=3
    )
    assert all(3 not in tokens[:-1] for tokens in done.tokens)
    assert any(tokens[-1] == 3 for tokens in done.tokens)


def test_clairvoyance_and_devices_without_tokens_are_refused():
    instance = orsched.load("pang-100x20")
    with pytest.raises(InputError, match="cannot be known before"):
        execute_policy(
            instance, build(instance, "offline", 0), FormulaDevice(), end_of_sequence=[3]
        )
    with pytest.raises(InputError, match="yields no tokens"):
        execute_policy(instance, FirstComeFirstServed(), VirtualDevice(), end_of_sequence=3)
