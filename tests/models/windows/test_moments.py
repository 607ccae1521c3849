"""Moments moved by prices: the program beside a fresh one, its bounds, and the search over it."""

import math
from itertools import combinations, combinations_with_replacement
from types import SimpleNamespace

import numpy as np
import pyscipopt
import pytest

import orsched
from orsched.instances.synthetic import gsm8k
from orsched.models.windows import moment_program, moment_search, window_moves, window_search
from orsched.models.windows.moment_program import SHIFTS, Change, MomentProgram
from orsched.models.windows.moment_search import NOTHING, MomentSearch
from orsched.models.windows.path_program import PathProgram, PathRepair
from orsched.models.windows.stage_prices import prices_of, terms_of
from orsched.models.windows.state_changes import (
    anchored_times,
    construct,
    even_times,
    lengthened,
    merged,
    stretched,
)
from orsched.models.windows.window_requests import Assigned, RequestSwaps
from orsched.models.windows.window_state import Cooling, Windows, anneal
from tests.seeds import seeds
from tests.stops import TimeUp


def _case(seed, requests=160, clients=40):
    if not moment_program.can_set_bases():
        pytest.skip("this PySCIPOpt takes no basis")
    instance = gsm8k(seed, requests=requests, clients=clients)
    terms = terms_of(instance)
    assert terms.prices.by_tokens
    prompts = instance.requests.prompt_tokens
    repair = PathRepair(instance.rounds_needed, prompts, clients, terms.prices)
    return MomentSearch(repair.program, repair.full, terms, seed), terms


def _fresh(search, terms, above):
    target = search._fresh(int(terms.least * (1 + above)), 4)
    return MomentProgram(search.program, target.times, target.capacity, target.end)


def _change(now, rng, full):
    """A moment shifted, or one stage of it moved to another time."""
    slot = int(rng.choice([slot for slot in now.used if now.times[slot] > 0]))
    if rng.random() < 0.5:
        time, moved = now.times[slot] + int(rng.choice(SHIFTS)), now.capacity[slot]
    else:
        time, moved = int(rng.integers(1, now.end)), full
    if not 0 < time < now.end:
        return None
    left = now.capacity[slot] - moved
    return [Change(now.empty(1)[0], time, moved), Change(slot, now.times[slot], left)]


def _solved_anew(now):
    moments = now.moments()
    times = [*(time for time, _ in moments), now.end]
    return now.program.relaxed(times, [held for _, held in moments]).missing


@pytest.mark.parametrize("seed", range(3))
def test_moved_moments_have_the_value_of_a_program_built_anew(seed):
    """Whether a change is kept or not; one that is not leaves everything as it was."""
    search, terms = _case(seed)
    now, rng = _fresh(search, terms, 0.01), np.random.default_rng(seed)
    kept = 0
    for _ in range(25):
        if not now.empty(1):
            break
        changes, before = _change(now, rng, search.full), (now.value, now.moments())
        if changes is None:
            continue
        if now.attempt(changes, before[0] + 5):
            kept += 1
            assert now.value <= before[0] + 5
        else:
            assert (now.value, now.moments()) == before
        assert now.value == pytest.approx(_solved_anew(now), abs=1e-4)
    assert kept > 3


@pytest.mark.parametrize("seed", range(3))
def test_no_change_gains_more_than_the_prices_promise(seed):
    search, terms = _case(seed)
    rng = np.random.default_rng(seed)
    search.now = _fresh(search, terms, 0.01)
    bounds = []
    for _ in range(15):
        if not search.now.empty(1):
            break
        changes = _change(search.now, rng, search.full)
        if changes is None:
            continue
        bound, before = search._bound(changes), search.now.value
        if search.now.attempt(changes, math.inf):
            assert bound <= search.now.value + 1e-4
            bounds.append(bound - before)
        search._prices = None
    assert min(bounds) < 0 < max(map(abs, bounds))


def test_what_is_missing_falls_and_whole_paths_keep_the_end(monkeypatch):
    """From first moments at 1 % above the bound down to nothing that is missing."""
    clock = iter(range(10**6))
    monkeypatch.setattr(moment_search, "perf_counter", lambda: next(clock) * 1e-3)
    search, terms = _case(0)
    heuristic = int(terms.least * 1.06)
    left = iter(range(10**6, 0, -1))
    found = search(heuristic, lambda: heuristic, lambda: 30.0, lambda: next(left) < 10**6 - 3000)
    state = found.state
    assert len(found.stages) == state.stages
    assert (len(state.tables.start), len(state.paths()) <= 40) == (160, True)
    assert search._estimate(search.best) < terms.least * 1.02
    assert state.end >= terms.rounds
    assert state.missing < 40


def test_targets_with_less_keep_to_the_bounds():
    search, terms = _case(1)
    least = terms.stages_ns // terms.stage_ns
    search.now = _fresh(search, terms, 0.01)
    here = search._target()
    found = search._less(here)
    assert {target.end for target in found} == {here.end, here.end - 1}
    for target in found:
        gain = search._estimate(here) - search._estimate(target)
        assert gain in (terms.stage_ns, terms.round_ns)
        assert max(target.times) < target.end
    here.end = terms.rounds
    assert all(target.end == terms.rounds for target in search._less(here))
    others = len(here.times) - 1
    here.capacity = [search.full * (least - others), *[search.full] * others]
    assert search._less(here) == []
    assert NOTHING < 1


def test_without_bases_no_thread_searches_moments(monkeypatch):
    assert moment_program.can_set_bases() == hasattr(pyscipopt.LP, "setBase")
    with monkeypatch.context() as patched:
        patched.setattr(pyscipopt, "LP", object)
        assert not moment_program.can_set_bases()
    monkeypatch.setattr(window_search, "can_set_bases", lambda: False)
    monkeypatch.setattr(window_search, "MomentSearch", None)  # would be called, and fail
    monkeypatch.setattr(window_search, "LEAST_FOR_MOMENTS_S", 0.0)
    instance = gsm8k(0, requests=160, clients=40)
    result = orsched.solve(instance, "windows+threads=2", stop=TimeUp(2, seconds=1.0))
    assert result.makespan_ns <= orsched.solve(instance, "hybrid").makespan_ns


@pytest.mark.parametrize("planned", [(), (1, 1)])
def test_stages_are_squeezed_out_until_volume_forbids_it(planned):
    """Two long and two short prompts: three stages as they stand, two once two are swapped."""
    prompts, lengths, stage = np.array([60, 60, 40, 40]), np.full(4, 5), np.array([0, 0, 1, 1])
    prices = prices_of([(100, 1_000)], prompts, 2, 10)
    found = Assigned(np.arange(4), stage, 3_000)
    rng, fast = np.random.default_rng(0), SimpleNamespace(module=window_moves)
    made = RequestSwaps(lengths, prompts, prices, rng, fast).squeezed(found, lengths, planned)
    load = np.bincount(made.stage, weights=prompts[made.request])
    assert load.tolist() == [100, 100]
    assert made.time_ns == 2_000
    assert sorted(made.request) == [0, 1, 2, 3]


def _all_paths(stages):
    return [c for size in range(1, stages + 1) for c in combinations(range(stages), size)]


def _least_missing(lengths, times, clients, capacity):
    """V under the best of all sets of paths, one by one."""
    stages, found = len(times) - 1, []
    for used in range(1, clients + 1):
        for paths in combinations_with_replacement(_all_paths(stages), used):
            starts = [stage for path in paths for stage in path]
            fits = all(starts.count(k) <= capacity[k] for k in range(stages))
            if fits and len(starts) == len(lengths):
                found.append(Windows(lengths, times[:-1], times[-1], paths).missing)
    return min(found, default=None)


@pytest.mark.parametrize("seed", seeds(8, 25))
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
    state = Windows(lengths, times[:-1], times[-1], paths)
    assert missing == state.missing == least
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
    assert made.end == state.end
    assert len(made.tables.start) == len(state.tables.start)
    assert set(made.tables.times) <= set(state.tables.times)
    assert len(made.paths()) <= 40
    assert made.missing < state.missing


def test_lengthened_has_so_many_rounds_more():
    """As stretched does, but by a number of rounds; what is missing falls."""
    state, _ = _short_state(0, 4)
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
    rows = (0, 5, 6, 7, 8), (0, 1, 2, 3, 4)
    for second, spent in ((8, 6 + 5 + 1), (12, 6 + 1 + 1)):
        state = Windows(np.array([10, 4, 4, 4]), [0, second, 14], 20, [[0, 1], [0, 2]], *rows)
        assert state.tables.spent[0] == spent
        stretched(state, 5)


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
