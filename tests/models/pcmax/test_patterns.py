"""What decimation fixes is part of a packing; what the most frequent size proves is so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.speed.packing_families import FAMILIES, gsm8k_like, triplets
from orsched.checker.certificates import packing_violations
from orsched.common.stop import Clock
from orsched.models import packing
from orsched.models.packing import pack
from orsched.models.pcmax import decimate
from orsched.models.pcmax import rooms as rooms_module
from orsched.models.pcmax.decimate import Decimation, Entropy
from orsched.models.pcmax.patterns import Pricer, Problem
from orsched.models.pcmax.rooms import Rooms, prove_by_rooms


def decimated(problem, capacity, seed=0):
    """Decimation at a capacity, checked: what it fixed and what is left is the problem."""
    decimation = Decimation(Pricer(), capacity, np.random.default_rng(seed), Clock(None))
    chosen, left = decimation.run(problem)
    taken = sum(chosen, np.zeros(len(problem.sizes), dtype=np.int64))
    assert (taken + left.counts == problem.counts).all()
    assert (left.counts >= 0).all()
    assert len(chosen) + left.clients == problem.clients
    assert all(pattern @ problem.sizes <= capacity for pattern in chosen)
    return chosen, left


@pytest.mark.parametrize("seed", [3, 5, 7, 12])
def test_planted_triplets_are_covered_to_the_last(seed):
    packing = triplets(seed)
    problem = Problem.of(packing.jobs, packing.clients)
    chosen, left = decimated(problem, packing.optimum)
    assert not left.counts.any()
    assert all(pattern @ problem.sizes == packing.optimum for pattern in chosen)


def test_a_sample_stands_in_for_too_many_patterns(monkeypatch):
    packing = triplets(7)
    problem = Problem.of(packing.jobs, packing.clients)
    monkeypatch.setattr(decimate, "PATTERNS", 1_500)
    _, left = decimated(problem, packing.optimum)
    assert left.clients < problem.clients // 2


@settings(max_examples=30)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(1, 5), st.integers(0, 9))
def test_decimation_never_breaks_a_packing(jobs, clients, more):
    capacity = max(-(-sum(jobs) // clients), max(jobs)) + more
    decimated(Problem.of(jobs, clients), capacity, more)


def test_jobs_are_drawn_as_often_as_they_must_be():
    packing = FAMILIES["L6"](2)
    problem = Problem.of(packing.jobs, packing.clients)
    capacity = pack(packing.jobs, packing.clients).makespan + 5
    entropy = Entropy(problem, capacity)
    assert entropy.fit(40)
    patterns = entropy.draw(4_000, np.random.default_rng(1))
    loads = patterns @ problem.sizes
    window = problem.window(capacity)
    assert loads.max() <= capacity
    assert loads.min() >= window.low
    assert (patterns <= problem.counts).all()
    assert len(np.unique(patterns, axis=0)) == len(patterns)
    shares = patterns.mean(axis=0) * problem.clients / problem.counts
    assert 0.5 < shares.mean() < 1.5
    assert shares.min() > 0


def test_no_pattern_for_a_job_is_noticed():
    problem = Problem.of([10, 10, 10, 3], 3)  # 3 fits beside no 10 in 11, nor alone
    assert not Entropy(problem, 11).fit()
    assert len(decimated(problem, 11)[0]) <= 3


def test_a_room_that_nothing_fills_proves_more_than_the_volume():
    packing = gsm8k_like(2035)
    problem = Problem.of(packing.jobs, packing.clients)
    volume = -(-problem.total // problem.clients)
    duals = prove_by_rooms(problem, volume)
    assert duals is not None
    assert prove_by_rooms(problem, volume + 1) is None
    result = pack(packing.jobs, packing.clients)
    assert (result.optimal, result.makespan) == (True, volume + 1)
    assert packing_violations(packing.jobs, packing.clients, result) == []


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
    jobs, clients, _ = gsm8k_like(seed)
    problem = Problem.of(jobs, clients)
    volume = -(-problem.total // clients)
    full = filled(problem, volume)
    assert full is not None
    moved = []
    real = packing.repartition

    def counting(groups, target, rng, moves, clock):
        moved.append(moves)
        return real(groups, target, rng, moves, clock)

    monkeypatch.setattr(packing, "repartition", counting)
    result = pack(jobs, clients)
    assert (result.optimal, result.makespan) == (True, volume)
    assert packing_violations(jobs, clients, result) == []
    assert packing.ROOM_MOVES * (clients - len(full)) in moved


def test_too_many_patterns_leave_those_with_less_waste(monkeypatch):
    jobs, clients, _ = gsm8k_like(21549)
    problem = Problem.of(jobs, clients)
    volume = -(-problem.total // clients)
    monkeypatch.setattr(rooms_module, "PATTERNS", 600)
    rooms = Rooms.of(problem, volume)
    assert rooms.patterns(problem.slack(volume)) is None
    assert filled(problem, volume) is not None
    monkeypatch.setattr(rooms_module, "PATTERNS", 1)
    assert filled(problem, volume) is None


def test_rooms_that_must_waste_too_much_are_not_filled():
    jobs, clients, _ = gsm8k_like(2035)
    problem = Problem.of(jobs, clients)
    volume = -(-problem.total // clients)
    assert filled(problem, volume) is None
    assert filled(problem, volume + 1) is not None


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
