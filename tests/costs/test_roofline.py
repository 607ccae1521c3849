"""The roofline cost model: its formula, its floor, and what its bounds prove."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import Instance, Requests, Worker, bound
from orsched.certificates.scope import Scope
from orsched.costs import Floor, RooflineCost, RoundFloor, StageFloor, floor_of, mixed_ns
from orsched.costs.floor import floor_faults
from orsched.costs.roofline import COEFFICIENTS, MORE
from tests.brute_force import optimum_ns
from tests.costs.test_models import H100
from tests.in_order import in_order
from tests.refusals import refused

COST = st.builds(in_order, st.just(RooflineCost), *[st.integers(0, 10**9)] * 5, st.integers(1, 3))
CURVES = st.dictionaries(st.integers(1, 4000), st.integers(0, 10**9), max_size=5).map(
    lambda pieces: sorted(pieces.items())
)
FULL = st.builds(
    RooflineCost,
    time_scale=st.integers(1, 3),
    pieces=CURVES,
    **dict.fromkeys((*COEFFICIENTS, *MORE), st.integers(0, 10**9))
    | {"window": st.sampled_from([0, 1, 7, 128, 10**6])},
)
"""Models with all coefficients, those of a data sheet and those that are measured."""
PROMPTS = st.lists(st.integers(1, 3000), max_size=6)


def by_the_book(cost, prompts, contexts, cached=None):
    """The formula with each prompt token's context written out, in fractions of nanoseconds."""
    cached = cached or [0] * len(prompts)
    attended = sum(sum(range(k + 1, k + c + 1)) for c, k in zip(prompts, cached, strict=True))
    tokens = sum(prompts) + len(contexts)
    exact_fs = cost.fixed_fs + cost.row_fs * tokens + max(cost.weights_fs, cost.token_fs * tokens)
    exact_fs += cost.context_fs * sum(contexts) + cost.attended_fs * attended
    exact_fs += cost.longest_fs * max(contexts, default=0) + cost.request_fs * len(contexts)
    for place, (start, slope) in enumerate(cost.pieces):
        end = cost.pieces[place + 1][0] if place + 1 < len(cost.pieces) else 2**40
        exact_fs += slope * max(0, min(tokens, end) - start)
    full = len(contexts) * cost.window
    exact_fs += cost.window_context_fs * min(sum(contexts), full)
    exact_fs += cost.window_attended_fs * sum(
        min(position, cost.window)
        for c, k in zip(prompts, cached, strict=True)
        for position in range(k + 1, k + c + 1)
    )
    if prompts and contexts:
        exact_fs += cost.beside_request_fs * len(contexts) + cost.beside_context_fs * sum(contexts)
        exact_fs = max(exact_fs, cost.beside_launch_fs)
    if prompts:
        exact_fs = max(exact_fs, cost.launch_fs)
    return (Fraction(exact_fs, 10**6) + Fraction(1, 2)).__floor__() * cost.time_scale


@given(FULL, PROMPTS, st.lists(st.integers(1, 10**5), max_size=6))
def test_all_steps_follow_the_one_formula(cost, prompts, contexts):
    load = (len(contexts), sum(contexts), max(contexts, default=0))
    expected = by_the_book(cost, prompts, contexts)
    assert cost.mixed_ns(prompts, *load) == expected
    if not contexts:
        assert cost.prefill_ns(prompts) == expected
    if not prompts:
        assert cost.round_ns(*load) == expected
    if prompts or contexts:
        assert mixed_ns(cost, prompts, *load) == expected


@given(FULL, st.lists(st.integers(1, 400), min_size=1, max_size=6), st.integers(1, 40))
def test_a_run_of_rounds_is_the_sum_of_its_rounds(cost, contexts, rounds):
    n, total, most = len(contexts), sum(contexts), max(contexts)
    single = [cost.round_ns(n, total + k * n, most + k) for k in range(rounds)]
    assert cost.rounds_ns(rounds, n, total, most) == sum(single)


@given(FULL)
def test_what_is_0_by_default_is_not_written(cost):
    values = cost.to_dict()
    assert RooflineCost.from_dict(values) == cost
    assert all(values[name] for name in MORE if name in values)
    assert list(H100.to_dict()) == [*COEFFICIENTS, "time_scale"]


@given(FULL, st.lists(st.tuples(st.integers(1, 300), st.integers(0, 300)), min_size=1, max_size=4))
def test_cached_tokens_are_attended_to_where_they_are_known(cost, chunks):
    prompts, cached = ([chunk[i] for chunk in chunks] for i in (0, 1))
    assert cost.prefill_ns(prompts, cached) == by_the_book(cost, prompts, [], cached)
    assert cost.mixed_ns(prompts, 1, 7, 7, cached) == by_the_book(cost, prompts, [7], cached)


def test_an_8b_model_on_an_h100():
    """The weights hide the first 200 tokens; later ones take 26.4 us each."""
    assert H100.round_ns(1, 100, 100) == H100.prefill_ns([1]) - 1 + 5_310
    assert H100.prefill_ns([100]) < H100.prefill_ns([200]) < 5_750_000
    assert H100.prefill_ns([2000]) == 400_000 + 52_800_000 + 1_200_600
    assert H100.round_ns(200, 60_000, 500) == 400_000 + 5_300_000 + 3_186_000
    beside = H100.mixed_ns([128], 200, 60_000, 500)
    assert beside < H100.prefill_ns([128]) + H100.round_ns(200, 60_000, 500)


@settings(max_examples=300)
@given(FULL | COST, PROMPTS, st.lists(st.integers(1, 10**5), min_size=1, max_size=300))
def test_the_floor_is_below_every_step_and_met_where_the_page_says(cost, prompts, contexts):
    floor = floor_of(cost)
    load = (len(contexts), sum(contexts), max(contexts))
    least = floor.round_ns(*load)
    assert least <= cost.round_ns(*load)
    plain = not cost.pieces and not cost.window
    if plain and len(contexts) * cost.token_fs <= cost.weights_fs:
        assert least == cost.round_ns(*load)
    assert floor.mixed_ns(prompts, *load) <= cost.mixed_ns(prompts, *load)
    assert floor.prefill_ns(prompts) <= cost.prefill_ns(prompts)
    if plain and sum(prompts) * cost.token_fs >= cost.weights_fs and not cost.launch_fs:
        assert floor.prefill_ns(prompts) == cost.prefill_ns(prompts)
    assert floor_faults(cost, steps=20) == []


@given(COST, CURVES, st.integers(1, 9000))
def test_a_curve_that_bends_up_is_the_largest_of_its_lines(cost, pieces, tokens):
    """And one that bends down, as that of experts, is met at the ends of its chord."""
    slopes = sorted(slope for _, slope in cost.pieces)
    convex = [(start, slope) for (start, _), slope in zip(cost.pieces, slopes, strict=True)]
    for pieces, exact in ((convex, True), (cost.pieces, False)):
        curved = replace(cost, pieces=pieces, fixed_fs=10**13, window=0, launch_fs=0, time_scale=1)
        lines = floor_of(curved).lines
        largest = max(line.of([tokens], 0, 0, 0) for line in lines)
        bare = replace(curved, attended_fs=0)
        took = bare.prefill_ns([tokens]) * 2 * 10**6
        assert largest <= took + 10**6
        if exact:
            assert largest >= took - 10**6 - 2 * tokens


@given(FULL, st.integers(1, 12), st.none() | st.integers(1, 12), st.integers(0, 10**9))
def test_a_floor_of_few_requests_and_tokens_is_below_each_step_of_theirs(cost, most, cap, bend):
    """Each step within is tried, and the chord is met where the curve of the tokens bends down."""
    pieces = ((1, 3 * bend), (2, bend), (5, cost.token_fs // 2), *cost.pieces[4:])
    pieces = tuple(pair for place, pair in enumerate(pieces) if place < 3 or pair[0] > 5)
    cost = replace(cost, pieces=pieces, attended_fs=0)
    floor = floor_of(cost, most, cap)
    gaps = []
    for active in range(most + 1):
        for tokens in range(0 if active else 1, (cap or 20) + 1):
            load = (active, 3 * active, 3 if active else 0)
            prompts = [tokens] if tokens else []
            took, own = mixed_ns(cost, prompts, *load), [line.of(prompts, 0, active, load[1])
                                                         for line in floor.lines]  # fmt: skip
            least = -(-(max(own) - floor.unit // 2) // floor.unit) * floor.times
            assert least <= took
            if not tokens:
                assert floor.round_ns(*load) <= took
                gaps.append(took - least)
            elif not active:
                assert floor.prefill_ns(prompts) <= took
            else:
                assert floor.mixed_ns(prompts, *load) <= took
    if not cost.window and not cost.longest_fs and cost.token_fs * most <= cost.weights_fs:
        assert gaps[0] <= floor.times + 1
    wide = floor_of(cost)
    assert (
        floor.round.fixed + most * floor.round.request
        >= (wide.round.fixed + most * wide.round.request) - 2 * most
    )


@pytest.mark.parametrize(
    "pieces", [[(0, 1)], [(2, 1), (2, 1)], [(3, -1)], [(1, 2, 3)], "x", [(1, 1.5)], [(1, 1)] * 65]
)
def test_wrong_pieces_are_refused(pieces):
    assert (
        refused("", RooflineCost.from_dict, (H100.to_dict() | {"pieces": pieces})).field == "pieces"
    )


@given(FULL, st.lists(st.integers(1, 300), min_size=1, max_size=6))
def test_the_floor_of_chunks_is_below_any_chunks(cost, chunks):
    """Of one prompt in several stages: no more than one with all of its tokens would add."""
    floor = floor_of(cost)
    straight = floor.of_chunks()
    assert not straight.stage.is_curved
    for chunk in chunks:
        assert straight.prefill_ns([chunk]) <= floor.prefill_ns([chunk])
    worker = Worker(2, cost)
    within = floor_of(cost, 2)
    assert Scope(chunks=True).floor_of(worker) == within.of_chunks()
    assert Scope(mixed=True).floor_of(worker) == within


def test_a_floor_of_chunks_needs_no_part_that_falls_or_has_a_least():
    for stage in (StageFloor(square=1, least=5), StageFloor(token=3)):
        floor = Floor(stage, RoundFloor())
        assert floor.of_chunks() is floor


@pytest.mark.parametrize("objective", ["makespan", "mean_jct", "mean_ttft"])
@pytest.mark.parametrize("method", ["fcfs", "online", "hybrid", "vllm", "gittins", "slack"])
def test_bounds_are_below_methods_and_not_far(method, objective):
    """An 8B model on an H100 under Pang's requests: within 30 % of the methods without chunks."""
    problem = orsched.load("pang-100x20").replace(workers=Worker(20, H100, 2048))
    if method == "slack":
        problem = problem.with_classes("interactive:ttft=1", "bulk")
    result = orsched.solve(problem, method)
    assert orsched.check(problem, result.schedule) == []
    values = result.schedule.results
    name = objective.removeprefix("mean_") + "_ns"
    value = values[name] if objective == "makespan" else values[name]["mean"]
    found = bound(problem, objective, allows=("chunks", "mixed", "restarts"))
    assert 0 < found.value_ns <= value
    if objective == "makespan" and method in ("online", "hybrid"):
        assert 0 <= result.gap < 0.3


@given(
    st.builds(
        RooflineCost,
        **dict.fromkeys((*COEFFICIENTS, *MORE), st.integers(0, 50).map(lambda x: x * 10**5)),
    ),
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=4),
    st.integers(1, 3),
)
def test_bounds_are_at_most_the_optimum_and_that_at_most_the_heuristics(cost, pairs, clients):
    prompts, outputs = zip(*pairs, strict=True)
    problem = Instance(Requests(prompts, outputs), Worker(clients, cost), first_token="decode")
    best = optimum_ns(problem)
    assert bound(problem).value_ns <= best
    for method in ("fcfs", "hybrid"):
        assert best <= orsched.solve(problem, method).schedule.makespan_ns
