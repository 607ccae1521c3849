"""The DP batcher finds the least total, and says among which partitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orsched.costs import BilinearCost
from orsched.models.batch import TableMemory, batch
from tests.in_order import in_order
from tests.models.batch.oracles import (
    accepted,
    cases,
    fits,
    least_contiguous,
    least_over_all,
    random_case,
    serving_fs,
)

METHODS = ("reference", "fast", "lines")


def priced(result, case):
    """Total of the returned batches by the printed formulas; each must be admissible."""
    lengths, cost, slice_tokens, memory, max_batch = case
    total = 0
    for rows in result:
        longest = max(lengths[row] for row in rows)
        assert fits(memory, max_batch, len(rows), longest, slice_tokens)
        total += serving_fs(cost, len(rows), longest, slice_tokens)
    return total


def well_formed(result, lengths):
    assert sorted(result.order.tolist()) == list(range(len(lengths)))
    ordered = [lengths[row] for row in result.order]
    assert ordered == sorted(lengths)
    cuts = result.boundaries.tolist()
    assert cuts[0] == 0
    assert cuts[-1] == len(lengths)
    assert cuts == sorted(set(cuts))
    assert result.longest.tolist() == [ordered[cut - 1] for cut in cuts[1:]]


@given(cases(most=9), st.sampled_from(METHODS))
def test_least_over_all_partitions_with_nonnegative_coefficients(case, method):
    result = accepted(lambda: batch(*case, method=method))
    assume(result is not None)
    well_formed(result, case[0])
    assert result.total_fs == priced(result, case)
    if result.optimal_over == "all partitions":
        assert result.total_fs == least_over_all(*case)
    else:  # only a table whose N_max grows somewhere can break it
        assert isinstance(case[3], TableMemory)
        assert not result.conditions["largest_batch_falls"]
        assert result.total_fs == least_contiguous(*case)


@given(cases(most=9, negative=True), st.sampled_from(METHODS))
def test_least_over_what_it_says_with_negative_coefficients(case, method):
    result = accepted(lambda: batch(*case, method=method))
    assume(result is not None)
    well_formed(result, case[0])
    assert result.total_fs == priced(result, case) == least_contiguous(*case)
    if result.optimal_over == "all partitions":
        assert result.total_fs == least_over_all(*case)


def exhaustive(seed, count, most, oracle):
    """Compare all methods with an oracle; return how many were proven over all partitions."""
    rng = np.random.default_rng(seed)
    done = over_all = 0
    while done < count:
        case = random_case(rng, most)
        for method in METHODS:
            result = accepted(lambda m=method, c=case: batch(*c, method=m))
            if result is None:
                break
            assert result.total_fs == oracle(*case), (case, method)
            if oracle is least_over_all:
                continue
        else:
            done += 1
            over_all += result.optimal_over == "all partitions"
    return over_all


def test_least_contiguous_up_to_twelve():
    assert 0 < exhaustive(1, 12, 12, least_contiguous) < 12


@pytest.mark.full
def test_least_contiguous_up_to_twelve_at_length():
    assert 0 < exhaustive(2, 500, 12, least_contiguous) < 500


@pytest.mark.full
def test_least_over_all_partitions_at_length():
    rng = np.random.default_rng(3)
    proven = 0
    while proven < 500:
        case = random_case(rng, 9)
        result = accepted(lambda c=case: batch(*c))
        if result is None or result.optimal_over != "all partitions":
            continue
        proven += 1
        assert result.total_fs == least_over_all(*case), case


def test_a_partition_that_is_not_contiguous_can_be_better_and_is_not_denied():
    # One more token saves 5 fs a batch: the best batches pair short with long.
    cost = in_order(BilinearCost, 0, 0, -5, 30, 0, 0, 0, 0)
    case = ([1, 1, 5, 5], cost, 1, None, 2)
    result = batch(*case)
    assert result.optimal_over == "contiguous partitions"
    assert not result.conditions["batch_time_grows"]
    assert result.total_fs == least_contiguous(*case) == 30
    assert least_over_all(*case) == 10


def test_a_table_that_grows_can_be_beaten_and_is_not_denied():
    cost = in_order(BilinearCost, 0, 0, 0, 10, 0, 0, 0, 0)
    case = ([1, 1, 5, 5], cost, 1, TableMemory(((3, 1),), 2), None)
    result = batch(*case)
    assert result.optimal_over == "contiguous partitions"
    assert result.conditions["batch_time_grows"]
    assert result.conditions["windows_advance"]
    assert not result.conditions["largest_batch_falls"]
    assert result.total_fs == least_contiguous(*case) == 30
    assert least_over_all(*case) == 20
