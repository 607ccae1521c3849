"""Rounds by where clients begin and end: sound by exhaustive search, re-derived, and it helps."""

from __future__ import annotations

import copy
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import AffineCost, Instance, LevelsCost, Requests, Worker
from orsched.certificates.alignment import Contents, Weights, lightest, proven_rounds
from orsched.certificates.context import Jobs
from orsched.certificates.fields import Budget
from orsched.checker.certificates import certificate_violations
from orsched.instances import catalog
from orsched.models.bounds.bounds import bound, makespan_bound
from orsched.models.bounds.joint_bound import Solver, shorts_of
from tests.brute_force import optimum_ns
from tests.in_order import in_order

COSTS = (
    in_order(AffineCost, 9, 0, 10, 1),
    in_order(AffineCost, 3, 1, 10, 0),
    in_order(AffineCost, 1, 0, 7, 0),
    LevelsCost(levels=((6, 3), (12, 5)), round_fixed_ns=4),
    LevelsCost(levels=((4, 2), (12, 9)), round_fixed_ns=10),
)


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
                now = tuple(sorted((*running, *chosen)))
                # Two stages at one time are never better than one.
                if len(now) > len(running):
                    after = tuple(d - 1 for d in now if d > 1)
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
                assert needed > horizon
                assert needed <= least_rounds(tuple(rounds), (), clients, more)
                entry = {**proof.weights.to_dict(), "proves": [[more, needed]]}
                assert proven_rounds(rounds, shorts.clients, [entry], Budget()) == [(more, needed)]


@settings(max_examples=150)
@given(some_long(9), st.data())
def test_the_checker_proves_nothing_that_is_wrong(case, data):
    """Any weights, any claim: what the checker accepts is true."""
    rounds, clients = case
    clients = min(clients, len(rounds))
    n, stages = len(set(rounds)), data.draw(st.integers(1, 4))
    column = lambda: sorted(data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)))  # noqa: E731
    entry = {"end": column(), "middle": column(), "single": column(), "window": column()}
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
        if least is not None:
            assert needed <= least


@st.composite
def small(draw):
    rounds, clients = draw(some_long(5))
    rule = draw(st.sampled_from(("decode", "prefill")))
    outputs = [d + (rule == "prefill") for d in rounds]
    prompts = draw(st.lists(st.integers(1, 6), min_size=len(rounds), max_size=len(rounds)))
    arrivals = draw(
        st.lists(
            st.integers(0, draw(st.sampled_from((0, 0, 40)))),
            min_size=len(rounds),
            max_size=len(rounds),
        )
    )
    worker = Worker(clients, draw(st.sampled_from(COSTS)), draw(st.sampled_from((None, 6))))
    return Instance(Requests(prompts, outputs, arrival_ns=arrivals), worker, first_token=rule)


@settings(max_examples=60)
@given(small())
def test_bound_at_most_the_optimum_and_re_derived(instance):
    lower = bound(instance)
    assert lower.value_ns <= optimum_ns(instance)
    assert certificate_violations(instance, lower.to_dict()) == []


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
    zero = np.zeros(3, np.int64)
    weights = Weights(np.array([2, 3, 5]), np.array([1, 1, 1]), np.array([2, 4, 4]), zero, 5)
    contents = Contents(shorts, weights, 12)
    # A request of 3 alone; ends of 3 and 5, or a long and an end; two ends and a long; two longs.
    assert contents.by_longs(3) == [4]
    assert contents.by_longs(8) == [8, 8]
    assert contents.by_longs(11) == [10, 11, 10]
    # Both lengths are rounded up to 3: 3 + 2 * 3; to the middle's weight where that is less.
    assert lightest(shorts, np.array([2, 3, 5]), None, 1).total == 9
    assert lightest(shorts, np.array([2, 3, 5]), None, 0).total == 15
    assert lightest(shorts, np.array([2, 3, 5]), np.array([1, 4, 9]), 1).total == 10 - 3
    assert lightest(shorts, np.array([2, 3, 5]), None, 2).lengths.tolist() == [0, 1]


def improved(requests=30, clients=6, seed=3):
    instance = catalog.generate("gsm8k", seed=seed, requests=requests, clients=clients)
    return instance, bound(instance)


def test_it_improves_where_stages_are_few():
    instance, lower = improved()
    assert lower.name == "joint"
    assert lower.certificate["ends"]
    assert lower.value_ns > makespan_bound(instance).value_ns
    assert certificate_violations(instance, lower.to_dict()) == []
    assert lower.value_ns <= orsched.solve(instance, "hybrid").makespan_ns
    assert bound(instance).to_dict() == lower.to_dict()


@pytest.mark.full
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_hundred_requests(seed):
    instance, lower = improved(100, 20, seed)
    assert lower.certificate["ends"]
    assert certificate_violations(instance, lower.to_dict()) == []
    assert lower.value_ns <= orsched.solve(instance, "hybrid").makespan_ns


def test_changed_certificates_are_refused():
    instance, lower = improved()
    good = lower.to_dict()
    (entry,) = good["certificate"]["ends"]
    stages, rounds = entry["proves"][0]
    last = len(entry["end"]) - 1
    changed = [
        {**entry, "proves": [[stages + 9, rounds]]},
        {**entry, "proves": [[stages, rounds + 9]]},
        {**entry, "proves": [[stages, 10**9]]},
        {**entry, "proves": [[10**9, rounds]]},
        {**entry, "proves": [[stages, float(rounds)]]},
        {**entry, "proves": [[stages]]},
        {**entry, "proves": [[True, rounds]]},
        {**entry, "proves": []},
        {**entry, "long": entry["long"] // 2},
        {**entry, "long": -1},
        {**entry, "long": 2**50},
        {**entry, "end": entry["end"][:-1]},
        {**entry, "end": [2 * entry["end"][last], *entry["end"][1:]]},
        {**entry, "end": [-1, *entry["end"][1:]]},
        {**entry, "end": [float(weight) for weight in entry["end"]]},
        {**entry, "end": [0] * (last + 1)},
        {**entry, "window": None},
        {**entry, "other": 1},
        {key: value for key, value in entry.items() if key != "middle"},
    ]
    forged = [[other] for other in changed]
    forged += [[], None, [entry, changed[0]], 1]
    assert certificate_violations(instance, good) == []
    for ends in forged:
        bad = copy.deepcopy(good)
        bad["certificate"]["ends"] = ends
        assert certificate_violations(instance, bad), ends
    for change in ({"allows": ["chunks"]}, {"value_ns": lower.value_ns + 1}):
        assert certificate_violations(
            instance, {**good, "certificate": good["certificate"] | change}
        )
    without = {key: value for key, value in good["certificate"].items() if key != "ends"}
    assert certificate_violations(instance, {**good, "certificate": without})


def test_nothing_without_several_lengths():
    assert shorts_of(jobs_of([5, 5, 5], 2)) is None
    assert shorts_of(jobs_of([0, 0], 2)) is None
    assert shorts_of(jobs_of([1, 5] * 200, 2)) is None
