"""Rooms beside the most frequent size: filled within the slack, by jobs that are there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.speed.packing_families import gsm8k_like
from orsched.checker.certificates import packing_violations
from orsched.models import packing
from orsched.models.packing import pack
from orsched.models.pcmax import rooms as rooms_module
from orsched.models.pcmax.patterns import Problem
from orsched.models.pcmax.rooms import Rooms


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
