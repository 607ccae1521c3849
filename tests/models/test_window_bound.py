"""The bound on stages and rounds together: sound, no weaker than each alone, re-derivable."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import AffineCost, BlockMemory, Instance, LevelsCost, Requests, Worker
from orsched.certificates.alignment import short_windows
from orsched.certificates.context import Context
from orsched.certificates.stages_rounds import Rounding, windows
from orsched.checker.certificates import certificate_violations
from orsched.instances import catalog
from orsched.models.bounds import stages_rounds_bound
from orsched.models.bounds.bounds import improving_bounds, makespan_bound
from orsched.models.bounds.joint_bound import best_price, long_lengths
from tests.brute_force import optimum_ns
from tests.decoding import decoding
from tests.in_order import in_order

COSTS = (
    in_order(AffineCost, 9, 0, 10, 1),
    in_order(AffineCost, 3, 1, 10, 0),
    in_order(AffineCost, 0, 0, 7, 0),
    LevelsCost(levels=((6, 3), (12, 5)), round_fixed_ns=4),
)


@st.composite
def unequal(draw, most=5):
    """Few clients, many lengths, cheap stages: where the joint bound improves."""
    n = draw(st.integers(2, most))
    column = lambda low, high: draw(st.lists(st.integers(low, high), min_size=n, max_size=n))  # noqa: E731
    memory = BlockMemory(draw(st.integers(16, 40)), 1, "whole") if draw(st.booleans()) else None
    worker = Worker(
        draw(st.integers(1, 4)),
        draw(st.sampled_from(COSTS)),
        draw(st.sampled_from((None, 6))),
        memory,
    )
    arrivals = column(0, draw(st.sampled_from((0, 0, 40))))
    rule = draw(st.sampled_from(("decode", "prefill")))
    return Instance(
        Requests(column(1, 4), column(1, 12), arrival_ns=arrivals), worker, first_token=rule
    )


def without_joint(instance, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(stages_rounds_bound, "joint_certificate", lambda *_: None)
        return makespan_bound(instance)


@settings(max_examples=80)
@given(unequal())
def test_bound_at_most_the_optimum_and_re_derived(instance):
    bound = makespan_bound(instance)
    assert bound.value_ns <= optimum_ns(instance)
    assert certificate_violations(instance, bound.to_dict()) == []


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_it_improves_where_stages_are_few(seed, monkeypatch):
    """100 requests on 20 clients: five stages make fewer windows than there are lengths."""
    instance = catalog.generate("gsm8k", seed=seed, requests=100, clients=20)
    plain, bound = without_joint(instance, monkeypatch), makespan_bound(instance)
    assert (plain.name, bound.name) == ("stages_and_rounds", "joint")
    assert bound.value_ns > plain.value_ns
    assert certificate_violations(instance, bound.to_dict()) == []
    assert bound.value_ns <= orsched.solve(instance, "hybrid").makespan_ns


def test_long_requests_leave_fewer_short_windows():
    """Four requests of 512 fill some client, and what they leave is too few windows."""
    instance = orsched.load("pang-100x20")
    bound = makespan_bound(instance)
    plain = next(improving_bounds(instance, lambda: True))
    assert (bound.name, bound.certificate["long"]) == ("joint", 512)
    # Three stages more than the five of 20 clients, which alone are enough windows.
    assert bound.value_ns == plain.value_ns + 3 * instance.worker.cost.prefill_fixed_ns
    assert certificate_violations(instance, bound.to_dict()) == []


def test_long_lengths_by_hand():
    """Two clients: three requests of five on one of them, or five of four."""
    jobs = Context(decoding([1] * 6, [5, 5, 5, 4, 4, 1], Worker(2))).jobs
    assert [(long.length, long.fitting) for long in long_lengths(jobs, 12)] == [(5, 2), (4, 3)]
    assert [(long.length, long.fitting) for long in long_lengths(jobs, 9)] == [
        (5, 1),
        (4, 2),
        (3, 3),
    ]
    assert [short_windows(stages, 3) for stages in (2, 3, 4, 5, 6)] == [0, 0, 2, 5, 9]


def test_changed_certificates_are_refused():
    instance = catalog.generate("gsm8k", seed=1, requests=100, clients=20)
    good = makespan_bound(instance).to_dict()
    claim = good["certificate"]
    forged = [
        {**claim, "prices": [[10**6, 10**6]] * len(claim["prices"])},
        {**claim, "prices": [[-1, 0], *claim["prices"][1:]]},
        {**claim, "prices": [[0, -1], *claim["prices"][1:]]},
        {**claim, "prices": [[2**70, 0]]},
        {**claim, "prices": [[1.0, 1.0]]},
        {**claim, "prices": [[1]]},
        {**claim, "prices": [1]},
        {**claim, "long": claim["long"] + 1},
        {**claim, "long": 0},
        {**claim, "long": "512"},
        {key: value for key, value in claim.items() if key != "long"},
        {**claim, "prices": []},
        {**claim, "prices": None},
        {**claim, "value_ns": claim["value_ns"] + 1},
        {**claim, "prefill_ns": 0},
        {**claim, "requests": 99},
        {**claim, "prefill_stages": {"value": 6, "reason": "clients"}},
        {key: value for key, value in claim.items() if key != "decode_rounds"},
    ]
    assert certificate_violations(instance, good) == []
    for bad in forged:
        assert certificate_violations(instance, {**good, "certificate": bad})
    assert certificate_violations(instance, {**good, "value_ns": good["value_ns"] + 1})


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


def test_windows_of_few_stages():
    assert [windows(stages) for stages in (1, 2, 3, 4)] == [1, 3, 6, 10]


def test_one_stage_rounds_everything_up():
    """Two requests at once on two clients: the shorter one waits, or there is a second stage."""
    instance = decoding([1] * 4, [1, 2, 3, 10], Worker(4, in_order(AffineCost, 1, 0, 10, 0)))
    assert makespan_bound(instance).value_ns == optimum_ns(instance) == 101


def test_row_order_does_not_matter():
    instance = catalog.generate("gsm8k", seed=3, requests=60, clients=12)
    rows = list(range(60))[::-1]
    permuted = instance.replace(requests=instance.requests.take(rows))
    assert makespan_bound(permuted).certificate == makespan_bound(instance).certificate
