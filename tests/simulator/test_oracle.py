"""The simulator against the naive token-by-token simulator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from orsched.checker import check
from orsched.metrics.summary import summarise
from orsched.simulator import simulate_policy
from tests.oracle import oracle
from tests.simulator.instances import instances
from tests.simulator.policies import POLICIES


def listening(policy):
    """Return the policy with a log of the calls of its hooks in ``policy.heard``."""
    kind = type(policy)

    class Listening(kind):
        def on_arrival(self, view, request):
            self.heard.append(("arrival", request))
            super().on_arrival(view, request)

        def on_first_token(self, view, request):
            self.heard.append(("first token", request))
            super().on_first_token(view, request)

        def on_finish(self, view, request, client):
            self.heard.append(("finish", request, client))
            super().on_finish(view, request, client)

        def decide(self, view):
            clients = [view.request_on(client) for client in range(view.worker.clients)]
            generated = [view.generated(request) for request in view.running]
            free = (view.free_clients, view.blocks_free)
            self.heard.append(
                (view.now_ns, view.rounds, dict(view.running), generated, clients, free)
            )
            return super().decide(view)

    policy.__class__ = Listening
    policy.heard = []
    return policy


def columns(table):
    return {name: column.tolist() for name, column in vars(table).items()}


@pytest.mark.parametrize("name", POLICIES)
@given(instance=instances())
def test_simulator_and_oracle_agree(name, instance):
    """INV-13: timeline, work, and all that the policy was told are the same."""
    fast, slow = listening(POLICIES[name]()), listening(POLICIES[name]())
    schedule = simulate_policy(instance, fast).schedule
    expected = oracle(instance, slow)
    assert columns(schedule.steps) == columns(expected.steps)
    assert columns(schedule.work) == columns(expected.work)
    assert fast.heard == slow.heard
    assert schedule.instance_sha256 == expected.instance_sha256
    assert schedule.information == expected.information


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=25)
@given(instance=instances())
def test_the_checker_accepts_every_policy(name, instance):
    """INV-1 to INV-7: what the simulator makes is valid, and the metrics are right."""
    schedule = simulate_policy(instance, POLICIES[name]()).schedule
    assert check(instance, schedule.replace(results=summarise(instance, schedule))) == []


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=10)
@given(instance=instances())
def test_same_seed_same_bytes(name, instance):
    """INV-9: two runs of a policy give the same schedule."""
    one, two = (simulate_policy(instance, POLICIES[name]()).schedule for _ in range(2))
    for a, b in ((one.steps, two.steps), (one.work, two.work)):
        for column in vars(a):
            assert np.array_equal(getattr(a, column), getattr(b, column))
