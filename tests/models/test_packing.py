"""Makespan packing: valid, at least the bound, optimal where it says so."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.checker.certificates import packing_violations
from orsched.common.errors import InputError
from orsched.instances.synthetic import output_tokens
from orsched.models.packing import pack, packing_bound


def _brute_force(jobs, clients):
    best = sum(jobs)
    for assignment in product(range(clients), repeat=len(jobs)):
        loads = [0] * clients
        for job, client in zip(jobs, assignment, strict=True):
            loads[client] += job
        best = min(best, max(loads))
    return best


@given(st.lists(st.integers(0, 30), max_size=6), st.integers(1, 3))
def test_bound_optimum_packing(jobs, clients):
    result = pack(jobs, clients)
    loads = [0] * clients
    for job, client in zip(jobs, result.assignment, strict=True):
        loads[client] += job
    assert result.makespan == max(loads)
    optimum = _brute_force(jobs, clients)
    assert result.bound <= optimum <= result.makespan
    assert result.optimal == (result.bound == result.makespan)
    assert result.bound >= packing_bound(jobs, clients)["value"]


def test_main_instances_are_packed_to_the_bound():
    """1,319 lengths on 200 clients: proven optimal, as PCMAX.md section 5 expects."""
    for seed in range(5):
        result = pack(output_tokens(1319, seed), 200)
        assert result.optimal
        assert result.makespan == -(-sum(output_tokens(1319, seed).tolist()) // 200)


def test_same_seed_same_packing_and_other_seeds_are_valid():
    jobs = output_tokens(300, 1).tolist()
    assert pack(jobs, 40, seed=3).assignment == pack(jobs, 40, seed=3).assignment
    assert pack(jobs, 40, seed=4).makespan >= packing_bound(jobs, 40)["value"]


def test_a_gap_ends_the_packing_sooner():
    jobs = [68, 66, 61, 57, 52, 49, 43, 38, 31, 30, 22, 17] * 3
    results = {gap: pack(jobs, 7, gap=gap) for gap in (0.0, 0.01, 0.5)}
    assert results[0.0] == pack(jobs, 7)
    for gap, result in results.items():
        assert (result.makespan - result.bound) <= gap * result.bound or not gap
        assert packing_violations(jobs, 7, result) == []
    assert results[0.5].makespan > results[0.0].makespan
    with pytest.raises(InputError, match="is not a gap"):
        pack(jobs, 7, gap=5)


def test_trivial_packings():
    assert pack([], 3).makespan == 0
    assert pack([7], 3).makespan == 7
    assert pack([5, 5, 5], 3).optimal
    assert pack([0, 0], 1).makespan == 0
    assert pack([2**52, 2**52], 1).makespan == 2**53


def test_more_clients_than_requests_and_empty_requests():
    for jobs, clients in (([3, 2], 10**6), ([0, 0, 7], 2**40), ([0] * 5, 3), ([], 1), ([0], 9)):
        result = pack(jobs, clients)
        assert (result.makespan, result.optimal) == (max(jobs, default=0), True)
        assert packing_violations(jobs, clients, result) == []
    assert len(set(pack([3, 2, 1], 5).assignment)) == 3


@pytest.mark.parametrize("limit", [None, 1.0, float("inf")])
def test_sums_near_the_edge_of_the_numbers(limit):
    for jobs, clients in (([2**53] * 512, 7), ([2**53 - k * k for k in range(9)], 4)):
        result = pack(jobs, clients, time_limit=limit)
        assert result.makespan >= result.bound >= -(-sum(jobs) // clients)
        assert packing_violations(jobs, clients, result) == []


@pytest.mark.parametrize(
    ("jobs", "clients", "field"),
    [
        ([-1], 2, "processing_times"),
        ([1.5], 2, "processing_times"),
        ([float("nan")], 2, "processing_times"),
        ([1], 0, "clients"),
        ([1], -3, "clients"),
        (["a"], 2, "processing_times"),
        ([1, None], 2, "processing_times"),
        ([float("inf")], 2, "processing_times"),
        ([True], 2, "processing_times"),
        ([2**53 + 1], 2, "processing_times"),
        ([2**70], 2, "processing_times"),
        ([2**53] * 513, 2, "processing_times"),
        ([[1, 2], [3, 4]], 2, "processing_times"),
        (7, 2, "processing_times"),
        ("12", 2, "processing_times"),
        ([1], True, "clients"),
        ([1], None, "clients"),
        ([1], 1.5, "clients"),
        ([1], float("nan"), "clients"),
        ([1], 2**70, "clients"),
    ],
)
def test_bad_packing_input_is_refused(jobs, clients, field):
    with pytest.raises(InputError) as caught:
        pack(jobs, clients)
    assert caught.value.field == field


@pytest.mark.parametrize("name", ["seed", "moves"])
@pytest.mark.parametrize("value", [-1, True, float("nan"), "0", 1.5, None])
def test_what_is_no_seed_and_no_number_of_moves_is_refused(name, value):
    with pytest.raises(InputError, match=name):
        pack([3, 2, 1], 2, **{name: value})
