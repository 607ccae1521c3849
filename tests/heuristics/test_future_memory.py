"""What future caches fill, against a count of every round."""

from __future__ import annotations

import random

import pytest

from orsched.heuristics.mc_sf import FutureMemory


def filled(caches, size, moment):
    return sum(-(-(base + moment) // size) for base, end in caches.values() if moment <= end)


def within(caches, size, blocks, now):
    last = max((end for _, end in caches.values()), default=now)
    return all(filled(caches, size, moment) <= blocks for moment in range(now, last + 1))


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("seed", range(10))
def test_fits_is_within_the_memory_in_every_round(seed, size):
    """Additions, removals and extensions in any order, as rounds pass."""
    draw = random.Random(seed)
    memory, caches, now = FutureMemory(draw.randint(5, 30) // size + 1, size), {}, 0
    answers = set()
    for request in range(60):
        base, end = draw.randint(1, 9) - now, now + draw.randint(0, 9)
        trial = {**caches, request: (base, end)}
        fits = within(trial, size, memory.blocks, now)
        assert memory.add(request, base, end, always=False) == fits
        answers.add(fits)
        if fits:
            caches = trial
        now += draw.randint(0, 2)
        for each, (base, end) in list(caches.items()):
            if end <= now and draw.random() < 0.7:
                memory.drop(each)
                del caches[each]
            elif end <= now:  # longer than it was expected to be
                caches[each] = (base, now + 1)
        memory.extend(now)
        while not within(caches, size, memory.blocks, now):
            gone = next(iter(caches))
            memory.drop(gone)
            del caches[gone]
        if caches:
            assert memory.first_end == min(end for _, end in caches.values())
    assert answers == {True, False}
