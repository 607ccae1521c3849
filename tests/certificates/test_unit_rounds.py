"""Prices of rounds: rows hold in every schedule, bounds are below all of them, forgeries fail."""

from __future__ import annotations

import random

import numpy as np
import pytest

from orsched.certificates.unit_rounds import (
    GRID,
    Prices,
    UnitRounds,
    bound,
    constant,
    costs,
    levels_of,
)
from tests.heuristics.lookahead.literal import held
from tests.models.test_unit_rounds import least_total, tiny


def schedule_of(problem, draw):
    """Return starts of a random schedule: each as early as it fits, or a few rounds later."""
    starts = {}
    for i in draw.sample(range(len(problem)), len(problem)):
        starts[i] = problem.arrivals[i] + draw.choice([0, 0, 0, 1, 3])
        while not all(
            held(problem.prompts, problem.outputs, starts, t) <= problem.memory
            for t in range(starts[i] + 1, starts[i] + problem.outputs[i] + 1)
        ):
            starts[i] += 1
    return [starts[i] for i in range(len(problem))]


def drawn(seed):
    draw = random.Random(seed)
    memory, n = draw.randint(8, 24), draw.randint(3, 8)
    prompts = [draw.randint(1, draw.choice([1, 2, memory // 4, memory // 2])) for _ in range(n)]
    outputs = [draw.randint(1, memory - s) for s in prompts]
    arrivals = [draw.choice([0, 0, 0, 3]) for _ in range(n)]
    return UnitRounds(tuple(prompts), tuple(outputs), tuple(arrivals), memory), draw


def one_row(k, q, length):
    column = [0] * length
    column[q] = 1
    return Prices(1, (), {k: tuple(column)})


@pytest.mark.parametrize("seed", range(60))
def test_level_rows_hold_in_every_schedule(seed):
    """The counts of each row sum to at most k, in schedules that fill the memory."""
    problem, draw = drawn(seed)
    schedules = [schedule_of(problem, draw) for _ in range(40)]
    rounds = max(map(max, schedules)) + 1
    length = GRID * (rounds + max(problem.outputs))
    for k in levels_of(problem):
        for q in draw.sample(range(length), min(length, 40)):
            table = costs(problem, one_row(k, q, length), rounds) - np.arange(rounds)
            assert table.min() >= 0
            for starts in schedules:
                assert sum(table[i, start] for i, start in enumerate(starts)) <= k


def test_two_large_requests_end_apart():
    """M = 10, peaks 9 and 8: ends at least 7 apart, and 7 apart is feasible."""
    problem = UnitRounds((1, 1), (8, 7), (0, 0), 10)
    apart, long_ends = [], range(8, 20)
    for end in long_ends:
        rows = [one_row(1, q, 200) for q in range(120)]
        counts = [costs(problem, row, 30) - np.arange(30) for row in rows]
        both = [
            other
            for other in range(end, 29)
            if all(table[0, end - 8] + table[1, other - 7] <= 1 for table in counts)
        ]
        apart.append(min(both) - end)
    assert set(apart) == {7}


@pytest.mark.parametrize("seed", range(25))
def test_bounds_are_below_the_optimum_whatever_the_prices(seed):
    prompts, outputs, arrivals, memory = tiny(seed)
    problem = UnitRounds(tuple(prompts), tuple(outputs), tuple(arrivals), memory)
    run = sum(outputs) - sum(arrivals)
    optimum, draw = least_total(prompts, outputs, arrivals, memory), random.Random(seed)
    assert bound(problem, Prices(1, (), {})) == sum(arrivals)
    for _ in range(60):
        top = draw.choice([1, 3, 30])
        held_prices = tuple(draw.randrange(top) for _ in range(draw.randint(0, 12)))
        levels = {
            k: tuple(draw.choice([0, draw.randrange(10 * top)]) for _ in range(40))
            for k in levels_of(problem)
        }
        prices = Prices(draw.choice([1, 8, 64]), held_prices, levels)
        assert bound(problem, prices) + run <= optimum


def test_prices_prove_that_one_waits():
    """M = 3, two of (1, 2): at 3 a round, starts at 0 and 1 pay 5, at 2 they pay 6.

    The memory of rounds 1 and 2 is worth 6, so that the sum of starts is at least 4 / 3.
    """
    problem, prices = UnitRounds((1, 1), (2, 2), (0, 0), 3), Prices(3, (0, 1, 1), {})
    assert costs(problem, prices, 3).tolist() == [[5, 5, 6]] * 2
    assert constant(problem, prices) == 6
    assert bound(problem, prices) == 2 == least_total([1, 1], [2, 2], [0, 0], 3) - 4


@pytest.mark.parametrize(
    "prices",
    [
        Prices(0, (1,), {}),
        Prices(True, (1,), {}),
        Prices(4, (-1,), {}),
        Prices(4, (1.5,), {}),
        Prices(4, (True,), {}),
        Prices(4, (2**60,), {}),
        Prices(4, (), {4: (1,)}),
        Prices(4, (), {2: (1,)}),
        Prices(4, (), {1: (1, -1)}),
    ],
)
def test_forged_prices_are_refused(prices):
    """Level 2 does not hold here: the prompt is longer than a third of the memory."""
    problem = UnitRounds((4, 1), (3, 5), (0, 0), 10)
    assert levels_of(problem) == [1]
    with pytest.raises(ValueError, match=r"scale|price|level"):
        bound(problem, prices)
