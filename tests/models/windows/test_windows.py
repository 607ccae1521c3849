"""Stage windows: the state's bookkeeping, the moves, the plan, and the method as a whole."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched.costs import AffineCost, LevelsCost, PoolingCost
from orsched.errors import InfeasibleError, InputError
from orsched.instance import Instance
from orsched.instances.catalog import KNOWN_OPTIMA
from orsched.instances.gsm8k import gsm8k
from orsched.models.windows.annealing import anneal
from orsched.models.windows.assignment import assign
from orsched.models.windows.compiled import compiled
from orsched.models.windows.construction import construct, even_times, spread, state_of
from orsched.models.windows.moves import exchange_tails, relocate, shift_stage, shift_start
from orsched.models.windows.plan import FollowPlan, plan_of
from orsched.models.windows.squeezing import SQUEEZES, with_end
from orsched.models.windows.structure import Windows
from orsched.models.windows.terms import terms_of
from orsched.requests import Requests
from orsched.simulator import simulate_policy
from orsched.workers import Worker
from tests.brute_force import optimum_ns
from tests.models.full_mip.small import random_instance


@st.composite
def states(draw):
    """Random requests, stage times and levels, with a first state."""
    lengths = np.array(draw(st.lists(st.integers(1, 12), min_size=1, max_size=14)))
    clients = draw(st.integers(1, 4))
    room = sorted(draw(st.lists(st.integers(1, clients), min_size=1, max_size=3)))
    stages = draw(st.integers(-(-len(lengths) // room[0]), len(lengths) + 3))
    end = draw(st.integers(1, 3 * int(lengths.sum())))
    levels = [draw(st.integers(0, len(room) - 1)) for _ in range(stages)]
    times = even_times(stages, draw(st.integers(0, 3)), end)
    return construct(lengths, clients, times, end, levels, room)


def _missing_by_sorting(state):
    spans = sorted(state.spans().tolist(), reverse=True)
    needs = sorted(state.lengths.tolist(), reverse=True)
    return sum(max(0, need - max(0, span)) for need, span in zip(needs, spans, strict=True))


def _check_links(state):
    """Paths cover every window once, in order of stages, and the tables agree with them."""
    tables, paths = state.tables, state.paths()
    windows = range(len(state.lengths))
    assert sorted(w for path in paths for w in path) == list(windows)
    for path in state.paths_of_stages():
        assert path == sorted(path)
    for stage, count in enumerate(tables.counts):
        first = stage * tables.width
        here = tables.at[first : first + count]
        assert sorted(here) == [w for w in windows if tables.start[w] == stage]
        assert [tables.place[w] for w in here] == list(range(count))
    assert sorted(tables.last) == sorted(path[-1] for path in paths)
    assert [tables.last_place[w] for w in tables.last] == list(range(len(paths)))


@given(states())
def test_missing_is_what_the_best_assignment_lacks(state):
    """V by the surplus of lengths equals the shortfall after sorting windows and requests."""
    assert len(state.tables.start) == len(state.lengths)
    assert state.missing == _missing_by_sorting(state)
    _check_links(state)


@given(states(), st.integers(0, 2**32), st.sampled_from([0, 2, 10**9]))
def test_moves_keep_the_books(state, seed, threshold):
    """After any accepted or refused move, increments equal a count from scratch."""
    rng = random.Random(seed)
    kinds = [exchange_tails, partial(_two_draws, shift_start), relocate]
    if state.stages > 1:
        kinds.append(shift_stage)
    before = list(state.tables.counts)
    for _ in range(40):
        change = rng.choice(kinds)(
            state.tables, rng.random(), rng.random(), rng.random(), threshold
        )
        kept, surplus = state.missing + change, list(state.tables.surplus)
        assert change <= threshold
        state.recount()
        assert (state.missing, state.tables.surplus) == (kept, surplus)
        assert state.tables.times == sorted(state.tables.times)
        _check_links(state)
    room = [state.tables.room[level] for level in state.tables.level]
    for count, first, most in zip(state.tables.counts, before, room, strict=True):
        assert count <= max(first, most)


def _two_draws(move, tables, one, two, three, threshold):
    return move(tables, one, two, threshold)


@given(states(), st.sampled_from([s for s in SQUEEZES.values() if s]), st.integers(0, 2**32))
def test_squeezes_keep_the_windows(state, squeeze, seed):
    """A squeeze leaves its state as it is; what it returns has all windows."""
    before = state.copy()
    changed = squeeze(state, random.Random(seed))
    assert state.tables == before.tables
    if changed is None:
        return
    assert len(changed.tables.start) == len(changed.lengths)
    assert changed.missing == _missing_by_sorting(changed)
    _check_links(changed)
    earlier = with_end(changed, max(1, changed.end - 2))
    assert earlier.end == max(1, changed.end - 2)
    assert max(earlier.tables.times) == earlier.end
    assert earlier.missing == _missing_by_sorting(earlier)


@given(states(), st.integers(0, 2**32), st.sampled_from([0.5, 3.0]))
def test_compiled_moves_are_the_plain_ones(state, seed, hot):
    """The same draws lead to the same state, move by move."""
    _compare_executions(state, seed, hot, 3_000)


def _compare_executions(state, seed, hot, moves):
    pytest.importorskip("numba")
    fast = compiled()
    fast.wait()
    assert fast.run_moves is not None
    other = state.copy()
    made = [
        anneal(one, moves, hot, 0.2, np.random.default_rng(seed), lambda: False, how)
        for one, how in ((state, None), (other, fast))
    ]
    assert made[0] == made[1]
    assert state.tables == other.tables
    assert state.missing == other.missing == _missing_by_sorting(state)


@pytest.mark.parametrize("seed", [0, 1])
def test_compiled_moves_are_the_plain_ones_at_full_scale(seed):
    instance = gsm8k(seed)
    order = [0] * 58
    times = even_times(len(order), 7, 2400)
    state = construct(instance.rounds_needed, 200, times, 2400, order, [30])
    first = state.missing
    _compare_executions(state, seed, 3.0, 30_000)
    assert state.missing < first


def test_annealing_closes_a_small_case_and_the_plan_is_a_schedule():
    """Lengths 4, 3, 3, 2 on two clients fit into R = 6 with stages at 0, 3, 4 only."""
    worker = Worker(2, AffineCost(1, 0, 10, 0))
    instance = Instance(Requests([1] * 4, [4, 3, 3, 2]), worker)
    state = construct(instance.rounds_needed, 2, [0, 2, 5], 6, [0, 0, 0], [2])
    anneal(state, 20_000, 4.0, 0.2, np.random.default_rng(1), lambda: False)
    assert state.missing == 0
    prompts = instance.requests.prompt_tokens
    assigned = assign(state, instance.rounds_needed, prompts, [None, None, None])
    schedule = simulate_policy(instance, FollowPlan(plan_of(state, assigned))).schedule
    assert orsched.check(instance, schedule) == []
    assert schedule.makespan_ns == 3 * 1 + 6 * 10 == optimum_ns(instance)


def test_prompts_are_levelled_under_the_cap():
    """Two stages of two windows; by sorting alone one stage would hold 9 + 9 tokens."""
    lengths, prompts = np.array([5, 5, 5, 5]), np.array([9, 9, 1, 1])
    state = Windows(lengths, [0, 5], 10, [[0, 1], [0, 1]], [0, 0], [2])
    assigned = assign(state, lengths, prompts, [10, None])
    loads = np.bincount(assigned.stage, weights=prompts[assigned.request])
    assert loads.tolist() == [10, 10]
    assert sorted(assigned.request.tolist()) == [0, 1, 2, 3]
    assert assign(state, lengths, prompts, [9, 10]) is None


def test_levels_limit_each_stage():
    """One small and one large stage: the long prompts go into the large one."""
    lengths, prompts = np.array([5, 5, 5, 5]), np.array([9, 9, 1, 1])
    state = Windows(lengths, [0, 5], 10, [[0, 1], [0, 1]], [0, 1], [2, 2])
    assigned = assign(state, lengths, prompts, [2, 18])
    loads = np.bincount(assigned.stage, weights=prompts[assigned.request])
    assert loads.tolist() == [2, 18]


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=4),
    st.integers(1, 3),
    st.sampled_from([AffineCost(25, 1, 29, 2), LevelsCost(((9, 30), (18, 50)), 29)]),
)
def test_windows_is_between_optimum_and_hybrid(rows, clients, cost):
    prompts, outputs = zip(*rows, strict=True)
    instance = Instance(Requests(prompts, outputs), Worker(clients, cost, prefill_cap_tokens=18))
    result = orsched.solve(instance, "windows", iterations=4)
    hybrid = orsched.solve(instance, "hybrid")
    assert optimum_ns(instance) <= result.makespan_ns <= hybrid.makespan_ns
    assert result.checked


def test_windows_improves_on_hybrid_where_the_mip_is_out_of_reach():
    """100 requests on 20 clients: the size that Pang leave open after an hour."""
    instance = orsched.load("pang-100x20")
    hybrid = orsched.solve(instance, "hybrid")
    windows = orsched.solve(instance, "windows", time_limit=6.0)
    assert windows.makespan_ns <= hybrid.makespan_ns
    assert windows.schedule.method == "windows"
    assert windows.checked


@pytest.mark.full
def test_windows_halves_the_gap_of_hybrid_on_pangs_case():
    instance = orsched.load("gsm8k-llama65b")
    hybrid = orsched.solve(instance, "hybrid")
    windows = orsched.solve(instance, "windows", iterations=2)
    assert windows.gap < hybrid.gap / 2


@pytest.mark.parametrize("name", KNOWN_OPTIMA)
def test_known_optima_are_met(name):
    """Small instances with an optimum by hand, where windows applies."""
    instance = orsched.load(name)
    arrivals = instance.requests.arrival_ns
    if arrivals.max() > arrivals.min() or instance.worker.cost.context_matters:
        with pytest.raises(InputError):
            orsched.solve(instance, "windows", iterations=4)
        return
    result = orsched.solve(instance, "windows", iterations=20)
    assert result.makespan_ns == KNOWN_OPTIMA[name].makespan_ns


def _all_at_once(seeds, most):
    """Yield small instances without arrivals that have a schedule, with their optimum."""
    for seed in seeds:
        instance = random_instance(seed, most)
        arrivals = instance.requests.arrival_ns
        if arrivals.max() > arrivals.min():
            instance = Instance(
                Requests(instance.requests.prompt_tokens, instance.requests.output_tokens),
                instance.worker,
                first_token=instance.first_token,
            )
        try:
            instance.require_feasible()
        except InfeasibleError:
            continue
        yield instance, optimum_ns(instance)


def _shares_at_the_optimum(seeds, most):
    """Return how many small instances of each cost model end at their optimum, and how many not."""
    found = Counter()
    for instance, optimum in _all_at_once(seeds, most):
        result = orsched.solve(instance, "windows", iterations=30)
        assert optimum <= result.makespan_ns
        assert result.bound_ns <= optimum
        found[instance.worker.cost.model, result.makespan_ns == optimum] += 1
    return found


def test_never_below_the_optimum_and_mostly_at_it():
    """INV: exhaustive search over all schedules finds none that is shorter."""
    found = _shares_at_the_optimum(range(2000, 2015), 5)
    assert found["affine", False] <= 1
    assert found["affine", True] + found["levels", True] >= 12


@pytest.mark.full
def test_240_small_instances_are_never_below_the_optimum_and_mostly_at_it():
    """The same at length; what is missed are mostly levels that cost nothing."""
    found = _shares_at_the_optimum(range(1000, 1240), 6)
    print(dict(found))
    assert found.total() >= 200
    assert found["affine", True] >= 0.97 * (found["affine", True] + found["affine", False])
    assert found["levels", True] >= 0.75 * (found["levels", True] + found["levels", False])


def test_threads_are_a_parameter_and_change_nothing_else():
    instance = gsm8k(1, requests=12, clients=3)
    result = orsched.solve(instance, "windows+threads=1", iterations=3)
    assert result.schedule.parameters == {"threads": 1}
    again = orsched.solve(instance, "windows+threads=1", iterations=3)
    assert again.schedule.replace(run={}) == result.schedule.replace(run={})
    for wrong in ("windows+threads=0", "windows+speed=1"):
        with pytest.raises(InputError):
            orsched.solve(instance, wrong)


def test_without_numba_the_search_is_the_same(monkeypatch):
    """Under an iteration limit the plain moves lead to the same schedule."""
    instance = gsm8k(3, requests=14, clients=3)
    with_numba = orsched.solve(instance, "windows", iterations=4, seed=5)
    monkeypatch.setattr(compiled(), "run_moves", None)
    without = orsched.solve(instance, "windows", iterations=4, seed=5)
    assert without.schedule.replace(run={}) == with_numba.schedule.replace(run={})


def test_the_state_of_a_schedule_is_one():
    """Its stages, rounds and makespan are those of the schedule, and nothing is missing."""
    for instance in (gsm8k(2, requests=40, clients=6), _levelled(gsm8k(2, requests=40, clients=6))):
        schedule = orsched.solve(instance, "hybrid").schedule
        terms = terms_of(instance)
        state = state_of(instance, schedule, terms)
        assert state.missing == 0
        assert state.stages == schedule.results["prefill_stages"]
        assert state.end == schedule.results["decode_rounds"]
        assert terms.makespan(state.tables.level, state.end) == schedule.makespan_ns
        _check_links(state)


def _levelled(instance):
    affine = instance.worker.cost
    levels = tuple((cap, affine.prefill_ns([cap])) for cap in (256, 512, 1024, 2048))
    cost = LevelsCost(levels, affine.round_ns(instance.worker.clients))
    return instance.replace(workers=replace(instance.worker, cost=cost))


def test_terms_are_lower_bounds_and_levels_have_room():
    instance = _levelled(gsm8k(0, requests=100, clients=20))
    terms = terms_of(instance)
    assert terms.least <= orsched.bound(instance).value_ns
    assert [level.tokens for level in terms.levels] == [256, 512, 1024, 2048]
    budget = 2 * terms.stages_ns
    chosen = terms.most_stages(budget, 0.1)
    assert sum(terms.levels[level].time_ns for level in chosen) <= budget
    assert sum(terms.levels[level].room for level in chosen) >= 110
    order, first = spread(chosen, terms.room, 20)
    assert sorted(order) == sorted(chosen)
    assert sum(terms.room[level] for level in order[:first]) >= 20


def test_windows_under_levels_beats_hybrid():
    instance = _levelled(gsm8k(0, requests=40, clients=8))
    hybrid = orsched.solve(instance, "hybrid")
    result = orsched.solve(instance, "windows", iterations=10)
    assert result.checked
    assert result.makespan_ns < hybrid.makespan_ns


def test_iterations_reproduce_and_interruption_keeps_the_incumbent():
    instance = gsm8k(1, requests=12, clients=3)
    first, second = (orsched.solve(instance, "windows", iterations=3, seed=4) for _ in range(2))
    assert first.schedule.replace(run={}) == second.schedule.replace(run={})

    def interrupt(progress):
        if progress.iteration == 2:
            raise KeyboardInterrupt

    stopped = orsched.solve(instance, "windows", iterations=9, seed=4, callback=interrupt)
    assert stopped.termination == "interrupted"
    assert stopped.makespan_ns <= orsched.solve(instance, "hybrid").makespan_ns


@pytest.mark.parametrize(
    ("instance", "field"),
    [
        (Instance(Requests([1, 2], [3, 4], [0, 5]), Worker(1)), "arrival_ns"),
        (Instance(Requests([1, 2], [3, 4]), Worker(1, PoolingCost(1, 1, 1, 1, 1))), "cost"),
    ],
)
def test_what_does_not_split_is_refused(instance, field):
    with pytest.raises(InputError) as caught:
        orsched.solve(instance, "windows")
    assert caught.value.field == field


def test_empty_and_single_instances_are_trivial():
    empty = Instance(Requests([], []), Worker(3))
    assert orsched.solve(empty, "windows").makespan_ns == 0
    single = Instance(Requests([5], [7]), Worker(3))
    assert orsched.solve(single, "windows").status == "optimal"


@pytest.mark.full
def test_three_seeds_are_within_half_a_percent():
    for seed in range(3):
        result = orsched.solve(gsm8k(seed), "windows", iterations=40)
        assert result.checked
        assert result.gap < 0.005, seed
