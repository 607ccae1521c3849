"""The search of all states of unit rounds: against all starts, stopped, narrow, and compiled."""

from __future__ import annotations

import random
from functools import cache
from itertools import zip_longest

import pytest

from orsched.certificates.unit_rounds import UnitRounds, bound
from orsched.instances.catalog import generate
from orsched.instances.unit_rounds import unit_instance
from orsched.models import unit_rounds_states
from orsched.models.unit_rounds import hindsight_optimum, problem_of
from orsched.models.unit_rounds_prices import no_prices, search_prices
from orsched.models.unit_rounds_states import StateSearch
from tests.heuristics.lookahead.literal import held
from tests.models.test_unit_rounds import least_total, tiny
from tests.models.test_unit_rounds_search import drawn, one_by_one


def problem_from(prompts, outputs, arrivals, memory):
    return UnitRounds(tuple(prompts), tuple(outputs), tuple(arrivals), memory)


def literal_optimum(problem):
    """Least sum of starts over every choice of who starts in each round, without any shortcut."""
    n, memory = len(problem), problem.memory
    holds = [[s + age for age in range(1, o + 1)]
             for s, o in zip(problem.prompts, problem.outputs, strict=True)]  # fmt: skip

    @cache
    def least(t, waiting, held):
        if not waiting:
            return 0
        found = []
        for who in range(waiting + 1):
            if who & ~waiting:
                continue
            chosen = [i for i in range(n) if who >> i & 1]
            if any(problem.arrivals[i] > t for i in chosen):
                continue
            if not (who or any(held)) and t >= max(problem.arrivals):
                continue  # nobody would ever start
            load = list(held)
            for i in chosen:
                load = [a + b for a, b in zip_longest(load, holds[i], fillvalue=0)]
            if max(load, default=0) <= memory:
                after = least(t + 1, waiting & ~who, tuple(load[1:]))
                found.append(after + t * len(chosen))
        return min(found)

    return least(0, (1 << n) - 1, ())


@pytest.mark.parametrize("seed", range(12))
def test_no_shortcut_loses_the_best(seed):
    draw = random.Random(seed)
    memory = draw.randint(8, 13)
    n = draw.randint(5, 6)
    prompts = [draw.randint(1, 3) for _ in range(n)]
    outputs = [draw.randint(1, memory - s) for s in prompts]
    problem = problem_from(prompts, outputs, [draw.choice([0, 0, 0, 2]) for _ in range(n)], memory)
    known = one_by_one(outputs, problem.arrivals)
    rounds = max(known) + max(outputs) + 1
    optimum = literal_optimum(problem)
    for prices in (no_prices(), search_prices(problem, rounds)):
        search = StateSearch(problem, prices, known)
        assert search.run()
        assert search.best == optimum


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("priced", [False, True])
def test_it_finds_the_best_of_all_starts(seed, priced):
    case = tiny(seed)
    problem = problem_from(*case)
    known = one_by_one(case[1], case[2])
    run = sum(case[1]) - sum(case[2])
    rounds = max(known) + max(case[1]) + 1
    prices = search_prices(problem, rounds) if priced else no_prices()
    search = StateSearch(problem, prices, known)
    assert search.run()
    assert search.best == search.bound == sum(search.starts)
    assert search.best + run == least_total(*case)


@pytest.mark.parametrize("seed", range(12))
def test_prices_change_the_work_and_not_the_optimum(seed):
    prompts, outputs, arrivals, memory = drawn(seed)
    problem = problem_from(prompts, outputs, arrivals, memory)
    known = one_by_one(outputs, arrivals)
    rounds = max(known) + max(outputs) + 1
    prices = search_prices(problem, rounds)
    guided, plain = (StateSearch(problem, each, known) for each in (prices, no_prices()))
    assert guided.run()
    assert plain.run()
    assert bound(problem, prices) <= guided.best == plain.best
    starts = dict(enumerate(guided.starts))
    for i, start in starts.items():
        assert start >= arrivals[i]
        assert held(prompts, outputs, starts, start + outputs[i]) <= memory


def test_idling_for_a_late_arrival_may_be_best():
    """M = 9: the long one at 0 would hold the short one up from round 1 to 8."""
    problem = problem_from([1, 7], [8, 2], [0, 1], 9)
    search = StateSearch(problem, no_prices(), [0, 8])
    assert search.run()
    assert (search.best, search.starts) == (4, [3, 1])
    assert literal_optimum(problem) == 4


def test_memory_of_more_than_short_numbers_is_not_searched():
    instance = unit_instance([9000] * 3, [3, 2, 1], [0, 0, 0], 20_000)
    found = hindsight_optimum(instance, time_limit=5)
    assert found.bound <= found.total == 3 + 2 + 1 + 1


def test_stopped_it_knows_a_bound():
    """However few states are allowed, the bound is no more than the optimum."""
    problem = problem_of(generate("unit-rounds", seed=2, requests=8, memory_tokens=15))
    known = one_by_one(problem.outputs, problem.arrivals)
    prices = search_prices(problem, 60)
    whole = StateSearch(problem, prices, known)
    assert whole.run()
    bounds = []
    for most in (1, 10, 100, 1000):
        search = StateSearch(problem, prices, known, most=most)
        proven = search.run()
        assert proven == (search.bound == search.best)
        assert bound(problem, prices) <= search.bound <= whole.best <= search.best
        bounds.append(search.bound)
    assert bounds[0] < whole.best
    assert not StateSearch(problem, prices, known).run(time_limit=0)


def test_narrow_it_is_a_search_that_proves_nothing():
    problem = problem_of(generate("unit-rounds", seed=2, requests=8, memory_tokens=15))
    known = one_by_one(problem.outputs, problem.arrivals)
    narrow = StateSearch(problem, search_prices(problem, 60), known, width=5)
    assert not narrow.run()
    assert narrow.bound == 0
    whole = StateSearch(problem, no_prices(), known)
    assert whole.run()
    assert whole.best <= narrow.best == sum(narrow.starts) < sum(known)


def test_compiled_and_plain_find_the_same(monkeypatch):
    pytest.importorskip("numba")
    problem = problem_of(generate("unit-rounds", seed=0, requests=7, memory_tokens=15))
    known = one_by_one(problem.outputs, problem.arrivals)
    prices = search_prices(problem, 80)
    plain = StateSearch(problem, prices, known)
    assert plain.run()
    monkeypatch.setattr(unit_rounds_states, "_PLAIN", 0)
    compiled = StateSearch(problem, prices, known)
    assert compiled.run()
    assert (plain.best, plain.starts) == (compiled.best, compiled.starts)


@pytest.mark.parametrize(("seed", "starts"), [(0, 128), (1, 152), (2, 299)])
def test_twelve_requests_are_proven(seed, starts):
    """A first program of states, without begins and what is usable, had the same sums of starts."""
    pytest.importorskip("numba")
    instance = generate("unit-rounds", seed=seed, requests=12, memory_tokens=20)
    found = hindsight_optimum(instance)
    problem = problem_of(instance)
    assert found.optimal
    assert sum(found.starts) == starts
    assert bound(problem, found.prices) < starts
    held_then = dict(enumerate(found.starts))
    for i, start in held_then.items():
        end = start + problem.outputs[i]
        assert held(problem.prompts, problem.outputs, held_then, end) <= problem.memory


def test_with_more_requests_than_bits_prices_are_all():
    instance = generate("unit-rounds", seed=0, requests=63, memory_tokens=6)
    found = hindsight_optimum(instance, time_limit=20)
    problem = problem_of(instance)
    assert found.bound == bound(problem, found.prices) + sum(problem.outputs) <= found.total
