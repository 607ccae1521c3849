"""Exchanges between clients: jobs are kept, loads are what they say, compiled is plain."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.speed.packing_families import wide
from orsched.common.stop import Clock
from orsched.models.packing import pack
from orsched.models.pcmax import exchange_loops
from orsched.models.pcmax.local_search import _clients, exchange, longest_first, repartition
from orsched.models.pcmax.packing_search import compiled_exchanges


def walked(loops, groups, target, moves, seed=0):
    """Return the clients after a walk."""
    rng = np.random.default_rng(seed)
    clients, at = _clients(groups, target), 0
    draws = rng.random(exchange_loops.WIDTH * len(groups))
    for client in range(len(groups)):
        at = loops.subsets(clients, client, draws, at)
    loops.walk(clients, rng.random(50_000), moves)
    return clients


def held(clients):
    rows = zip(clients.jobs.tolist(), clients.count.tolist(), strict=True)
    return [row[:count] for row, count in rows]


@given(
    jobs=st.lists(st.integers(1, 10**6), min_size=2, max_size=40),
    clients=st.integers(2, 6),
    below=st.integers(0, 1000),
    seed=st.integers(0, 9),
)
@settings(max_examples=40)
def test_a_walk_keeps_jobs_and_makes_no_load_worse(jobs, clients, below, seed):
    groups = longest_first(jobs, clients)
    before = max(map(sum, groups))
    target = max(1, before - below)
    after = walked(exchange_loops, groups, target, 30, seed)
    assert sorted(job for group in held(after) for job in group) == sorted(jobs)
    assert [target - sum(group) for group in held(after)] == after.room.tolist()
    assert max(map(sum, held(after))) <= before


def test_the_subsets_of_a_client_are_its_jobs():
    after = walked(exchange_loops, longest_first(range(1, 40), 4), 196, 20)
    for client, group in enumerate(held(after)):
        for row in range(after.size[client]):
            bits = int(after.bits[client, row])
            inside = [job for place, job in enumerate(group) if place < 8 and bits >> place & 1]
            assert sum(inside) == after.sums[client, row]
        assert (np.diff(after.sums[client, : after.size[client]]) >= 0).all()


def test_compiled_loops_make_the_moves_of_the_plain_ones():
    loops = compiled_exchanges().get(wait=True)
    if loops is None:
        pytest.skip("numba is not installed")
    packing = wide(7001)
    groups = longest_first(packing.jobs[:200], 30)
    target = -(-sum(packing.jobs[:200]) // 30)
    plain, fast = (walked(each, groups, target, 150) for each in (exchange_loops, loops))
    for a, b in zip(plain, fast, strict=True):
        assert (a == b).all()
    assert sorted(map(sorted, held(fast))) != sorted(map(sorted, groups))  # jobs did move


def test_exchanges_meet_a_bound_that_pairs_do_not():
    """Of integers up to a million, in as many moves."""
    loops = compiled_exchanges().get(wait=True)
    if loops is None:
        pytest.skip("numba is not installed")
    packing = wide(7001)
    bound = -(-sum(packing.jobs) // packing.clients)
    groups = longest_first(packing.jobs, packing.clients)
    found = exchange(groups, bound, np.random.default_rng(0), Clock(None), loops)
    assert max(map(sum, found)) == bound
    assert sorted(job for group in found for job in group) == sorted(packing.jobs)
    assert repartition(groups, bound, random.Random(0), 1_000, Clock(None)) > bound


def test_packing_proves_large_integers():
    packing = wide(7000)
    result = pack(packing.jobs, packing.clients)
    assert result.optimal
    assert result.certificate["bound"] == "volume"
