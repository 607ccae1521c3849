"""The best-first search for means: beside exhaustive search, the MIP, bounds and policies."""

import random
from itertools import accumulate, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import AffineCost, InputError, Instance, LevelsCost, Requests, Worker, check, solve
from orsched.metrics.objective_values import objective_value
from orsched.models.best_first_times import solve_best_first_times
from orsched.models.best_first_times.epochs import Epochs, State, read_case
from orsched.models.best_first_times.relaxation import Pairs, Relaxation, shortest_rest_first, smith
from orsched.models.best_first_times.solve import TimesSearch
from orsched.models.exact_search.aims import TimesAim
from orsched.models.exact_search.stage_plan import read_problem
from orsched.models.full_mip import solve_full_mip
from orsched.solving.objectives import objective_named
from tests.decoding import decoding
from tests.in_order import in_order
from tests.models.full_mip.small import TIMES, optimum, weighted


def epochs_of(instance, objective):
    problem = read_problem(instance, exact=True)
    aim = TimesAim(instance, problem, objective_named(objective))
    return Epochs(read_case(problem, aim.terms, instance.first_token != "prefill")), aim


def least_cost(epochs, start, *, every_state):
    """Return what a search from a state finds, without its bound or without anything left out."""
    search = TimesSearch(epochs, 2**100, 0, 10**6)
    if every_state:
        search._relaxation.least = lambda state: 0
        search._is_beaten = lambda node: False
    epochs.__class__.start = property(lambda self: start)
    try:
        assert search.run(lambda: False, lambda: False) == "finished"
    finally:
        epochs.__class__.start = _START
    return search.best


_START = Epochs.start


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.sampled_from(TIMES))
def test_it_finds_the_least_of_all_plain_schedules(seed, objective):
    instance = weighted(seed, 4)
    best = optimum(instance, objective)
    result = solve_best_first_times(instance, objective, alone=True)
    assert (result.status, result.termination) == ("optimal", "finished")
    assert result.value == result.value_bound == best
    assert objective_value(instance, result.schedule, objective) == best
    assert not check(instance, result.schedule)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(TIMES))
def test_fewer_moves_and_states_left_out_change_nothing(seed, objective):
    """Up to seven requests, beside a search that stops at every round and leaves nothing out."""
    instance = weighted(seed, 7)
    epochs, _ = epochs_of(instance, objective)
    plain, _ = epochs_of(instance, objective)
    plain.merges = plain.may_fill = False
    if not epochs.timed or len(instance) < 6:
        plain._until_event = lambda state, one, rate: 1
    found = least_cost(epochs, epochs.start, every_state=False)
    assert found == least_cost(plain, plain.start, every_state=len(instance) < 6)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(TIMES))
def test_the_relaxation_is_below_what_is_to_come_from_every_state(seed, objective):
    instance, rng = weighted(seed, 5), random.Random(seed)
    epochs, _ = epochs_of(instance, objective)
    relaxation, state = Relaxation(epochs), epochs.start
    while any(state.waiting):
        assert relaxation.least(state) <= least_cost(epochs, state, every_state=True)
        state = rng.choice(list(epochs.moves(state))).state


def drawn(rng, n, clients, timed):
    levels = LevelsCost(levels=((9, 30), (30, 45)), round_fixed_ns=11)
    cost = rng.choice([in_order(AffineCost, 25, 1, 29, 2), levels])
    arrivals = [rng.randint(0, 200) * timed for _ in range(n)]
    prompts, outputs = ([rng.randint(1, 9) for _ in range(n)] for _ in range(2))
    return decoding(prompts, outputs, Worker(clients, cost), arrival_ns=arrivals)


FULL = pytest.mark.full


@pytest.mark.parametrize(
    ("seed", "requests", "timed", "objective"),
    [
        (0, 3, False, "jct_mean"),
        (0, 3, True, "ttft_mean"),
        *(
            pytest.param(seed, 4 + seed, bool(seed), objective, marks=FULL)
            for seed in (0, 1)
            for objective in ("jct_mean", "ttft_mean")
        ),
    ],
)
def test_it_agrees_with_the_mip(seed, requests, timed, objective):
    pytest.importorskip("ortools")
    instance = drawn(random.Random(seed), requests, 2, timed)
    mip = solve_full_mip(instance, "cpsat", objective=objective, time_limit=600)
    found = solve_best_first_times(instance, objective)
    assert found.status == "optimal"
    assert mip.status == "optimal" or requests > 3
    assert found.value == mip.value if mip.status == "optimal" else found.value >= mip.value_bound


@pytest.mark.parametrize("seed", range(4))
def test_a_start_changes_nothing(seed):
    """With a good incumbent many states are known, but no longer open."""
    instance = drawn(random.Random(seed), 8, 3, bool(seed % 2))
    alone = solve_best_first_times(instance, "jct_mean", alone=True)
    assert solve_best_first_times(instance, "jct_mean").value == alone.value == alone.value_bound


def ten(seed=0):
    base = orsched.load("pang-100x20")
    rows = random.Random(seed).sample(range(100), 10)
    return Instance(base.requests.take(rows), Worker(3, base.worker.cost), first_token="decode")


def test_a_search_that_is_cut_off_has_a_bound_and_a_gap():
    instance, seen = ten(), []
    most = solve_best_first_times(instance, "jct_mean", max_states=50, callback=seen.append)
    whole = solve_best_first_times(instance, "jct_mean")
    assert (most.status, most.termination) == ("feasible", "too_large")
    assert most.value_bound <= whole.value <= most.value
    assert most.gap > 0 == whole.gap
    values, bounds = [each.value for each in seen], [each.bound_ns for each in seen]
    assert values == sorted(values, reverse=True)
    assert bounds == sorted(bounds)
    late = solve_best_first_times(instance, "jct_mean", time_limit=1e-3)
    assert late.termination == "time_limit"
    assert late.value >= whole.value
    assert not check(instance, late.schedule)


def test_a_callback_ends_it_and_a_schedule_starts_it():
    instance = ten()
    ended = solve_best_first_times(instance, "jct_mean", callback=lambda seen: True)
    assert ended.termination == "stopped"
    best = solve_best_first_times(instance, "jct_mean").schedule
    again = solve_best_first_times(instance, "jct_mean", initial_schedule=best)
    assert again.history[0].value == again.history[-1].value


def test_what_it_does_not_take_is_refused():
    many, means = orsched.load("pang-100x20"), {"objective": "jct_mean"}
    with pytest.raises(InputError, match="not a sum of times"):
        solve_best_first_times(ten(), "slo_attainment")
    with pytest.raises(InputError, match="first stages"):
        solve_best_first_times(many, **means)
    with pytest.raises(InputError, match="first stages"):
        solve(many, "exact", **means, parameters={"search": "best_first"})
    with pytest.raises(InputError, match="no requests"):
        solve_best_first_times(decoding([], [], Worker(3)), **means)


def test_the_mip_stays_where_it_is_asked_for():
    instance, options = drawn(random.Random(1), 3, 2, False), {"search": "mip"}
    result = solve(instance, "exact", objective="jct_mean", parameters=options)
    assert any("cpsat proved" in note for note in result.notes)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=6))
def test_smith_is_the_least_of_all_orders(jobs):
    def cost(order):
        ends = accumulate(length for length, _ in order)
        return sum(weight * end for (_, weight), end in zip(order, ends, strict=True))

    assert smith(jobs) == min(cost(order) for order in permutations(jobs))


def test_the_shortest_rest_is_first():
    assert shortest_rest_first([(0, 10), (2, 3), (3, 1)]) == [4, 6, 14]
    assert shortest_rest_first([(5, 2), (0, 1)]) == [1, 7]
    assert shortest_rest_first([]) == []
    assert State((0,), (), 0).clock == 0


def test_of_two_requests_one_waits_for_the_others_prompt():
    """With long prompts the bound from pairs is more than what each takes alone, and sound."""
    cost = in_order(AffineCost, 25, 50, 29, 2)
    instance = Instance(Requests([9, 7], [4, 4]), Worker(2, cost), first_token="prefill")
    epochs, aim = epochs_of(instance, "jct_mean")
    waiting = Relaxation(epochs)._of(epochs.start.waiting)
    pairs = aim.of_units(Pairs(epochs).least(waiting.kinds, epochs.start, waiting.own))
    ones = [instance.replace(requests=instance.requests.take([row])) for row in (0, 1)]
    apart = [solve_best_first_times(one, "jct_mean").value for one in ones]
    found = solve_best_first_times(instance, "jct_mean", alone=True).value
    assert sum(apart) / 2 < aim.fraction(pairs) <= found
