"""The two loops of the search of unit rounds' states against what they are to find, tried out.

A token too many in them leaves most optima as they are: each loop is compared by itself, and the
whole search on draws that were looked for, where a loop that is off by a token loses the optimum.
"""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from orsched.certificates.unit_rounds import UnitRounds
from orsched.models.unit_rounds_prices import no_prices, search_prices
from orsched.models.unit_rounds_states import StateSearch, bounds, dominated
from tests.models.test_unit_rounds_search import one_by_one
from tests.models.test_unit_rounds_states import literal_optimum


def drawn(seed):
    """Three requests, a round, and what others hold from then on, whatever it is."""
    draw = random.Random(seed)
    memory = draw.randint(5, 10)
    prompts = [draw.randint(1, 4) for _ in range(3)]
    outputs = [draw.randint(1, memory - s) for s in prompts]
    load = [draw.randint(0, memory) for _ in range(max(outputs))]
    arrivals, t = [draw.randint(0, 5) for _ in range(3)], draw.randint(0, 3)
    return UnitRounds(tuple(prompts), tuple(outputs), tuple(arrivals), memory), t, load


def kernel(problem, t, load, started, least, prices):
    """What the loop says of one state: least price of the rest, and tokens that are of no use."""
    columns = (np.array(each) for each in (problem.prompts, problem.outputs, problem.arrivals))
    held = np.array([load], np.int16)
    usable, rest = held.copy(), np.zeros(1, np.int64)
    bounds(
        np.array([started]), held, t, *columns, problem.memory, least, prices, usable, rest
    )  # fmt: skip
    return int(rest[0]), usable[0].tolist()


def starts_that_fit(problem, i, t, load):
    """Starts of a request that fit beside what is held, some with all memory for it included."""
    for start in range(max(t, problem.arrivals[i]), t + len(load) + max(problem.arrivals) + 1):
        rounds = range(start - t, start - t + problem.outputs[i])
        ages = enumerate(rounds, 1)
        held = [(load[k] if k < len(load) else 0) + problem.prompts[i] + age for age, k in ages]
        if max(held) <= problem.memory:
            yield start


def loads(problem, i, start, t, reach):
    """Tokens that a request holds in each round from t on."""
    ages = [t + k - start + 1 for k in range(reach)]
    return [problem.prompts[i] + age if 0 < age <= problem.outputs[i] else 0 for age in ages]


@pytest.mark.parametrize("seed", range(300))
def test_one_that_waits_pays_for_its_first_start_that_fits(seed):
    problem, t, load = drawn(seed)
    least = np.tile(np.arange(100), (3, 1))
    rest, _ = kernel(problem, t, load, 0b110, least, np.zeros(100, np.int64))
    assert rest == next(starts_that_fit(problem, 0, t, load))


@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_others_do_they_use_no_more_and_pay_no_less(seed):
    problem, t, load = drawn(seed)
    draw, reach = random.Random(seed), len(load)
    prices = np.array([draw.choice([0, 0, 1, 3]) for _ in range(100)])
    table = np.array([[draw.randint(0, 30) for _ in range(100)] for _ in range(3)])
    least = np.minimum.accumulate(table[:, ::-1], axis=1)[:, ::-1].copy()
    rest, usable = kernel(problem, t, load, 0b100, least, prices)
    ways = [list(starts_that_fit(problem, i, t, load)) for i in range(2)]
    for starts in product(*ways):
        both = [loads(problem, i, start, t, reach) for i, start in enumerate(starts)]
        then = [sum(each) for each in zip(load, *both, strict=True)]
        if max(then) > problem.memory:
            continue
        for k in range(reach):
            assert then[k] - load[k] + usable[k] <= problem.memory
        unused = sum(int(prices[t + 1 + k]) * (problem.memory - then[k]) for k in range(reach))
        assert rest <= sum(int(table[i, start]) for i, start in enumerate(starts)) + unused


@pytest.mark.parametrize("seed", range(100))
def test_what_one_can_use_is_what_it_may_hold(seed):
    """Of one alone: nothing before it begins or below its first tokens, then one more a round."""
    problem, t, load = drawn(seed)
    none = np.zeros(100, np.int64)
    _, usable = kernel(problem, t, load, 0b110, np.tile(none, (3, 1)), none)
    begin = next(starts_that_fit(problem, 0, t, load))
    for k, held in enumerate(load):
        first, free = problem.prompts[0] + 1, problem.memory - held
        most = problem.prompts[0] + min(t + k + 1 - begin, problem.outputs[0])
        of_use = [each for each in range(first, most + 1) if each <= free and t + k >= begin]
        assert usable[k] == problem.memory - max(of_use, default=0)


@pytest.mark.parametrize("seed", range(60))
def test_left_out_is_what_another_one_is_no_worse_than(seed):
    draw = np.random.default_rng(seed)
    n = 12
    started, cost = draw.integers(0, 2, n), draw.integers(0, 4, n)
    usable = draw.integers(3, 6, (n, 3)).astype(np.int16)
    order = np.lexsort((cost, started))
    worse = np.zeros(n, bool)
    dominated(order, started, usable, worse, n)
    for place, b in enumerate(order):
        no_worse = [
            a
            for a in order[:place]
            if started[a] == started[b] and cost[a] <= cost[b] and (usable[a] <= usable[b]).all()
        ]
        assert worse[b] == bool(no_worse)


LOOKED_FOR = (
    # prompts, outputs, arrivals, memory; what loses the optimum there
    ([3, 5, 1, 4, 2], [11, 1, 3, 2, 6], [1, 0, 1, 2, 0], 14),  # left out beside a token more
    ([5, 2, 3], [1, 1, 4], [0, 1, 0], 7),  # others are said to use a token less
    ([1, 2, 3, 1], [4, 3, 1, 1], [1, 0, 1, 1], 5),  # the same
    ([1, 5, 4, 5, 4], [4, 3, 3, 3, 4], [2, 0, 0, 1, 1], 10),  # others hold a token more at least
    ([4, 3, 2, 5, 3, 2], [2, 2, 4, 1, 3, 6], [0, 0, 1, 2, 0, 0], 8),  # the same
)


@pytest.mark.parametrize("case", LOOKED_FOR)
def test_a_token_more_would_lose_the_optimum(case):
    prompts, outputs, arrivals, memory = case
    problem = UnitRounds(tuple(prompts), tuple(outputs), tuple(arrivals), memory)
    known = one_by_one(outputs, arrivals)
    optimum = literal_optimum(problem)
    for prices in (no_prices(), search_prices(problem, max(known) + max(outputs) + 1)):
        search = StateSearch(problem, prices, known)
        assert search.run()
        assert search.best == sum(search.starts) == optimum
