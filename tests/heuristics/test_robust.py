"""The queue of ``robust`` in two orders, against a plain list."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from orsched.heuristics.robust import _FEW, Skill, TwoOrders
from tests.heuristics.building import batch_of

MOST = 4 * _FEW


def plain(waiting, clients, trusted, sample, started, room):
    """Take from ``waiting``, (key, request) in the order of arrival, what fits; one a client."""
    stage = []
    for _ in clients:
        if not waiting:
            break
        first = not started % sample or not trusted
        entry = waiting[0] if first else min(waiting)
        room -= 1 + entry[1] % 3
        if room < 0:
            break
        waiting.remove(entry)
        stage.append(entry[1])
        started += 1
    return stage, started


@given(st.integers(0, 2**32))
def test_it_takes_what_a_plain_list_takes(seed):
    rng = random.Random(seed)
    keys = [rng.randint(-5, 5) for _ in range(rng.randint(1, MOST))]
    sample, skill = rng.randint(2, 5), Skill(0.5)
    queue = TwoOrders(skill, sample, lambda request: 1, len(keys))
    prompts = [1 + request % 3 for request in range(len(keys))]
    waiting, served, started, arrived = [], [], 0, 0
    while arrived < len(keys) or waiting:
        for _ in range(rng.randint(0, 2 * _FEW)):
            if arrived < len(keys):
                queue.add(arrived, 0, keys[arrived], 1)
                waiting.append((keys[arrived], arrived))
                arrived += 1
        skill.trusted = rng.random() < 0.7
        clients, tokens = range(rng.randint(1, _FEW)), rng.randint(3, 99)
        expected, started = plain(waiting, clients, skill.trusted, sample, started, tokens)
        stage, places = queue.fill(clients, batch_of(prompts, tokens))
        assert stage == expected
        assert places == list(clients)[: len(stage)]
        assert queue.queued == len(waiting)
        served += stage
    assert sorted(served) == list(range(len(keys)))
