"""Answers in nanoseconds, the two memory rules, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orsched import AffineCost, BilinearCost, InputError
from orsched.models.batch import DEEPSPEED, PaddedMemory, TableMemory, batch
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

COST = BilinearCost.from_ms((0.12, 1.7, 0.4, 31.5), (0.00061, 0.09, 0.0021, 29.3))
PADDED = BilinearCost.from_ms((0.12, 1.7, 0.4, 31.5), (0.005, 0.09, 0.0021, 29.3))
FIGURE_11 = [10] * 15 + [1024]


@pytest.mark.parametrize("cost", [COST, COST.scaled(3)])
def test_times_are_the_cost_models(cost):
    lengths = [5, 900, 31, 5, 6, 850, 1]
    result = batch(lengths, cost, 16, max_batch=4)
    for rows, time in zip(result, result.serving_ns.tolist(), strict=True):
        prompts = [lengths[row] for row in rows]
        rounds = [
            cost.round_ns(len(rows), sum(prompts) + len(rows) * l, max(prompts) + l)
            for l in range(1, 17)  # noqa: E741
        ]
        assert time == cost.prefill_ns(prompts) + sum(rounds)
    assert result.total_ns == sum(result.serving_ns.tolist())
    assert abs(result.total_ns * 10**6 - result.total_fs) <= result.rounding_ns * 10**6


def test_rounding_changes_nothing_where_all_is_whole():
    result = batch(
        [3, 4, 9, 9], in_order(BilinearCost, *[10**6 * k for k in range(1, 9)]), 4, max_batch=3
    )
    assert result.rounding_ns == 0
    assert result.total_fs == result.total_ns * 10**6


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.data())
def test_rounding_is_within_its_bound(lengths, data):
    values = [data.draw(st.integers(0, 1_500_000)) for _ in range(8)]
    cost = in_order(BilinearCost, *values)
    result = batch(lengths, cost, 2, max_batch=3)
    ordered = sorted(lengths)
    least = [0]
    for i in range(1, len(ordered) + 1):
        longest = ordered[i - 1]
        least.append(
            min(
                least[j] + cost.prefill_ns([longest] * (i - j))
                + cost.rounds_ns(2, i - j, 0, longest + 1)
                for j in range(max(0, i - 3), i)
            )
        )  # fmt: skip
    assert least[-1] <= result.total_ns <= least[-1] + result.rounding_ns


def test_short_requests_are_not_padded_to_a_long_one():
    # SCLS, figure 11: fifteen prompts of 10 tokens and one of 1,024.
    result = batch(FIGURE_11, PADDED, 128)
    assert [rows.tolist() for rows in result] == [list(range(15)), [15]]
    together = batch([1024] * 16, PADDED, 128)
    assert len(together) == 1
    assert result.total_ns < together.total_ns


def test_no_requests_need_no_batch():
    for method in ("auto", "reference", "fast", "lines"):
        result = batch([], COST, 128, DEEPSPEED, method=method)
        assert len(result) == len(list(result)) == result.total_ns == result.total_fs == 0
        assert result.boundaries.tolist() == [0]
        assert result.optimal_over == "all partitions"


def test_equal_lengths_without_a_limit_make_one_batch():
    result = batch([7] * 1000, COST, 128)
    assert result.sizes.tolist() == [1000]
    assert result.method == "lines"
    assert "as asked" not in result.why
    assert result.conditions["slope_grows"]


def test_the_answer_does_not_depend_on_the_order_of_requests():
    lengths = np.random.default_rng(1).integers(1, 100_000, 300)
    one, other = batch(lengths, COST, 8), batch(lengths[::-1].tolist(), COST, 8)
    assert one.boundaries.tolist() == other.boundaries.tolist()
    assert lengths[one.order].tolist() == sorted(lengths.tolist())
    assert one.order.tolist() == np.argsort(lengths, kind="stable").tolist()


@given(
    st.integers(10**6, 2**40), st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 5000)
)
def test_padded_memory_is_the_largest_that_fits(capacity, token, zeta, tokens):
    rule = PaddedMemory(capacity, token, capacity // 3, capacity // 5, zeta)
    most = int(rule.most(np.array([tokens]))[0])
    available = capacity - capacity // 3 - capacity // 5
    held = lambda n: tokens * n * token * 10**6  # noqa: E731
    assert held(most) <= zeta * available < held(most + 1)


def test_algorithm_2():
    tokens = np.array([1, 512, 513, 1024, 1025, 2048])
    assert DEEPSPEED.most(tokens).tolist() == [28, 28, 22, 22, 12, 12]
    result = batch([384] * 29, COST, 128, DEEPSPEED)
    assert int(result.sizes.max()) <= 28
    assert len(result) == 2


@pytest.mark.parametrize("lengths", [[5, 0], [5, -1], [5, math.nan], [5, 2**31], [5, 1.5]])
def test_a_wrong_length_is_named(lengths):
    with pytest.raises(InputError, match="row 1, field 'lengths'"):
        batch(lengths, COST, 128)


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("slice_tokens", {"slice_tokens": 0}),
        ("slice_tokens", {"slice_tokens": 1.5}),
        ("max_batch", {"max_batch": 0}),
        ("memory", {"memory": 512}),
        ("cost", {"cost": AffineCost()}),
        ("method", {"method": "greedy"}),
        ("method", {"method": None}),
    ],
)
def test_a_wrong_argument_is_named(field, arguments):
    given_arguments = {"lengths": [5, 6], "cost": COST, "slice_tokens": 128} | arguments
    with pytest.raises(InputError, match=f"field '{field}'"):
        batch(**given_arguments)


@pytest.mark.parametrize("method", ["auto", "reference", "fast", "lines"])
def test_a_request_that_fits_into_no_batch_is_named(method):
    lengths = [3, 90, 2, 80, 90]
    with pytest.raises(InputError, match=r"row 1, .*a request of 90 tokens and a slice of 20"):
        batch(lengths, COST, 20, PaddedMemory(100, 1), method=method)
    with pytest.raises(InputError, match=r"row 3, .*a request of 80 tokens"):
        batch([3, 3, 2, 80, 90], COST, 20, TableMemory(((99, 4),)), method=method)


def test_a_batch_of_negative_time_is_refused():
    cost = in_order(BilinearCost, 1, -100, 0, 250, 0, 0, 0, 0)
    with pytest.raises(InputError, match=r"a batch of 3 requests of 7 tokens .*negative"):
        batch([7, 7, 7], cost, 1)
    assert len(batch([7, 7, 7], cost, 1, max_batch=2)) == 2


def test_a_negative_round_is_refused_though_its_batch_is_positive():
    with pytest.raises(InputError, match="negative"):
        batch([2], in_order(BilinearCost, 0, 0, 0, 100, 0, 0, -1, 5), 4)
    assert len(batch([2], in_order(BilinearCost, 0, 0, 0, 100, 0, 0, -1, 5), 3)) == 1


def test_a_time_that_no_column_holds_is_refused():
    with pytest.raises(InputError, match=r"above 2\*\*62"):
        batch([2**31 - 1] * 3, in_order(BilinearCost, 2**62, 0, 0, 0, 0, 0, 0, 0), 1)


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("capacity_bytes", lambda: PaddedMemory(0, 1)),
        ("capacity_bytes", lambda: PaddedMemory(10, 1, 6, 4)),
        ("token_bytes", lambda: PaddedMemory(10, 0)),
        ("zeta_ppm", lambda: PaddedMemory(10, 1, zeta_ppm=1_000_001)),
        ("zeta_ppm", lambda: PaddedMemory(10, 1, zeta_ppm=0.9)),
        ("model_bytes", lambda: PaddedMemory(10, 1, model_bytes=-1)),
        ("limits", lambda: TableMemory(())),
        ("limits", lambda: TableMemory(3)),
        ("limits", lambda: TableMemory(((3, 2), (3, 1)))),
        ("limits", lambda: TableMemory(((3, -2),))),
        ("limits", lambda: TableMemory((3, 2))),
        ("beyond", lambda: TableMemory(((3, 2),), math.nan)),
    ],
)
def test_a_wrong_memory_rule_is_named(field, make):
    with pytest.raises(InputError, match=f"field '{field}'"):
        make()


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
