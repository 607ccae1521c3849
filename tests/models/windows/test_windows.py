"""Stage windows: the state's bookkeeping, the moves, the plan, and the method as a whole."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched.costs import AffineCost, LevelsCost, PoolingCost
from orsched.errors import InputError
from orsched.instance import Instance
from orsched.instances.gsm8k import gsm8k
from orsched.models.windows.annealing import anneal
from orsched.models.windows.assignment import assign
from orsched.models.windows.construction import construct, even_times
from orsched.models.windows.moves import Moves
from orsched.models.windows.plan import FollowPlan, plan_of
from orsched.models.windows.squeezing import earlier_end, fewer_stages, more_stages
from orsched.models.windows.structure import Windows
from orsched.requests import Requests
from orsched.simulator import simulate_policy
from orsched.workers import Worker
from tests.brute_force import optimum_ns


@st.composite
def states(draw):
    """Random requests, stage times and limits, with a first state."""
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=14))
    clients = draw(st.integers(1, 4))
    limit = draw(st.integers(1, clients))
    stages = draw(st.integers(-(-len(lengths) // limit), len(lengths) + 3))
    end = draw(st.integers(1, 3 * sum(lengths)))
    times = even_times(stages, draw(st.integers(0, 3)), end)
    return construct(lengths, clients, times, end, limit), limit


def _missing_by_sorting(state):
    spans = sorted((state.length(w) for w in range(len(state.start))), reverse=True)
    needs = sorted(state.lengths.tolist(), reverse=True)
    return sum(max(0, need - max(0, span)) for need, span in zip(needs, spans, strict=True))


def _check_links(state):
    """Paths cover every window once, in order of stages, and the lists agree with them."""
    paths = state.paths()
    assert sorted(w for path in paths for w in path) == list(range(len(state.start)))
    for path in paths:
        stages = [state.start[w] for w in path]
        assert stages == sorted(set(stages))
    for stage, windows in enumerate(state.at):
        assert sorted(windows) == [w for w in range(len(state.start)) if state.start[w] == stage]
    assert sorted(state.last) == sorted(path[-1] for path in paths)


@given(states())
def test_missing_is_what_the_best_assignment_lacks(drawn):
    """V by the surplus of lengths equals the shortfall after sorting windows and requests."""
    state, _ = drawn
    assert len(state.start) == len(state.lengths)
    assert state.missing == _missing_by_sorting(state)
    _check_links(state)


@given(states(), st.integers(0, 2**32), st.sampled_from([0.0, 2.0, 1e9]))
def test_moves_keep_the_books(drawn, seed, threshold):
    """After any accepted or refused move, increments equal a count from scratch."""
    state, limit = drawn
    rng = random.Random(seed)
    moves = Moves(state, limit, rng.random)
    kinds = [moves.exchange_tails, moves.shift_start, moves.relocate]
    if state.stages > 1:
        kinds.append(moves.shift_stage)
    counts = sorted(len(a) for a in state.at)
    for _ in range(40):
        before = state.missing
        accepted = rng.choice(kinds)(threshold)
        kept = state.missing
        surplus = list(state.surplus)
        state.recount()
        assert (state.missing, state.surplus) == (kept, surplus)
        assert kept == before or accepted
        assert kept <= before + threshold
        assert state.times == sorted(state.times)
        _check_links(state)
    assert max(len(a) for a in state.at) <= max(limit, counts[-1])


@given(states(), st.sampled_from([earlier_end, fewer_stages, more_stages]), st.integers(1, 3))
def test_squeezes_keep_the_windows_and_ask_for_less(drawn, squeeze, step):
    state, _ = drawn
    stages, end = state.stages, state.times[-1]
    if stages < 2 or end <= 2 * step or any(len(path) >= stages for path in state.paths()):
        return
    tighter = squeeze(state, step)
    changes = {earlier_end: (0, step), fewer_stages: (-1, 0), more_stages: (step, 2 * step)}
    change = changes[squeeze]
    assert (tighter.stages - stages, end - tighter.times[-1]) == change
    assert len(tighter.start) == len(tighter.lengths)
    assert tighter.missing == _missing_by_sorting(tighter)
    _check_links(tighter)


def test_annealing_closes_a_small_case_and_the_plan_is_a_schedule():
    """Lengths 4, 3, 3, 2 on two clients fit into R = 6 with stages at 0, 3, 4 only."""
    worker = Worker(2, AffineCost(1, 0, 10, 0))
    instance = Instance(Requests([1] * 4, [4, 3, 3, 2]), worker)
    state = construct([4, 3, 3, 2], 2, [0, 2, 5], 6, 2)
    anneal(state, 2, 20_000, 4.0, 0.2, random.Random(1), lambda: False)
    assert state.missing == 0
    assigned = assign(state, instance.rounds_needed, instance.requests.prompt_tokens, None)
    schedule = simulate_policy(instance, FollowPlan(plan_of(state, assigned))).schedule
    assert orsched.check(instance, schedule) == []
    assert schedule.makespan_ns == 3 * 1 + 6 * 10 == optimum_ns(instance)


def test_prompts_are_levelled_under_the_cap():
    """Two stages of two windows; by sorting alone one stage would hold 9 + 9 tokens."""
    state = Windows([5, 5, 5, 5], [0, 5], 10, [[0, 1], [0, 1]])
    prompts = np.array([9, 9, 1, 1])
    lengths = np.array([5, 5, 5, 5])
    assigned = assign(state, lengths, prompts, 10)
    loads = np.bincount(assigned.stage, weights=prompts[assigned.request])
    assert loads.tolist() == [10, 10]
    assert sorted(assigned.request.tolist()) == [0, 1, 2, 3]
    assert assign(state, lengths, prompts, 9) is None


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
        result = orsched.solve(gsm8k(seed), "windows", iterations=4)
        assert result.checked
        assert result.gap < 0.0055, seed
