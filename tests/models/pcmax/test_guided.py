"""Guided attempts and branching: packings are packings, compiled is plain, proofs are checked."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.speed.packing_families import FAMILIES, wide
from orsched.certificates.fields import Budget
from orsched.certificates.packing import _ruled_out
from orsched.checker.certificates import packing_violations
from orsched.common.stop import Clock
from orsched.models.packing import pack
from orsched.models.pcmax import belief_loops, exchange_loops, packing_search
from orsched.models.pcmax.columns import Columns
from orsched.models.pcmax.guided import Guided, Pool, Tree
from orsched.models.pcmax.local_search import _clients, exchange, longest_first, repartition
from orsched.models.pcmax.packing_search import Search, compiled, compiled_exchanges
from orsched.models.pcmax.patterns import Problem


def pool_of(jobs, clients, capacity):
    problem = Problem.of(jobs, clients)
    return problem, Pool.of(Columns(problem, Clock(None)), capacity)


def packs(problem, capacity, chosen):
    assert (sum(chosen) == problem.counts).all()
    assert len(chosen) <= problem.clients
    assert all(pattern @ problem.sizes <= capacity for pattern in chosen)


@pytest.mark.parametrize("name", ["plain", "compiled"])
def test_attempts_find_a_packing(name):
    loops = belief_loops if name == "plain" else compiled().get(wait=True)
    if loops is None:
        pytest.skip("numba is not installed")
    packing = FAMILIES["H"](7000)
    problem, pool = pool_of(packing.jobs, packing.clients, 13313)
    assert pool.whole
    guided = Guided(pool, loops, np.random.default_rng(0), Clock(None))
    found = [chosen for chosen in (guided.attempt() for _ in range(6)) if chosen is not None]
    assert found
    for chosen in found:
        packs(problem, 13313, chosen)


def test_compiled_loops_give_the_bits_of_the_plain_ones():
    loops = compiled().get(wait=True)
    if loops is None:
        pytest.skip("numba is not installed")
    packing = FAMILIES["H"](7000)
    _, pool = pool_of(packing.jobs, packing.clients, 13313)
    row, size = np.nonzero(pool.patterns)
    edges = np.argsort(size, kind="stable")
    start = np.searchsorted(size[edges], np.arange(pool.patterns.shape[1] + 1))
    left = pool.problem.counts.astype(float)
    states = []
    for module in (belief_loops, loops):
        message, odds = np.ones(len(row)), np.full(len(pool.patterns), 0.1)
        change = module.pass_messages(start, row[edges], left, message, odds, 5)
        states.append((change, message, odds))
    assert states[0][0] == states[1][0]
    assert (states[0][1] == states[1][1]).all()
    assert (states[0][2] == states[1][2]).all()


@settings(max_examples=60)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=9), st.integers(1, 4))
def test_search_and_tree_agree_with_the_optimum(jobs, clients):
    """A pool at the optimum is searched to a packing, one below to the proof that there is none."""
    optimum = pack(jobs, clients).makespan
    for capacity in (optimum, optimum - 1):
        if capacity < max(jobs) or capacity * clients < sum(jobs):
            continue
        problem, pool = pool_of(jobs, clients, capacity)
        if pool is None or not pool.whole:
            continue
        guided = Guided(pool, belief_loops, np.random.default_rng(0), Clock(None))
        chosen = guided.attempt()
        tree = Tree(pool, Clock(None))
        proof = tree.run()
        if capacity < optimum:
            assert chosen is None
            assert tree.found is None
        else:
            assert not guided.exhausted
            assert not proof
        for found in (chosen, tree.found):
            if found is not None:
                packs(problem, capacity, found)


def test_a_tree_is_verified_and_no_changed_one():
    """A packing of which only branching proves that it is optimal: 15,660 is too small."""
    packing = FAMILIES["H"](7011)
    jobs, clients = packing.jobs, packing.clients
    problem, pool = pool_of(jobs, clients, 15660)
    tree = Tree(pool, Clock(None))
    assert tree.run()
    assert len(tree.nodes) > 3
    result = pack(jobs, clients, moves=0)
    certificate = problem.certificate(15660, pool.priced.duals, "tree") | {"tree": tree.nodes}
    proven = replace(result, bound=15661, certificate=certificate, optimal=result.makespan == 15661)
    assert packing_violations(jobs, clients, proven) == []
    lengths = problem.sizes.tolist()
    patterns = [Counter({lengths[k]: int(p[k]) for k in np.flatnonzero(p)}) for p in pool.patterns]
    assert _ruled_out(Counter(jobs), clients, patterns, tree.nodes, Budget())
    (duals, pair), rest = tree.nodes[0], tree.nodes[1:]
    for changed in ([[duals, None], *rest], [[[0] * len(duals), None]]):
        assert not _ruled_out(Counter(jobs), clients, patterns, changed, Budget())
    for changed in (
        [],
        tree.nodes[:-1],
        [[duals[1:], pair], *rest],
        [[duals, [pair[0], pair[0]]], *rest],
        [[duals, [pair[0], 10**9]], *rest],
    ):
        with pytest.raises(ValueError, match=r"a node does not|no two jobs"):
            _ruled_out(Counter(jobs), clients, patterns, changed, Budget())


def test_more_patterns_are_decided_only_where_nothing_else_has_helped(monkeypatch):
    packing = FAMILIES["H"](7011)
    problem, pool = pool_of(packing.jobs, packing.clients, 15660)
    groups = longest_first(packing.jobs, packing.clients)
    start = {"bound": "dual", "value": 15660}
    search = Search(problem, groups, start, Clock(None), random.Random(0))
    guided = Guided(pool, None, np.random.default_rng(0), Clock(None))
    monkeypatch.setattr(packing_search, "TREE_PATTERNS", len(pool.patterns) - 1)
    monkeypatch.setattr(packing_search, "MORE_PATTERNS", len(pool.patterns))
    search._decide(guided, more=False)
    assert search.bound == 15660
    monkeypatch.setattr(search, "raise_bound", lambda rounds: None)
    search._decide(guided, more=True)
    assert (search.bound, search.certificate["bound"]) == (15661, "tree")


def test_with_a_fixed_amount_of_work_the_answer_is_the_same_twice():
    packing = FAMILIES["H"](7016)
    result = pack(packing.jobs, packing.clients, seed=3)
    assert result.optimal
    assert packing_violations(packing.jobs, packing.clients, result) == []
    assert pack(packing.jobs, packing.clients, seed=3) == result


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
