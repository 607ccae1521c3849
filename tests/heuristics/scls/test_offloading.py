"""The max-min offloader on its own."""

import random
from itertools import product

import pytest

import orsched
from tests.refusals import refused
from tests.seeds import seeds


def least(costs, start):
    """Return the least largest load, by trying every assignment."""
    found = []
    for places in product(range(len(start)), repeat=len(costs)):
        loads = list(start)
        for row, worker in zip(costs, places, strict=True):
            loads[worker] += row[worker]
        found.append(max(loads))
    return min(found)


@pytest.mark.parametrize("seed", seeds(8, 30))
def test_the_bound_is_below_the_optimum_and_the_loads_are_what_was_assigned(seed):
    rng = random.Random(seed)
    n, w = rng.randint(0, 6), rng.randint(1, 3)
    start = [rng.randint(0, 9) * (seed % 2) for _ in range(w)]
    equal = seed % 3 > 0
    costs = [[rng.randint(0, 20)] * w if equal else [rng.randint(0, 20) for _ in range(w)]
             for _ in range(n)]  # fmt: skip
    given = [row[0] for row in costs] if equal else costs
    found = orsched.offload(given, w, start)
    optimum = least(costs, start)
    assert found.bound <= optimum <= found.makespan == max(found.loads)
    loads = list(start)
    for row, worker in zip(costs, found.assignment, strict=True):
        loads[worker] += row[worker]
    assert loads == found.loads
    if equal and not any(start):
        assert 3 * w * found.makespan <= (4 * w - 1) * optimum


def test_the_largest_goes_to_the_least_loaded_and_loads_count():
    found = orsched.offload([3, 7, 5], loads=[6, 0])  # 7 to 0, then 5 to 6, then 3 to 7
    assert (found.assignment, found.loads, found.makespan) == ([1, 1, 0], [11, 10], 11)
    assert found.to_pandas()["cost"].tolist() == [3, 7, 5]
    assert repr(found) == "Offloading(makespan=11, bound=11)"
    unequal = orsched.offload([[4, 1], [2, 9]])
    assert (unequal.assignment, unequal.loads, unequal.bound) == ([1, 0], [2, 1], 2)


@pytest.mark.parametrize(("words", "arguments"), [
    ("nothing says how many", ([1, 2],)),
    ("nothing says how many", ([1, 2], None, [])),
    ("0 is below 1", ([1, 2], 0)),
    ("0.5 is not a whole number", ([0.5], 2)),
    ("-1", ([-1], 2)),
    ("differs: 3 by workers, 2 by loads", ([1], 3, [0, 0])),
    ("1 costs where the first job has 2", ([[1, 2], [3]],)),
    ("is not a whole number", ([1, [2]], 2)),
])  # fmt: skip
def test_what_is_refused(words, arguments):
    refused(words, orsched.offload, *arguments, kind=orsched.InputError)
