"""The program over paths against every set of paths, and the repair of what falls short."""

from __future__ import annotations

from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest

from orsched.instances.synthetic import gsm8k
from orsched.models.windows.path_program import PathProgram, PathRepair
from orsched.models.windows.stage_prices import terms_of
from orsched.models.windows.state_changes import (
    anchored_times,
    construct,
    even_times,
    lengthened,
    merged,
    stretched,
)
from orsched.models.windows.window_state import Cooling, Windows, anneal


def _all_paths(stages):
    return [c for size in range(1, stages + 1) for c in combinations(range(stages), size)]


def _least_missing(lengths, times, clients, capacity):
    """V under the best of all sets of paths, one by one."""
    stages, best = len(times) - 1, None
    for used in range(1, clients + 1):
        for paths in combinations_with_replacement(_all_paths(stages), used):
            starts = [stage for path in paths for stage in path]
            if len(starts) != len(lengths):
                continue
            if any(starts.count(k) > capacity[k] for k in range(stages)):
                continue
            state = Windows(lengths, times[:-1], times[-1], paths)
            best = state.missing if best is None else min(best, state.missing)
    return best


@pytest.mark.parametrize("seed", range(25))
def test_whole_paths_are_the_best_of_all(seed):
    """On tiny cases the program finds the least V of all sets of paths; the relaxation is below."""
    rng = np.random.default_rng(seed)
    stages, clients = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    gaps = rng.integers(1, 9, stages)
    times = [0, *np.cumsum(gaps).tolist()]
    n = int(rng.integers(1, clients * stages + 1))
    lengths = rng.integers(1, int(times[-1]) + 2, n)
    capacity = rng.integers(1, clients + 1, stages).tolist()
    program = PathProgram(lengths, clients, 1, 1, 1)
    found = program.whole(times, capacity, 10.0)
    least = _least_missing(lengths, times, clients, capacity)
    if least is None:
        assert found is None
        return
    missing, paths = found
    assert missing == least
    state = Windows(lengths, times[:-1], times[-1], paths)
    assert state.missing == missing
    assert all(state.tables.counts[k] <= capacity[k] for k in range(stages))
    relaxed = program.relaxed(times, capacity)
    assert relaxed.missing <= least + 1e-6
    assert np.all(np.diff(relaxed.worth) >= -1e-9)


def test_prices_tell_what_a_capacity_is_worth():
    """One start a stage, two requests that need the first one: a place there is worth rounds."""
    lengths = np.array([10, 10])
    program = PathProgram(lengths, 2, 1, 1, 1)
    relaxed = program.relaxed([0, 4, 10], [1, 1])
    assert relaxed.missing == pytest.approx(4)
    assert relaxed.room[0] == pytest.approx(4)
    assert program.relaxed([0, 4, 10], [2, 1]).missing == pytest.approx(0)


def _short_state(seed, end_above):
    instance = gsm8k(seed, requests=160, clients=40)
    terms = terms_of(instance)
    end = terms.rounds + end_above
    prices, lengths = terms.prices, instance.rounds_needed
    assert prices.by_tokens
    times = anchored_times(10, end, int(lengths.max()))
    state = construct(lengths, 40, times, end, prices.by_starts, prices.late)
    anneal(state, Cooling(30_000, 3.0, 0.15), np.random.default_rng(seed), lambda: False)
    repair = PathRepair(lengths, instance.requests.prompt_tokens, 40, prices)
    return state, repair


@pytest.mark.parametrize("seed", range(3))
def test_repair_keeps_the_end_and_less_is_missing(seed):
    """Better paths at the same moments, with all windows."""
    state, repair = _short_state(seed, 5)
    before = state.copy()
    made = repair(state, 10.0)
    assert state.tables == before.tables
    assert made is not None
    assert made.end == state.end
    assert len(made.tables.start) == len(state.tables.start)
    assert set(made.tables.times) <= set(state.tables.times)
    assert len(made.paths()) <= 40
    assert made.missing < state.missing


def test_lengthened_has_so_many_rounds_more():
    """As stretched does, but by a number of rounds; what is missing falls."""
    state, _ = _short_state(0, 4)
    assert state.missing > 0
    longer = lengthened(state, 2)
    assert longer.end == state.end + 2
    assert longer.missing < state.missing
    assert longer.paths_of_stages() == state.paths_of_stages()


def test_stages_of_one_time_are_one_when_carried_out():
    """Two stages at one time become one, with the starts of both; a client in both keeps both."""
    lengths = np.array([5, 5, 5, 5])
    state = Windows(lengths, [0, 5, 5], 10, [[0, 1], [0, 2]])
    one = merged(state)
    assert one.tables.counts == [2, 2]
    assert one.spans().tolist() == [5, 5, 5, 5]
    twice = Windows(np.array([0, 5, 5]), [0, 5, 5], 10, [[0, 1, 2]])
    assert merged(twice) is twice


def test_anchors_are_whole_longest_requests_from_both_ends():
    """The others lie evenly; few stages keep the earliest anchors."""
    assert anchored_times(7, 1100, 500) == sorted([0, 100, 500, 600, 1000, 366, 733])
    assert anchored_times(2, 1100, 500) == [0, 100]
    assert len(anchored_times(12, 1100, 500)) == 12


def test_late_stages_have_prices_of_their_own():
    """A stage after which no longest request fits is late, and a move across that line pays."""
    lengths = np.array([10, 4, 4, 4])
    state = Windows(lengths, [0, 8, 14], 20, [[0, 1], [0, 2]], (0, 5, 6, 7, 8), (0, 1, 2, 3, 4))
    assert state.tables.spent[0] == 6 + 5 + 1
    stretched(state, 5)
    later = Windows(lengths, [0, 12, 14], 20, [[0, 1], [0, 2]], (0, 5, 6, 7, 8), (0, 1, 2, 3, 4))
    assert later.tables.spent[0] == 6 + 1 + 1


def test_token_rows_price_what_a_stage_wastes():
    """At least a token's share in a full stage each start; no more where stages can be filled."""
    instance = gsm8k(50)
    terms = terms_of(instance)
    prices, mean = terms.prices, instance.requests.prompt_tokens.mean()
    starts = np.arange(len(prices.by_starts))
    line = starts * mean * terms.stage_ns / 2048 / prices.unit_ns
    for row in (np.array(prices.by_starts), np.array(prices.late)):
        assert np.all(row >= line - 1)
    assert abs(prices.by_starts[30] - line[30]) <= 1
    assert prices.by_starts[1] == round(terms.stage_ns / prices.unit_ns)
    assert sum(prices.late) >= sum(prices.by_starts)
    assert even_times(2, 10) == [0, 5]
