"""Whatever is proposed as a certificate is verified, also with the largest numbers there are."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from orsched.certificates.context import Context
from orsched.checker.certificates import bound_violations
from orsched.common.errors import OrschedError
from orsched.common.units import MAX_TOKENS
from orsched.costs import AffineCost, LevelsCost, RooflineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.schedule_classes import ALLOWANCES
from orsched.data.workers import Worker
from orsched.models.bounds.bounds import bound
from orsched.models.bounds.latency_bounds import BOUNDED, candidates
from orsched.models.bounds.makespan_certificates import Limits, makespan_certificates
from tests.in_order import in_order

MOST_WEIGHT, MOST_CLIENTS = 1_000_000, 1_000_000


def pair(times, outputs=(2, 2), arrivals=(0, 0), clients=1, prompts=(1, 2)):
    requests = Requests(prompts, outputs, arrival_ns=arrivals, weights=[MOST_WEIGHT, 1])
    return Instance(requests, Worker(clients, in_order(AffineCost, *times)), first_token="decode")


EXTREME = {
    "a level above 2**40": pair((2**50, 2**50, 1, 1)),
    "the longest answers, which share rounds": pair(
        (1, 1, 1, 1), (MAX_TOKENS, MAX_TOKENS), (0, 5), MOST_CLIENTS
    ),
    "windows beyond 2**63": pair((2**57, 0, 2**57, 2**49), (2, 2), (0, 2**57), 2),
    "the longest prompts": pair((9, 2**28, 9, 9), prompts=(MAX_TOKENS, MAX_TOKENS)),
    "the last arrival that there may be": pair((9, 1, 9, 9), arrivals=(0, 2**61 - 1000)),
}


def proposals(instance, objective, allows):
    """All certificates that are tried for a bound on an objective."""
    context = Context.allowing(instance, allows)
    if objective != "makespan":
        return candidates(context, objective, lambda: False)
    return makespan_certificates(context, Limits(lambda: False, lambda: 5.0, True))


def verify(instance, allows):
    """Verify all proposals; return how many there were. Sums below 0 are never the best."""
    count = 0
    for objective in ("makespan", *BOUNDED):
        for found in proposals(instance, objective, allows):
            if found.get("sum_ns", 0) < 0:
                continue
            document = {"name": found["bound"], "value_ns": found["value_ns"], "certificate": found}
            assert bound_violations(instance, document, objective) == [], objective
            count += 1
    return count


@pytest.mark.parametrize("allows", [(), ALLOWANCES])
@pytest.mark.parametrize("name", EXTREME)
def test_what_is_proposed_for_an_extreme_instance_is_verified(name, allows, caplog):
    instance = EXTREME[name]
    assert verify(instance, allows) > 8
    for objective in ("makespan", *BOUNDED):
        bound(instance, objective, allows=allows)
    assert caplog.text == ""


def extreme(seed):
    """A random instance in which anything may be as large as it can be, or None."""
    rng = random.Random(seed)
    tokens, times = rng.choice([9, 2**20, MAX_TOKENS]), rng.choice([10**3, 2**40, 2**58])

    def draw(top):
        return rng.choice((1, top, rng.randint(1, top), 1 << rng.randrange(top.bit_length())))

    n = rng.choice((1, 2, 5))
    columns = [[min(draw(tokens), MAX_TOKENS) for _ in range(n)] for _ in range(2)]
    arrivals = [rng.choice((0, draw(rng.choice((100, 2**40, 2**60))))) for _ in range(n)]
    weights = [rng.choice((1, MOST_WEIGHT)) for _ in range(n)]
    costs = (
        in_order(AffineCost, *(draw(times) for _ in range(4))),
        in_order(LevelsCost, ((3, draw(9)), (MAX_TOKENS, 9 + draw(times))), draw(times)),
        in_order(RooflineCost, *(draw(times) for _ in range(5))),
    )
    worker = Worker(rng.choice((1, 3, MOST_CLIENTS)), rng.choice(costs))
    workers = [replace(worker, name=str(k)) for k in range(rng.choice((1, 1, 2)))]
    try:
        return Instance(
            Requests(*columns, arrival_ns=arrivals, weights=weights),
            workers,
            first_token=rng.choice(("decode", "prefill")),
        )
    except OrschedError:  # its times do not fit
        return None


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 400), marks=pytest.mark.full)])
def test_what_is_proposed_for_random_extremes_is_verified(seeds):
    count = 0
    for seed in seeds:
        instance = extreme(seed)
        if instance is not None:
            allows = [each for each in ALLOWANCES if seed >> ALLOWANCES.index(each) & 1]
            count += verify(instance, allows)
    assert count > 10 * len(seeds)
