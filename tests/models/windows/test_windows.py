"""Stage windows: the state's bookkeeping, the moves, the plan, and the method as a whole."""

import random
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orsched
from orsched import BlockMemory, InfeasibleError, InputError, Instance, Requests, Worker
from orsched.costs import AffineCost, LevelsCost, PoolingCost
from orsched.instances.catalog import KNOWN_OPTIMA
from orsched.instances.synthetic import gsm8k
from orsched.models import compiled_kernels
from orsched.models.windows.stage_prices import affine_beside, prices_of, terms_of
from orsched.models.windows.state_changes import (
    REDUCTIONS,
    construct,
    even_times,
    state_of,
    stretched,
    with_end,
)
from orsched.models.windows.window_moves import exchange_tails, relocate, shift_stage, shift_start
from orsched.models.windows.window_requests import FollowPlan, RequestSwaps, plan_of
from orsched.models.windows.window_state import Cooling, Windows, anneal, compiled
from orsched.simulator import simulate_policy
from tests.brute_force import optimum_ns
from tests.decoding import decoding
from tests.in_order import in_order
from tests.models.full_mip.small import random_instance
from tests.stops import TimeUp


@st.composite
def states(draw):
    """Random requests, stage times and prices, with a first state."""
    lengths = np.array(draw(st.lists(st.integers(1, 12), min_size=1, max_size=14)))
    clients = draw(st.integers(1, 4))
    stages = draw(st.integers(-(-len(lengths) // clients), len(lengths) + 3))
    end = draw(st.integers(1, 3 * int(lengths.sum())))
    price = draw(st.sampled_from([(), (0, 3, 4, 9, 10), (0, 1, 1, 1, 1)]))
    return construct(lengths, clients, even_times(stages, end), end, price)


CAPS = (256, 512, 1024, 2048)


def levelled(instance, levels=None):
    """The instance with levels at some caps, the times of its affine cost by default."""
    cost, clients = instance.worker.cost, instance.worker.clients
    levels = levels or tuple((cap, cost.prefill_ns([cap])) for cap in CAPS)
    return with_cost(instance, LevelsCost(levels=levels, round_fixed_ns=cost.round_ns(clients)))


def with_cost(instance, cost):
    return instance.replace(workers=replace(instance.worker, cost=cost))


def _missing_by_sorting(state):
    spans = sorted(state.spans().tolist(), reverse=True)
    needs = sorted(state.lengths.tolist(), reverse=True)
    return sum(max(0, need - max(0, span)) for need, span in zip(needs, spans, strict=True))


def _check_links(state):
    """Paths cover every window once, in order of stages; the tables and V agree with them."""
    tables, paths = state.tables, state.paths()
    windows = range(len(state.lengths))
    assert len(tables.start) == len(state.lengths)
    assert state.missing == _missing_by_sorting(state)
    assert sorted(w for path in paths for w in path) == list(windows)
    assert all(path == sorted(path) for path in state.paths_of_stages())
    for stage, count in enumerate(tables.counts):
        here = tables.at[stage * tables.width :][:count]
        assert sorted(here) == [w for w in windows if tables.start[w] == stage]
        assert [tables.place[w] for w in here] == list(range(count))
    assert sorted(tables.last) == sorted(path[-1] for path in paths)
    assert [tables.last_place[w] for w in tables.last] == list(range(len(paths)))


@given(states())
def test_missing_is_what_the_best_assignment_lacks(state):
    """V by the surplus of lengths equals the shortfall after sorting windows and requests."""
    _check_links(state)


@given(states(), st.integers(0, 2**32), st.sampled_from([0, 2, 10**9]))
def test_moves_keep_the_books(state, seed, threshold):
    """After any accepted or refused move, increments equal a count from scratch."""
    rng = random.Random(seed)
    kinds = [exchange_tails, partial(_two_draws, shift_start), relocate]
    if state.stages > 1:
        kinds.append(shift_stage)
    for _ in range(40):
        spent, draws = state.tables.spent[0], (rng.random() for _ in range(3))
        change = rng.choice(kinds)(state.tables, *draws, threshold)
        kept = state.missing + change, list(state.tables.surplus), state.tables.spent[0]
        assert change + state.tables.spent[0] - spent <= threshold
        state.recount()
        assert (state.missing, state.tables.surplus, state.tables.spent[0]) == kept
        assert state.tables.times == sorted(state.tables.times)
        _check_links(state)


def _two_draws(move, tables, one, two, three, threshold):
    return move(tables, one, two, threshold)


@given(states(), st.sampled_from([s for s in REDUCTIONS.values() if s]), st.integers(0, 2**32))
def test_reductions_keep_the_windows(state, reduction, seed):
    """A reduction leaves its state as it is; what it returns has all windows."""
    before = state.copy()
    changed = reduction(state, random.Random(seed))
    assert state.tables == before.tables
    if changed is None:
        return
    _check_links(changed)
    earlier = with_end(changed, max(1, changed.end - 2))
    assert max(earlier.tables.times) == earlier.end == max(1, changed.end - 2)
    assert earlier.missing == _missing_by_sorting(earlier)


@given(states(), st.integers(0, 12))
def test_rounds_are_put_in_until_nothing_is_missing(state, most):
    """Nothing but times changes, by as many rounds as the end moves."""
    before = state.copy()
    made = stretched(state, most)
    assert state.tables == before.tables
    if made is None:
        assert state.missing > 0
        return
    assert made.missing == 0
    assert state.end <= made.end <= state.end + most
    assert made.paths_of_stages() == state.paths_of_stages()
    assert np.all(made.spans() >= state.spans())
    _check_links(made)


@given(states(), st.integers(0, 2**32), st.sampled_from([0.5, 3.0]))
def test_compiled_moves_are_the_plain_ones(state, seed, hot):
    """The same draws lead to the same state, move by move."""
    _compare_executions(state, seed, hot, 3_000)


def _compiled():
    pytest.importorskip("numba")
    fast = compiled()
    fast.wait()
    assert fast.module is not None
    return fast


def _compare_executions(state, seed, hot, moves):
    other, cooling = state.copy(), Cooling(moves, hot, 0.2, budget=4)
    made = [
        anneal(one, cooling, np.random.default_rng(seed), lambda: False, how)
        for one, how in ((state, None), (other, _compiled()))
    ]
    assert made[0] == made[1]
    spent = state.tables.spent[0]
    state.recount()
    assert spent == state.tables.spent[0]
    assert state.tables == other.tables
    assert state.missing == other.missing == _missing_by_sorting(state)


@pytest.mark.parametrize("seed", [0, 1])
def test_compiled_moves_are_the_plain_ones_at_full_scale(seed):
    instance = levelled(gsm8k(seed))
    price = terms_of(instance).prices.by_starts
    state = construct(instance.rounds_needed, 200, even_times(58, 2400), 2400, price)
    first = state.missing
    _compare_executions(state, seed, 3.0, 30_000)
    assert state.missing < first


def test_annealing_closes_a_small_case_and_the_plan_is_a_schedule():
    """Lengths 4, 3, 3, 2 on two clients fit into R = 6 with stages at 0, 3, 4 only."""
    instance = decoding([1] * 4, [4, 3, 3, 2], Worker(2, in_order(AffineCost, 1, 0, 10, 0)))
    state = construct(instance.rounds_needed, 2, [0, 2, 5], 6)
    anneal(state, Cooling(20_000, 4.0, 0.2), np.random.default_rng(1), lambda: False)
    assert state.missing == 0
    prompts, prices = instance.requests.prompt_tokens, terms_of(instance).prices
    rng = np.random.default_rng(0)
    assigned = RequestSwaps(instance.rounds_needed, prompts, prices, rng).assigned(state)
    schedule = simulate_policy(instance, FollowPlan(plan_of(state, assigned))).schedule
    assert orsched.check(instance, schedule) == []
    assert schedule.makespan_ns == 3 * 1 + 6 * 10 == optimum_ns(instance)


@pytest.mark.parametrize(
    ("levels", "prompts", "stages", "time_ns"),
    [
        # Under the cap: by sorting alone one stage would hold 9 + 9 tokens.
        ([(10, 7)], [9, 9, 1, 1], [10, 10], 14),
        # One small and one large stage: the long prompts share the large one.
        ([(2, 3), (18, 10)], [9, 1, 9, 1], [2, 18], 13),
    ],
)
def test_prompts_are_levelled_under_the_cap_and_fill_levels(levels, prompts, stages, time_ns):
    """The tokens of two stages with two windows each, and their time."""
    lengths, prompts = np.full(4, 5), np.array(prompts)
    state = Windows(lengths, [0, 5], 10, [[0, 1], [0, 1]])
    prices = prices_of(levels, prompts, 2, 10)
    assigned = RequestSwaps(lengths, prompts, prices, np.random.default_rng(0)).assigned(state)
    assert sorted(assigned.request.tolist()) == [0, 1, 2, 3]
    loads = np.bincount(assigned.stage, weights=prompts[assigned.request]).astype(int).tolist()
    assert sorted(loads) == stages
    assert assigned.time_ns == sum(prices.least_ns[load] for load in loads) == time_ns


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.sampled_from([((30, 7),), ((30, 9), (40, 10)), ((31, 20), (64, 30), (128, 90))]),
)
def test_requests_of_one_moment_are_divided_into_stages(prompts, levels):
    """Every request once, no stage over the largest level; one stage where one is cheapest."""
    prices = prices_of(levels, np.array(prompts), len(prompts), 10)
    parts = prices.divide(range(len(prompts)), np.array(prompts))
    assert sorted(request for part in parts for request in part) == list(range(len(prompts)))
    tokens = [sum(prompts[request] for request in part) for part in parts]
    assert max(tokens) <= levels[-1][0]
    least = prices.stages_of(sum(prompts))
    times = dict(levels)
    assert sum(times[cap] for cap in least) == prices.least_ns[sum(prompts)]
    assert len(least) > 1 or len(parts) == 1


def test_swaps_compiled_are_the_plain_ones():
    instance = levelled(gsm8k(4, requests=60, clients=10))
    schedule = orsched.solve(instance, "hybrid").schedule
    terms, prompts = terms_of(instance), instance.requests.prompt_tokens
    state = state_of(instance, schedule, terms)
    case = instance.rounds_needed, prompts, terms.prices
    one, two = (
        RequestSwaps(*case, np.random.default_rng(3), how).assigned(state)
        for how in (None, _compiled())
    )
    assert one.request.tolist() == two.request.tolist()
    assert one.time_ns == two.time_ns
    first = schedule.makespan_ns - terms.round_ns * state.end
    assert one.time_ns < first


SHEET = orsched.machine("h100-llama3-8b-sheet").cost


@pytest.mark.parametrize(
    ("instance", "iterations", "gain_ns"),
    [
        # 100 requests on 20 clients: the size that Pang leave open after an hour.
        pytest.param(orsched.load("pang-100x20"), 2, 0, id="pang"),
        pytest.param(levelled(gsm8k(0, requests=40, clients=8)), 10, 1, id="levels"),
        # A cost that does not split.
        pytest.param(with_cost(gsm8k(0, requests=60, clients=12), SHEET), 12, 1, id="roofline"),
    ],
)
def test_windows_improves_on_hybrid(instance, iterations, gain_ns):
    windows = orsched.solve(instance, "windows", iterations=iterations)
    assert (windows.schedule.method, windows.checked) == ("windows", True)
    assert windows.makespan_ns <= orsched.solve(instance, "hybrid").makespan_ns - gain_ns


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
    late = arrivals.max() > arrivals.min()
    if late or instance.worker.cost.context_matters:
        with pytest.raises(InputError) as caught:
            orsched.solve(instance, "windows", iterations=4)
        assert (caught.value.field == "arrival_ns") == late
        return
    result = orsched.solve(instance, "windows", iterations=20)
    assert result.makespan_ns == KNOWN_OPTIMA[name].makespan_ns


def _all_at_once(seeds, most):
    """Yield small instances without arrivals that have a schedule, with their optimum."""
    for seed in seeds:
        instance = random_instance(seed, most)
        at_once = instance.requests.replace(arrival_ns=[0] * len(instance))
        instance = instance.replace(requests=at_once)
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
        assert result.checked
        hybrid = orsched.solve(instance, "hybrid").makespan_ns
        assert result.bound_ns <= optimum <= result.makespan_ns <= hybrid
        found[instance.worker.cost.model, result.makespan_ns == optimum] += 1
    return found


def test_never_below_the_optimum_and_mostly_at_it():
    """INV: exhaustive search over all schedules finds none that is shorter."""
    found = _shares_at_the_optimum(range(2000, 2030), 5)
    assert found["affine", False] <= 2
    assert found["affine", True] + found["levels", True] >= 24


@pytest.mark.full
def test_240_small_instances_are_never_below_the_optimum_and_mostly_at_it():
    """The same at length; what is missed are mostly levels that cost nothing."""
    found = _shares_at_the_optimum(range(1000, 1240), 6)
    print(dict(found))
    assert found.total() >= 200
    assert found["affine", True] >= 0.96 * (found["affine", True] + found["affine", False])
    assert found["levels", True] >= 0.85 * (found["levels", True] + found["levels", False])


def test_threads_are_a_parameter_and_seeds_and_iterations_reproduce(monkeypatch):
    """Without numba too: under an iteration limit the plain moves lead to the same schedule."""
    instance, how = gsm8k(1, requests=12, clients=3), {"iterations": 3, "seed": 5}
    result = orsched.solve(instance, "windows+threads=1", **how)
    assert result.schedule.parameters == {"threads": 1}
    for wrong in ("windows+threads=0", "windows+speed=1"):
        with pytest.raises(InputError):
            orsched.solve(instance, wrong)
    first, second = (orsched.solve(instance, "windows", **how).schedule for _ in range(2))
    monkeypatch.setattr(compiled(), "module", None)
    without = orsched.solve(instance, "windows", **how).schedule
    assert first.replace(run={}) == second.replace(run={}) == without.replace(run={})


def test_numba_is_suggested_once_where_it_is_missing(monkeypatch, caplog):
    instance = gsm8k(3, requests=6, clients=3)
    orsched.solve(instance, "windows", iterations=1)
    assert "orsched[fast]" not in caplog.text
    monkeypatch.setattr(compiled_kernels, "find_spec", lambda name: None)
    compiled_kernels.suggest_numba.cache_clear()
    for _ in range(2):
        orsched.solve(instance, "windows", iterations=1)
    compiled_kernels.suggest_numba.cache_clear()
    assert caplog.text.count("pip install 'orsched[fast]'") == 1


def test_the_state_of_a_schedule_is_one():
    """Its stages, rounds and makespan are those of the schedule, and nothing is missing."""
    affine = gsm8k(2, requests=40, clients=6)
    for instance in (affine, levelled(affine)):
        schedule, terms = orsched.solve(instance, "hybrid").schedule, terms_of(instance)
        state = state_of(instance, schedule, terms)
        assert state.missing == 0
        assert state.stages == schedule.results["prefill_stages"]
        assert state.end == schedule.results["decode_rounds"]
        rest = terms.constant_ns + terms.round_ns * state.end
        if instance.worker.cost.model == "affine":
            assert rest + terms.stage_ns * state.stages == schedule.makespan_ns
        _check_links(state)


@pytest.mark.parametrize("made", [lambda instance: instance, levelled], ids=["affine", "levels"])
def test_terms_are_lower_bounds_and_prices_near_the_line(made):
    instance = made(gsm8k(0, requests=100, clients=20))
    terms = terms_of(instance)
    assert terms.least <= orsched.bound(instance).value_ns
    prices = np.array(terms.prices.by_starts) * terms.prices.unit_ns
    mean = instance.requests.prompt_tokens.mean()
    starts = np.arange(1, 21)
    line = terms.stage_ns + terms.token_ns * mean * starts
    assert np.all(prices[1:] >= line - terms.prices.unit_ns)
    assert np.all(np.diff(prices) >= 0)
    fewer, more = terms.stages_for(terms.stages_ns), terms.stages_for(2 * terms.stages_ns)
    assert 5 <= fewer[0] < more[0]
    assert fewer[1] < more[1]


def test_an_interruption_keeps_the_incumbent():
    instance = gsm8k(1, requests=12, clients=3)

    def interrupt(progress):
        if progress.iteration == 2:
            raise KeyboardInterrupt

    stopped = orsched.solve(instance, "windows", iterations=9, seed=4, callback=interrupt)
    assert stopped.termination == "interrupted"
    assert stopped.makespan_ns <= orsched.solve(instance, "hybrid").makespan_ns


@pytest.mark.parametrize("cost", [
    SHEET,
    orsched.machine("h100-llama3-8b").cost,
    in_order(PoolingCost, 9_000, 20_000, 300_000, 1_000, 5_000_000),
], ids=lambda cost: cost.model)  # fmt: skip
def test_costs_that_do_not_split_are_searched_beside_an_affine_one(cost):
    """Its plans are carried out under the real cost: never worse than hybrid, and checked."""
    instance = with_cost(gsm8k(2, requests=40, clients=8), cost)
    hybrid = orsched.solve(instance, "hybrid")
    found = orsched.solve(instance, "windows", iterations=4)
    assert found.checked
    assert found.schedule.instance_sha256 == instance.sha256
    assert found.bound_ns <= found.makespan_ns <= hybrid.makespan_ns
    again = orsched.solve(instance, "windows", iterations=4)
    assert again.makespan_ns == found.makespan_ns


def test_the_affine_cost_beside_an_affine_one_is_that_one():
    """Stages of a token more or less, and rounds of a request more or less, lie on its lines."""
    instance = gsm8k(0, requests=40, clients=8)
    schedule = orsched.solve(instance, "hybrid").schedule
    line, real = affine_beside(instance, schedule).worker.cost, instance.worker.cost
    for name in ("prefill_fixed_ns", "prefill_token_ns", "round_fixed_ns", "round_client_ns"):
        assert getattr(line, name) == pytest.approx(getattr(real, name), rel=1e-6)


def test_empty_and_single_instances_are_trivial_and_answers_of_one_token_need_no_round():
    assert orsched.solve(decoding([], [], Worker(3)), "windows").makespan_ns == 0
    assert orsched.solve(decoding([5], [7], Worker(3)), "windows").status == "optimal"
    # Memory parts the prefills: two stages, and no round whose length could be aligned.
    worker = Worker(2, memory=BlockMemory(2, 2, "paged"))
    instance = Instance(Requests([4, 2], [1, 1]), worker, first_token="prefill")
    result = orsched.solve(instance, "windows", iterations=2)
    assert result.schedule.results["decode_rounds"] == 0


@pytest.mark.full
def test_three_seeds_are_within_half_a_percent():
    for seed in range(3):
        result = orsched.solve(gsm8k(seed), "windows", iterations=40)
        assert result.checked
        assert result.gap < 0.005, seed


def test_a_limited_search_under_levels_is_no_worse_than_its_start():
    instance = levelled(gsm8k(1, requests=30, clients=6))
    start = orsched.solve(instance, "hybrid", iterations=18)
    result = orsched.solve(instance, "windows", stop=TimeUp(4, seconds=2.0))
    assert result.checked
    assert result.makespan_ns <= start.makespan_ns
    assert result.schedule.bound["value_ns"] <= result.makespan_ns
