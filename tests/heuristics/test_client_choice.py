"""``use_clients=latency``: how many clients are used, by formula and in schedules."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

import orsched
from benchmarks import client_choice
from orsched.checker import check
from orsched.common.errors import InputError
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.heuristics.gated import ClientChoice, GatedParams
from orsched.heuristics.pang import FirstComeFirstServed
from tests.in_order import in_order

BASE = "online+assignment=shared+order=arrival+gate=prefill_first"


def equal(requests, clients, part, arrivals=None):
    cost = in_order(AffineCost, 0, 0, 100, part)
    return Instance(
        Requests([1] * requests, [20] * requests, arrival_ns=arrivals),
        Worker(clients, cost),
        first_token="decode",
    )


def choice_of(instance):
    kept = []

    class First(FirstComeFirstServed):
        def start(self, view):
            super().start(view)
            kept.append((ClientChoice(view), view))

    orsched.solve(instance, First())
    return kept[0]


@pytest.mark.parametrize("requests", [1, 4, 50, 400])
@pytest.mark.parametrize("part", [1, 20])
def test_the_number_is_the_root_of_requests_times_fixed_over_part(requests, part):
    """At most one beside sqrt(R c / d), which need not be whole, and never above R or J."""
    chosen, view = choice_of(equal(3, 64, part))
    found = chosen.most(view, requests)
    wanted = min(requests, 64, sqrt(requests * 100 / part))
    assert abs(found - wanted) <= 1
    times = {b: (100 + part * b) * (requests / b + 1) for b in range(1, min(64, requests) + 1)}
    assert times[found] == pytest.approx(min(times.values()))


def test_batches_of_the_chosen_size_have_the_least_mean_jct_of_all_sizes():
    """Equal lengths, 48 requests: brute force over the number of clients of the worker."""
    means = {
        clients: orsched.solve(equal(48, clients, 20), BASE).schedule.results["jct_ns"]["mean"]
        for clients in range(1, 49)
    }
    found = orsched.solve(equal(48, 48, 20), f"{BASE}+use_clients=latency")
    mean = found.schedule.results["jct_ns"]["mean"]
    assert mean <= 1.02 * min(means.values())
    assert mean < 0.95 * means[48]


def test_where_a_request_costs_a_round_nothing_all_clients_are_used():
    instance = equal(48, 16, 0)
    every, chosen = (
        orsched.solve(instance, f"{BASE}+use_clients={rule}").schedule
        for rule in ("all", "latency")
    )
    assert every.makespan_ns == chosen.makespan_ns


def test_while_arrivals_are_expected_all_are_used():
    instance = equal(60, 30, 20, np.arange(60) * 10)
    used = []
    orsched.solve(
        instance,
        f"{BASE}+use_clients=latency",
        observer=lambda view, step: used.append((view.now_ns, len(view.running))),
    )
    assert max(running for _, running in used) == 30


@pytest.mark.parametrize("method", ["online", "online+assignment=shared", "hybrid@clairvoyant"])
def test_schedules_are_valid_with_every_assignment_that_steals(method):
    instance = client_choice.problem(client_choice.CASES["long caches"]._replace(requests=40), 0)
    schedule = orsched.solve(instance, f"{method}+use_clients=latency", iterations=2).schedule
    assert not check(instance, schedule)


def test_clients_with_queues_of_their_own_are_refused():
    with pytest.raises(InputError) as error:
        GatedParams("packing", steal=False, use_clients="latency")
    assert error.value.field == "use_clients"
    with pytest.raises(InputError):
        GatedParams("shared", use_clients="fewest")
