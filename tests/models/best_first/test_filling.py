"""Whether requests fit into rounds, against trying every client for each of them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.models.best_first import expansion, packed_bounds
from orsched.models.best_first.packed import Packed, bins_of
from orsched.models.best_first.states import States
from orsched.models.exact_search.stage_plan import read_problem
from tests.in_order import in_order
from tests.models.best_first.test_packed import searched, varied


def drawn(rng):
    """A case, how many of each kind wait, and the clients' remaining rounds, ascending."""
    lengths = [rng.choice((3, 4, 7, 7, 9, 12)) for _ in range(rng.randint(1, 8))]
    clients = rng.randint(1, 4)
    instance = Instance(
        Requests([1] * len(lengths), lengths),
        Worker(clients, in_order(AffineCost, 9, 0, 5, 0)),
        first_token="decode",
    )
    case = Packed(States(read_problem(instance)), 2**62, 0, 10).case
    waiting = [rng.randint(0, count) for count in case.counts.tolist()]
    return case, np.array(waiting), np.array(sorted(rng.randint(0, 9) for _ in range(clients)))


def fit(items, rooms):
    """Whether items fit into rooms: every room is tried for each."""
    if not items:
        return min(rooms) >= 0
    return any(
        room >= items[0] and fit(items[1:], (*rooms[:j], room - items[0], *rooms[j + 1 :]))
        for j, room in enumerate(rooms)
    )


@pytest.mark.parametrize("seed", range(60))
def test_it_says_whether_requests_fit(seed):
    rng = random.Random(seed)
    case, waiting, left = drawn(rng)
    kinds = zip(case.rounds.tolist(), waiting.tolist(), strict=True)
    items = [rounds for rounds, count in kinds for _ in range(count)]
    work = -(-(sum(items) + int(left.sum())) // case.clients)
    for rounds in range(max(0, work - 2), work + 12):
        expected = fit(items, tuple(rounds - left.tolist()[j] for j in range(case.clients)))
        assert packed_bounds.packs(case, waiting, left, rounds, bins_of(case)) == expected


def test_after_many_steps_it_says_yes(monkeypatch):
    monkeypatch.setattr(packed_bounds, "MOST_TRIED", 1)
    lengths = [5, 5, 5]
    instance = Instance(
        Requests([1] * 3, lengths),
        Worker(2, in_order(AffineCost, 9, 0, 5, 0)),
        first_token="decode",
    )
    case = Packed(States(read_problem(instance)), 2**62, 0, 10).case
    assert packed_bounds.packs(case, np.array([3]), np.array([0, 0]), 9, bins_of(case))
    monkeypatch.undo()
    assert not packed_bounds.packs(case, np.array([3]), np.array([0, 0]), 9, bins_of(case))


@pytest.mark.parametrize("seed", range(6, 14))
def test_what_does_not_fit_is_expanded_no_more(seed, monkeypatch):
    first = searched(varied(seed))
    monkeypatch.setattr(expansion, "packs", lambda *_: True)
    second = searched(varied(seed))
    assert first.best == second.best
    assert first.expanded <= second.expanded
