"""Requests that end when they say so: policies learn of lengths as they happen."""

from itertools import islice

import pytest

import orsched
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.runner.devices.device import VirtualDevice
from orsched.simulator import simulate_policy
from orsched.simulator.policy import ClairvoyantView
from tests.product.policies import POLICIES
from tests.refusals import refused
from tests.runner.loop.fake_device import VOCABULARY, played, reference
from tests.runner.loop.spec import build, merged, served
from tests.runner.loop.test_failover import faulty

SPECS = [spec for spec in POLICIES if "@clairvoyant" not in spec]
ENDS = frozenset(range(0, VOCABULARY, 5))


def ended(spec, most, devices):
    """Run a policy until requests say that they are done; yield what came of it."""
    cases = served(f"ends {spec}", spec, 40, change=as_long_as_can_be)
    for seed, rng, longest, _ in islice(cases, most):
        shortest = with_outputs(longest, 1)  # what it says of lengths is nothing
        policy, lose = build(shortest, spec, seed), devices(shortest, rng)
        done = played(shortest, policy, lose, end_of_sequence=ENDS, most_losses=1000)
        yield seed, longest, done


def with_outputs(instance, tokens):
    outputs = [tokens] * len(instance)
    return instance.replace(requests=instance.requests.replace(output_tokens=outputs))


def as_long_as_can_be(instance):
    return with_outputs(instance, instance.output_limit_tokens)


@pytest.mark.parametrize("spec", SPECS)
def test_requests_end_where_they_say_so_on_workers_that_are_lost_as_well(spec):
    early = False
    for seed, longest, done in ended(spec, 5, lambda *_: None):
        assert done.tokens == reference(longest, ends=ENDS)
        came = done.instance
        assert came.requests.output_tokens.tolist() == [len(each) for each in done.tokens]
        assert orsched.check(came, done.schedule) == []
        early |= came.requests != longest.requests
        if len(came.workers) == 1:  # rounds one by one show more of other workers
            there = simulate_policy(came, build(came, spec, seed)).schedule
            assert merged(there) == merged(done.schedule)
    assert early

    # on workers that are lost as well
    for _, longest, done in ended(spec, 5, lambda it, rng: faulty(it, rng, 0.1)):
        if not done.stopped:
            assert done.tokens == reference(longest, ends=ENDS)
            assert orsched.check(done.instance, done.schedule) == []


def test_nothing_tells_a_policy_of_lengths():
    class Looks(FirstComeFirstServed):
        def decide(self, view):
            assert not isinstance(view, ClairvoyantView)
            return super().decide(view)

    done = played(orsched.load("pang-100x20"), Looks(), end_of_sequence=3)
    assert all(3 not in tokens[:-1] for tokens in done.tokens)
    assert any(tokens[-1] == 3 for tokens in done.tokens)


def test_clairvoyance_and_devices_without_tokens_are_refused():
    instance = orsched.load("pang-100x20")
    knows = build(instance, "offline")
    refused("cannot be known before", played, instance, knows, end_of_sequence=[3])
    silent = FirstComeFirstServed(), VirtualDevice()
    refused("yields no tokens", played, instance, *silent, end_of_sequence=3)
