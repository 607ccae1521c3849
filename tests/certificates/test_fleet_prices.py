"""Prices of requests: by hand, beside partitions of tiny fleets, and beside simulated schedules."""

import copy
import random
from dataclasses import replace
from itertools import product

import pytest

import orsched
from orsched.certificates.context import Context
from orsched.checker.certificates import certificate_violations
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.schedule_classes import allowances_of
from orsched.data.workers import Worker
from orsched.models.bounds.bounds import bound
from orsched.models.bounds.fleet_prices_search import price_certificates
from orsched.simulator import simulate_policy
from tests.in_order import in_order
from tests.models.least_in_any_mode import Search
from tests.models.test_bound_scope import tiny_instance
from tests.random_instances import random_batching_instance
from tests.simulator.batching_policies import BATCHING

COUNTED = in_order(orsched.AffineCost, 0, 0, 10, 0)
"""Rounds of 10 ns, whichever requests are in them."""


def proven(instance, allows=(), least=0):
    """The largest certificate by prices, or None."""
    released, found = min(instance.requests.arrival_ns.tolist()), None
    for found in price_certificates(
        Context.allowing(instance, allows), released, released + least, lambda: False
    ):
        document = {"name": "fleet_prices", "certificate": found, "value_ns": found["value_ns"]}
        assert certificate_violations(instance, document) == []
    return found


def fleet(outputs, clients=1, workers=2, cost=COUNTED):
    each = [Worker(clients, cost, name=f"w{k}") for k in range(workers)]
    return Instance(Requests([1] * len(outputs), outputs), tuple(each), first_token="decode")


def test_a_long_request_leaves_less_room_than_a_share():
    """Lengths 6, 6 and 6 on two workers with a client each: the mean is 9 rounds, the least 12.

    With parts of requests 9 rounds are enough, so prices prove 90 ns; a length of 7 with two of 4
    needs no more than 7.5, but no part of the first helps the other worker.
    """
    assert proven(fleet([6, 6, 6]))["value_ns"] == 90
    assert 70 <= proven(fleet([7, 4, 4]))["value_ns"] <= 80


def least_of_fleet(instance, allows):
    """The least makespan over all partitions of the requests, each part on one worker."""
    n, workers, known = len(instance), instance.workers, {}

    def one(worker, rows):
        if not rows:
            return 0
        if (worker, rows) not in known:
            columns = instance.requests
            part = Requests(
                *(
                    getattr(columns, name)[list(rows)]
                    for name in ("prompt_tokens", "output_tokens")
                ),
                arrival_ns=columns.arrival_ns[list(rows)],
            )
            alone = Instance(part, workers[worker], first_token=instance.first_token)
            known[worker, rows] = Search(alone, allows).least()
        return known[worker, rows]

    places = product(range(len(workers)), repeat=n)
    return min(
        max(one(w, tuple(r for r in range(n) if at[r] == w)) for w in range(len(workers)))
        for at in places
    )


def tiny_fleet(rng):
    """Two or three workers, equal or not, of one instance's kind."""
    instance = tiny_instance(rng)
    other = tiny_instance(random.Random(rng.random())).worker.cost
    worker = instance.worker
    kinds = [worker, replace(worker, clients=worker.clients + 1), replace(worker, cost=other)]
    count = rng.choice((2, 2, 3))
    chosen = [worker] * count if rng.random() < 0.5 else [rng.choice(kinds) for _ in range(count)]
    named = tuple(replace(each, name=f"w{k}") for k, each in enumerate(chosen))
    return instance.replace(workers=named)


@pytest.mark.parametrize(
    "seeds", [range(40), pytest.param(range(40, 1500), marks=pytest.mark.full)]
)
def test_no_partition_of_a_tiny_fleet_beats_prices(seeds):
    """With arrivals, unequal workers, chunks, mixed steps and restarts where a request stays."""
    found = 0
    for seed in seeds:
        rng = random.Random(seed)
        instance = tiny_fleet(rng)
        allows = [name for name in ("chunks", "mixed", "restarts") if rng.random() < 0.4]
        if any(len(w.cost.levels) if hasattr(w.cost, "levels") else 0 for w in instance.workers):
            continue  # levels of another instance may be too small for its prompts
        context = Context.allowing(instance, allows)
        if not context.has_floors:
            continue
        certificate = proven(instance, allows)
        if certificate is None:
            continue
        found += 1
        assert certificate["value_ns"] <= least_of_fleet(instance, allows), seed
    assert found > len(seeds) // 8


@pytest.mark.parametrize(
    "seeds", [range(150), pytest.param(range(150, 1500), marks=pytest.mark.full)]
)
def test_no_simulated_schedule_that_stays_beats_prices(seeds):
    seen = set()
    for seed in seeds:
        rng = random.Random(seed)
        instance = random_batching_instance(rng)
        if len(instance.workers) < 2:
            continue
        name = rng.choice(sorted(BATCHING))
        schedule = simulate_policy(instance, BATCHING[name](seed)).schedule
        allows = allowances_of(instance, schedule)
        if "moves" in allows or not Context.allowing(instance, allows).has_floors:
            continue
        certificate = proven(instance, allows)
        if certificate is not None:
            assert certificate["value_ns"] <= schedule.makespan_ns, (seed, name)
            seen.add((allows, len(instance.workers)))
    assert len(seen) > 2


def test_forged_certificates_prove_nothing_above_the_least():
    """What is changed at random is refused, or still below the least makespan."""
    rng, instance = random.Random(5), fleet([6, 6, 6, 3])
    certificate, least = proven(instance), least_of_fleet(instance, ())
    refused = 0
    for _ in range(400):
        forged = copy.deepcopy(certificate)
        kind = rng.randrange(4)
        if kind == 0:
            forged["value_ns"] += rng.choice((1, 3, 10, 30, 10**6))
        elif kind == 1:
            at = rng.randrange(len(forged["prices"]))
            forged["prices"][at] = forged["prices"][at] * rng.choice((0, 2, 5)) + rng.randint(0, 9)
        else:
            item = rng.choice(forged["workers"][0]["intervals"])
            if kind == 2:
                item[1][0] = item[1][0] * rng.choice((0, 1, 2)) // rng.choice((1, 2))
            else:
                item[2] = item[2] * rng.choice((0, 2)) // rng.choice((1, 3))
        forged["value_ns"] += rng.choice((0, 0, 5, 30))
        document = {"name": "fleet_prices", "certificate": forged, "value_ns": forged["value_ns"]}
        faults = certificate_violations(instance, document)
        assert faults or forged["value_ns"] <= least
        refused += bool(faults)
    assert refused > 100


def test_where_requests_may_move_no_prices_are_used():
    instance = fleet([12] + [2] * 16, clients=4, cost=in_order(orsched.AffineCost, 0, 0, 10, 10))
    assert bound(instance, allows=("restarts",)).name == "fleet_prices"
    moving = bound(instance, allows=("moves",))
    assert moving.name != "fleet_prices"
    assert "moves" in moving.allows
    assert "moves" not in bound(instance, allows=("restarts",)).allows
