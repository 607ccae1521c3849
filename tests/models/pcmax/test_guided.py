"""Parts of the packing search: they make packings, compiled is plain, and proofs are checked."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.speed.packing_families import FAMILIES, gsm8k_like, wide
from orsched.certificates.fields import Budget
from orsched.certificates.packing import _ruled_out
from orsched.checker.certificates import packing_violations
from orsched.common.stop import Clock
from orsched.models import packing
from orsched.models.packing import pack
from orsched.models.pcmax import belief_loops, exchange_loops, packing_search
from orsched.models.pcmax import rooms as rooms_module
from orsched.models.pcmax.columns import Columns
from orsched.models.pcmax.guided import Guided, Pool, Tree
from orsched.models.pcmax.local_search import _clients, exchange, longest_first, repartition
from orsched.models.pcmax.packing_search import Search, compiled, compiled_exchanges
from orsched.models.pcmax.patterns import Problem
from orsched.models.pcmax.rooms import Rooms, prove_by_rooms
from tests.models.pcmax.test_certificates import packed


def pool_of(jobs, clients, capacity):
    problem = Problem.of(jobs, clients)
    return problem, Pool.of(Columns(problem, Clock(None)), capacity)


def packs(problem, capacity, chosen):
    assert (sum(chosen) == problem.counts).all()
    assert len(chosen) <= problem.clients
    assert all(pattern @ problem.sizes <= capacity for pattern in chosen)


@pytest.fixture(scope="module")
def fast():
    """The compiled loops of beliefs and of exchanges."""
    pytest.importorskip("numba")
    return compiled().get(wait=True), compiled_exchanges().get(wait=True)


@pytest.mark.parametrize("name", ["plain", "compiled"])
def test_attempts_find_a_packing(name, request):
    loops = belief_loops if name == "plain" else request.getfixturevalue("fast")[0]
    packing = FAMILIES["H"](7000)
    problem, pool = pool_of(packing.jobs, packing.clients, 13313)
    assert pool.whole
    guided = Guided(pool, loops, np.random.default_rng(0), Clock(None))
    found = [chosen for chosen in (guided.attempt() for _ in range(6)) if chosen is not None]
    assert found
    for chosen in found:
        packs(problem, 13313, chosen)


def test_compiled_loops_give_the_bits_of_the_plain_ones(fast):
    packing = FAMILIES["H"](7000)
    _, pool = pool_of(packing.jobs, packing.clients, 13313)
    row, size = np.nonzero(pool.patterns)
    edges = np.argsort(size, kind="stable")
    start = np.searchsorted(size[edges], np.arange(pool.patterns.shape[1] + 1))
    left = pool.problem.counts.astype(float)
    states = []
    for module in (belief_loops, fast[0]):
        message, odds = np.ones(len(row)), np.full(len(pool.patterns), 0.1)
        change = module.pass_messages(start, row[edges], left, message, odds, 5)
        states.append((change, message.tolist(), odds.tolist()))
    assert states[0] == states[1]


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
        chosen, tree = guided.attempt(), Tree(pool, Clock(None))
        proof = tree.run()
        if capacity < optimum:
            assert chosen is tree.found is None
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
    others = [duals[1:], pair], [duals, [pair[0], pair[0]]], [duals, [pair[0], 10**9]]
    for changed in ([], tree.nodes[:-1], *([other, *rest] for other in others)):
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


def test_compiled_loops_make_the_moves_of_the_plain_ones(fast):
    packing = wide(7001)
    groups = longest_first(packing.jobs[:200], 30)
    target = -(-sum(packing.jobs[:200]) // 30)
    plain, moved = (walked(each, groups, target, 150) for each in (exchange_loops, fast[1]))
    assert all((a == b).all() for a, b in zip(plain, moved, strict=True))
    assert sorted(map(sorted, held(moved))) != sorted(map(sorted, groups))  # jobs did move


def test_exchanges_meet_a_bound_that_pairs_do_not(fast):
    """Of integers up to a million, in as many moves."""
    packing = wide(7001)
    bound = -(-sum(packing.jobs) // packing.clients)
    groups = longest_first(packing.jobs, packing.clients)
    found = exchange(groups, bound, np.random.default_rng(0), Clock(None), fast[1])
    assert max(map(sum, found)) == bound
    assert sorted(job for group in found for job in group) == sorted(packing.jobs)
    assert repartition(groups, bound, random.Random(0), 1_000, Clock(None)) > bound


def at_volume(seed):
    """A packing problem like that of GSM8K, and the bound that its volume proves."""
    jobs, clients, _ = gsm8k_like(seed)
    problem = Problem.of(jobs, clients)
    return jobs, clients, problem, -(-problem.total // clients)


def proves(jobs, clients, makespan):
    result = packed(jobs, clients)
    return (result.optimal, result.makespan) == (True, makespan)


def test_a_room_that_nothing_fills_proves_more_than_the_volume():
    jobs, clients, problem, volume = at_volume(2035)
    assert prove_by_rooms(problem, volume) is not None
    assert prove_by_rooms(problem, volume + 1) is None
    assert proves(jobs, clients, volume + 1)
    assert filled(problem, volume) is None  # rooms that must waste too much
    assert filled(problem, volume + 1) is not None


@settings(max_examples=100)
@given(
    st.integers(5, 20),
    st.integers(2, 9),
    st.lists(st.integers(1, 9), max_size=8),
    st.integers(2, 4),
    st.integers(-2, 2),
)
def test_rooms_never_rule_out_a_packing(size, count, others, clients, more):
    jobs = [size] * count + others
    optimum = pack(jobs, clients).makespan
    capacity = max(optimum + more, max(jobs))
    if prove_by_rooms(Problem.of(jobs, clients), capacity) is not None:
        assert capacity < optimum


def filled(problem, capacity):
    """Rooms filled at a capacity, checked against the problem; None if they are not."""
    rooms, slack = Rooms.of(problem, capacity), problem.slack(capacity)
    full = rooms.fill(slack) if rooms else None
    if full is None:
        return None
    assert len(full) == rooms.number
    assert (sum(full) <= problem.counts).all()
    loads = np.array([pattern @ problem.sizes for pattern in full])
    assert loads.max() <= capacity
    assert (capacity - loads).sum() <= slack
    assert all(pattern[rooms.frequent] == rooms.most for pattern in full)
    return full


@pytest.mark.parametrize("seed", [21549, 20179, 21468, 21451])
def test_rooms_that_pairs_of_clients_fill_slowly_are_filled_at_once(seed, monkeypatch):
    """Seeds that took 4 to 14 seconds; 21451 without any waste."""
    jobs, clients, problem, volume = at_volume(seed)
    full = filled(problem, volume)
    assert full is not None
    moved = []
    real = packing.repartition

    def counting(groups, target, rng, moves, clock):
        moved.append(moves)
        return real(groups, target, rng, moves, clock)

    monkeypatch.setattr(packing, "repartition", counting)
    assert proves(jobs, clients, volume)
    assert packing.ROOM_MOVES * (clients - len(full)) in moved


def test_too_many_patterns_leave_those_with_less_waste(monkeypatch):
    _, _, problem, volume = at_volume(21549)
    monkeypatch.setattr(rooms_module, "PATTERNS", 600)
    rooms = Rooms.of(problem, volume)
    assert rooms.patterns(problem.slack(volume)) is None
    assert filled(problem, volume) is not None
    monkeypatch.setattr(rooms_module, "PATTERNS", 1)
    assert filled(problem, volume) is None


@settings(max_examples=150)
@given(
    st.integers(5, 20),
    st.integers(2, 12),
    st.lists(st.integers(1, 9), max_size=12),
    st.integers(2, 5),
    st.integers(0, 6),
)
def test_whatever_is_filled_is_part_of_the_problem(size, count, others, clients, more):
    jobs = [size] * count + others
    capacity = max(-(-sum(jobs) // clients), size) + more
    filled(Problem.of(jobs, clients), capacity)
