"""Bounds on stages and rounds together, by windows, and by where clients begin and end."""

import random
from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import AffineCost, Worker
from orsched.certificates.alignment import Contents, Weights, lightest, proven_rounds, short_windows
from orsched.certificates.context import Context, Jobs
from orsched.certificates.fields import Budget
from orsched.certificates.stages_rounds import Rounding, windows
from orsched.instances import catalog
from orsched.models.bounds import stages_rounds_bound
from orsched.models.bounds.bounds import bound, improving_bounds, makespan_bound
from orsched.models.bounds.joint_bound import Solver, best_price, long_lengths, shorts_of
from tests.brute_force import optimum_ns
from tests.decoding import decoding
from tests.in_order import in_order
from tests.models.cases import CHEAP_STAGES, proven, shuffled, small

unequal = small(5, 2, CHEAP_STAGES, longest=(4, 12), clients=4, caps=(None, 6), blocks=(16, 40))
"""Few clients, many lengths, cheap stages: where the joint bound improves."""


@settings(max_examples=80)
@given(unequal)
def test_bound_at_most_the_optimum_and_re_derived(instance):
    assert proven(instance).value_ns <= optimum_ns(instance)


@pytest.mark.parametrize("seed", [1, *(pytest.param(s, marks=pytest.mark.full) for s in (2, 3, 4))])
def test_it_improves_where_stages_are_few(seed, monkeypatch):
    """100 requests on 20 clients: five stages make fewer windows than there are lengths."""
    instance = catalog.generate("gsm8k", seed=seed, requests=100, clients=20)
    with monkeypatch.context() as patch:
        patch.setattr(stages_rounds_bound, "joint_certificate", lambda *_: None)
        plain = makespan_bound(instance)
    lower, other = proven(instance), makespan_bound(shuffled(instance, random.Random(seed)))
    assert other.certificate == lower.certificate
    assert (plain.name, lower.name) == ("stages_and_rounds", "joint")
    assert plain.value_ns < lower.value_ns <= orsched.solve(instance, "hybrid").makespan_ns


def test_long_requests_leave_fewer_short_windows():
    """Four requests of 512 fill some client, and what they leave is too few windows."""
    instance = orsched.load("pang-100x20")
    lower, plain = proven(instance), next(improving_bounds(instance, lambda: True))
    assert (lower.name, lower.certificate["long"]) == ("joint", 512)
    # Three stages more than the five of 20 clients, which alone are enough windows.
    assert lower.value_ns == plain.value_ns + 3 * instance.worker.cost.prefill_fixed_ns


def test_long_lengths_by_hand():
    """Two clients: three requests of five on one of them, or five of four."""
    jobs = Context(decoding([1] * 6, [5, 5, 5, 4, 4, 1], Worker(2))).jobs
    for rounds, expected in ((12, [(5, 2), (4, 3)]), (9, [(5, 1), (4, 2), (3, 3)])):
        assert [(long.length, long.fitting) for long in long_lengths(jobs, rounds)] == expected
    assert [short_windows(stages, 3) for stages in (2, 3, 4, 5, 6)] == [0, 0, 2, 5, 9]
    assert [windows(stages) for stages in (1, 2, 3, 4)] == [1, 3, 6, 10]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 5)), min_size=1, max_size=7))
def test_rounding_is_the_cheapest(pairs):
    """Against every choice of the values that lengths are rounded up to."""
    counts = {}
    for length, count in pairs:
        counts[length] = counts.get(length, 0) + count
    lengths = sorted(counts)
    rounding = Rounding(lengths, [counts[length] for length in lengths])
    for values in range(1, len(lengths) + 1):
        cheapest = min(
            sum(counts[x] * (min(v for v in (*chosen, lengths[-1]) if v >= x) - x) for x in lengths)
            for chosen in combinations(lengths[:-1], values - 1)
        )
        assert best_price(rounding, values)[1] == cheapest


def test_one_stage_rounds_everything_up():
    """Two requests at once on two clients: the shorter one waits, or there is a second stage."""
    instance = decoding([1] * 4, [1, 2, 3, 10], Worker(4, in_order(AffineCost, 1, 0, 10, 0)))
    assert makespan_bound(instance).value_ns == optimum_ns(instance) == 101


def jobs_of(rounds, clients):
    column = np.array(rounds, np.int64)
    return Jobs(column, column, np.zeros_like(column), min(clients, len(rounds)))


@cache
def least_rounds(waiting, running, clients, stages):
    """Fewest rounds for requests of these lengths with so many stages, by trying everything."""
    if not waiting and not running:
        return 0
    found = 10**9
    if running:
        left = tuple(d - 1 for d in running if d > 1)
        found = 1 + least_rounds(waiting, left, clients, stages)
    if waiting and stages and len(running) < clients:
        for many in range(1, min(len(waiting), clients - len(running)) + 1):
            for chosen in choices(waiting, many):
                rest = list(waiting)
                for d in chosen:
                    rest.remove(d)
                # A round follows: two stages at one time are never better than one.
                after = tuple(d - 1 for d in sorted((*running, *chosen)) if d > 1)
                found = min(found, 1 + least_rounds(tuple(rest), after, clients, stages - 1))
    return found


def choices(lengths, many):
    """All multisets of so many of the lengths."""
    if many == 0:
        return {()}
    return {
        (d, *rest) for k, d in enumerate(lengths) for rest in choices(lengths[k + 1 :], many - 1)
    }


@st.composite
def some_long(draw, most=7):
    """Lengths of which several are the greatest, and few clients."""
    long = draw(st.integers(4, 8))
    longs = draw(st.integers(1, 4))
    shorts = draw(st.lists(st.integers(1, long - 1), min_size=1, max_size=most - longs))
    return sorted([*shorts, *[long] * longs]), draw(st.integers(1, 3))


@settings(max_examples=40)
@given(some_long(6))
def test_no_schedule_has_fewer_rounds_than_proven(case):
    """Every proof that the solver finds, for all stages and rounds, against all schedules."""
    rounds, clients = case
    shorts = shorts_of(jobs_of(rounds, clients))
    solver = Solver(shorts, lambda: False)
    for stages in range(1, len(rounds) + 1):
        least = least_rounds(tuple(rounds), (), clients, stages)
        for horizon in range(max(rounds), min(least, sum(rounds)) + 2):
            proof = solver.prove(stages, horizon)
            for more, needed in [] if proof is None else proof.proves:
                assert more >= stages
                assert horizon < needed <= least_rounds(tuple(rounds), (), clients, more)
                entry = {**proof.weights.to_dict(), "proves": [[more, needed]]}
                assert proven_rounds(rounds, shorts.clients, [entry], Budget()) == [(more, needed)]


@settings(max_examples=150)
@given(some_long(9), st.data())
def test_the_checker_proves_nothing_that_is_wrong(case, data):
    """Any weights, any claim: what the checker accepts is true."""
    rounds, clients = case
    clients = min(clients, len(rounds))
    n, stages = len(set(rounds)), data.draw(st.integers(1, 4))
    column = st.lists(st.integers(0, 9), min_size=n, max_size=n).map(sorted)
    entry = {name: data.draw(column) for name in ("end", "middle", "single", "window")}
    if data.draw(st.booleans()):
        entry["end"] = entry["middle"] = entry["single"] = sorted(set(rounds))
        entry["window"] = [0] * n
    entry["long"] = data.draw(st.sampled_from((entry["end"][-1], 3, 9)))
    least = least_rounds(tuple(rounds), (), clients, stages) if len(rounds) <= 7 else None
    for needed in range(1, sum(rounds) + 1):
        try:
            proven_rounds(rounds, clients, [{**entry, "proves": [[stages, needed]]}], Budget())
        except ValueError:
            continue
        assert least is None or needed <= least


@st.composite
def with_long(draw):
    rounds, clients = draw(some_long(5))
    n = len(rounds)
    plain = draw(small(n, n, CHEAP_STAGES, longest=(6, 1), caps=(None, 6), late=(0, 0, 40)))
    outputs = [d + (plain.first_token == "prefill") for d in rounds]
    worker = replace(plain.worker, clients=clients, memory=None)
    requests = plain.requests.replace(output_tokens=outputs)
    return plain.replace(requests=requests, workers=worker, output_limit_tokens=max(outputs))


@settings(max_examples=60)
@given(with_long())
def test_bound_by_a_search_at_most_the_optimum_and_re_derived(instance):
    assert proven(instance, bound(instance)).value_ns <= optimum_ns(instance)


def test_two_lengths_by_hand():
    """Two clients, two stages: a long on each, and no stage at which both shorts can begin. Shorts
    of 1 and 3 rounds, longs of 5. In six rounds each client would hold a short of 1 at most; in
    eight, one starts 3 rounds before a long and the other 5 after one, or both at 3."""
    rounds, clients = [1, 3, 5, 5], 2
    assert [least_rounds(tuple(rounds), (), clients, stages) for stages in (2, 3)] == [8, 8]
    shorts = shorts_of(jobs_of(rounds, clients))
    assert (shorts.long, shorts.longs, shorts.lengths.tolist()) == (5, 2, [1, 3])
    assert shorts.places(3, 8) == (4, 5)
    assert shorts.places(2, 4) is None
    assert shorts.up_to == [1, 2, 2]


def test_contents_and_roundings_by_hand():
    shorts = shorts_of(jobs_of([2, 3, 3, 5, 5], 2))
    ends = np.array([2, 3, 5])
    weights = Weights(ends, np.array([1, 1, 1]), np.array([2, 4, 4]), np.zeros(3, np.int64), 5)
    contents = Contents(shorts, weights, 12)
    # A request of 3 alone; ends of 3 and 5, or a long and an end; two ends and a long; two longs.
    assert contents.by_longs(3) == [4]
    assert contents.by_longs(8) == [8, 8]
    assert contents.by_longs(11) == [10, 11, 10]
    # Both lengths are rounded up to 3: 3 + 2 * 3; to the middle's weight where that is less.
    assert lightest(shorts, ends, None, 1).total == 9
    assert lightest(shorts, ends, None, 0).total == 15
    assert lightest(shorts, ends, np.array([1, 4, 9]), 1).total == 10 - 3
    assert lightest(shorts, ends, None, 2).lengths.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("requests", "clients", "seed"),
    [(30, 6, 3), *(pytest.param(100, 20, s, marks=pytest.mark.full) for s in (1, 2, 3, 4))],
)
def test_ends_improve_the_bound(requests, clients, seed):
    instance = catalog.generate("gsm8k", seed=seed, requests=requests, clients=clients)
    lower = proven(instance, bound(instance))
    assert (lower.name, bool(lower.certificate["ends"])) == ("joint", True)
    assert lower.value_ns <= orsched.solve(instance, "hybrid").makespan_ns
    if requests == 30:
        assert lower.value_ns > makespan_bound(instance).value_ns
        assert bound(instance).to_dict() == lower.to_dict()


@pytest.mark.parametrize("rounds", [[5, 5, 5], [0, 0], [1, 5] * 200])
def test_nothing_without_several_lengths(rounds):
    assert shorts_of(jobs_of(rounds, 2)) is None
