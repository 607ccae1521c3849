"""The DP batcher: one answer by every method, the least by exhaustive search, and refusals."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orsched import BilinearCost, InputError
from orsched.models.batch import DEEPSPEED, PaddedMemory, TableMemory, batch
from orsched.models.batch.batch_problem import build
from orsched.models.batch.recurrences import fits as fits_into_64_bits
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

METHODS = ("reference", "fast", "lines", "auto")
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
    whole = in_order(BilinearCost, *(10**6 * k for k in range(1, 9)))
    result = batch([3, 4, 9, 9], whole, 4, max_batch=3)
    assert result.rounding_ns == 0
    assert result.total_fs == result.total_ns * 10**6


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.data())
def test_rounding_is_within_its_bound(lengths, data):
    cost = in_order(BilinearCost, *(data.draw(st.integers(0, 1_500_000)) for _ in range(8)))
    result = batch(lengths, cost, 2, max_batch=3)
    least = [0]
    for i, longest in enumerate(sorted(lengths), 1):
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


@pytest.mark.parametrize("method", METHODS)
def test_a_request_that_fits_into_no_batch_is_named(method):
    lengths = [3, 90, 2, 80, 90]
    with pytest.raises(InputError, match=r"row 1, .*a request of 90 tokens and a slice of 20"):
        batch(lengths, COST, 20, PaddedMemory(100, 1), method=method)
    with pytest.raises(InputError, match=r"row 3, .*a request of 80 tokens"):
        batch([3, 3, 2, 80, 90], COST, 20, TableMemory(((99, 4),)), method=method)


@pytest.mark.parametrize(
    ("case", "reason", "fits_with"),
    [
        (
            ([7, 7, 7], (1, -100, 0, 250, 0, 0, 0, 0), 1),
            r"a batch of 3 requests of 7 tokens .*negative",
            {"max_batch": 2},
        ),
        # A negative round, though its batch is positive.
        (([2], (0, 0, 0, 100, 0, 0, -1, 5), 4), "negative", {"slice_tokens": 3}),
        (([2**31 - 1] * 3, (2**62, 0, 0, 0, 0, 0, 0, 0), 1), r"above 2\*\*62", None),
    ],
    ids=["batch", "round", "column"],
)
def test_times_that_are_negative_or_that_no_column_holds_are_refused(case, reason, fits_with):
    lengths, values, tokens = case
    arguments = {"cost": in_order(BilinearCost, *values), "slice_tokens": tokens}
    with pytest.raises(InputError, match=reason):
        batch(lengths, **arguments)
    if fits_with is not None:
        assert len(batch(lengths, **arguments | fits_with)) == -(-len(lengths) // 2)


WRONG_RULES = (
    ("capacity_bytes", lambda: PaddedMemory(0, 1)), ("token_bytes", lambda: PaddedMemory(10, 0)),
    ("capacity_bytes", lambda: PaddedMemory(10, 1, 6, 4)),
    ("zeta_ppm", lambda: PaddedMemory(10, 1, zeta_ppm=1_000_001)),
    ("zeta_ppm", lambda: PaddedMemory(10, 1, zeta_ppm=0.9)),
    ("model_bytes", lambda: PaddedMemory(10, 1, model_bytes=-1)),
    ("limits", lambda: TableMemory(())), ("limits", lambda: TableMemory(3)),
    ("limits", lambda: TableMemory(((3, 2), (3, 1)))), ("limits", lambda: TableMemory((3, 2))),
    ("limits", lambda: TableMemory(((3, -2),))),
    ("beyond", lambda: TableMemory(((3, 2),), math.nan)),
)  # fmt: skip


@pytest.mark.parametrize(("field", "make"), WRONG_RULES)
def test_a_wrong_memory_rule_is_named(field, make):
    with pytest.raises(InputError, match=f"field '{field}'"):
        make()


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


def answer(case, method):
    """Return the answer of a method, of ``auto`` where line queries do not apply."""
    try:
        return batch(*case, method=method)
    except InputError as error:
        if "lines needs" not in str(error):
            raise
        assert method == "lines"
        found = batch(*case)
        assert found.method == "fast"
        return found


def solved(case, method):
    """The answer: well formed, as dear as it says, and least over what it says."""
    result = accepted(lambda: answer(case, method))
    assume(result is not None)
    well_formed(result, case[0])
    assert result.total_fs == priced(result, case)
    if result.optimal_over == "all partitions":
        assert result.total_fs == least_over_all(*case)
    return result


@given(cases(most=9), st.sampled_from(METHODS))
def test_least_over_all_partitions_with_nonnegative_coefficients(case, method):
    result = solved(case, method)
    if result.optimal_over != "all partitions":
        # Only a table whose N_max grows somewhere can break it.
        assert isinstance(case[3], TableMemory)
        assert not result.conditions["largest_batch_falls"]
        assert result.total_fs == least_contiguous(*case)


@given(cases(most=9, negative=True), st.sampled_from(METHODS))
def test_least_over_what_it_says_with_negative_coefficients(case, method):
    assert solved(case, method).total_fs == least_contiguous(*case)


def exhaustive(seed, count, most):
    """Compare all methods with all ways to cut; return how many are proven over all partitions."""
    rng = np.random.default_rng(seed)
    done = over_all = 0
    while done < count:
        case = random_case(rng, most)
        results = [accepted(lambda m=method, c=case: answer(c, m)) for method in METHODS]
        if results[0] is None:
            continue
        least = least_contiguous(*case)
        assert [result.total_fs for result in results] == [least] * len(METHODS), case
        done += 1
        over_all += results[3].optimal_over == "all partitions"
    return over_all


@pytest.mark.parametrize(("seed", "count"), [(1, 12), pytest.param(2, 500, marks=pytest.mark.full)])
def test_least_contiguous_up_to_twelve(seed, count):
    assert 0 < exhaustive(seed, count, 12) < count


@pytest.mark.parametrize(
    ("values", "rules", "broken", "least"),
    [
        # One more token saves 5 fs a batch: the best batches pair short with long.
        ((0, 0, -5, 30), (None, 2), "batch_time_grows", 10),
        # A table that grows.
        ((0, 0, 0, 10), (TableMemory(((3, 1),), 2), None), "largest_batch_falls", 20),
    ],
)
def test_a_partition_that_is_not_contiguous_can_be_better(values, rules, broken, least):
    case = ([1, 1, 5, 5], in_order(BilinearCost, *values, 0, 0, 0, 0), 1, *rules)
    result = batch(*case)
    assert result.optimal_over == "contiguous partitions"
    held = ("batch_time_grows", "windows_advance", "largest_batch_falls")
    assert next(name for name in held if not result.conditions[name]) == broken
    assert result.total_fs == least_contiguous(*case) == 30
    assert least_over_all(*case) == least


def of_stages(*values):
    """A cost whose rounds take no time."""
    return in_order(BilinearCost, *values, 0, 0, 0, 0)


def same(case):
    """Whether all methods return one partition; None if the input is refused."""
    results = [accepted(lambda m=method: answer(case, m)) for method in METHODS]
    if results[0] is None:
        assert results == [None] * len(METHODS)
        return None
    first, *others = (
        (found.boundaries.tolist(), found.serving_ns.tolist(), found.total_fs, found.conditions)
        for found in results
    )
    assert others == [first] * len(others), case
    return results[2]


def test_ties_go_to_the_smaller_last_batch():
    # Two batches whatever the cut; the loop takes the last one as small as it can be.
    found = same(([1, 2, 2], of_stages(0, 1, 0, 9), 1, None, 2))
    assert found.sizes.tolist() == [2, 1]
    # A falls: position 1, cut off its piece by the window, is as good as the later position 2.
    rng, seen = np.random.default_rng(4), 0
    for _ in range(300):
        lengths = rng.integers(1, 5, 9).tolist()
        cost = of_stages(-1, 5, int(rng.integers(0, 3)), int(rng.integers(0, 4)))
        seen += same((lengths, cost, 1, None, 3)) is not None
    assert seen > 250


@given(cases(most=40) | cases(most=40, negative=True))
def test_methods_agree(case):
    assume(same(case) is not None)


def agree(seed, count, most):
    """Run random cases; return how often each method is what ``auto`` takes."""
    rng, seen = np.random.default_rng(seed), Counter()
    while seen.total() < count:
        case = random_case(rng, most)
        if same(case) is not None:
            seen[batch(*case).method] += 1
    return seen


@pytest.mark.parametrize("count", [150, pytest.param(6000, marks=pytest.mark.full)])
def test_methods_agree_on_random_inputs(count):
    found = agree(5, count, 60)
    assert set(found) == {"lines", "fast"}
    assert min(found.values()) > count / 300


@pytest.mark.full
def test_methods_agree_on_longer_inputs():
    rng = np.random.default_rng(7)
    for memory in (None, PaddedMemory(10**9, 10**4), DEEPSPEED):
        for distinct in (3, 50, 700):
            lengths = rng.integers(1, distinct + 1, 1500)
            assert same((lengths, COST, 128, memory, None)) is not None


@pytest.mark.parametrize("memory", [None, PaddedMemory(60 * 2**30, 819_200), DEEPSPEED])
def test_fast_and_lines_agree_on_many_requests(memory):
    lengths = np.clip(np.rint(np.random.default_rng(8).lognormal(4.5, 1, 20_000)), 1, 600)
    results = [batch(lengths, COST, 128, memory, 100, method=m) for m in ("fast", "lines")]
    assert results[0].boundaries.tolist() == results[1].boundaries.tolist()
    assert int(results[0].sizes.max()) <= 100


def hull_that_forgets(lengths, slope, base, size):
    """Least total by the usual monotone queue of lines, expired lines dropped from its front."""
    least, queue = [0], [0]
    for i, length in enumerate(lengths, 1):
        a = slope[0] * length + slope[1]
        while queue[0] < i - size:
            queue.pop(0)
        while len(queue) > 1 and least[queue[1]] - a * queue[1] <= least[queue[0]] - a * queue[0]:
            queue.pop(0)
        least.append(least[queue[0]] + a * (i - queue[0]) + base[0] * length + base[1])
        while len(queue) > 1:
            j1, j2 = queue[-2:]
            if (least[j2] - least[j1]) * (i - j2) < (least[i] - least[j2]) * (j2 - j1):
                break
            queue.pop()
        queue.append(i)
        if queue[0] < i + 1 - size:
            queue.pop(0)
    return least[-1]


def test_a_queue_that_forgets_the_window_is_wrong_and_ours_is_not():
    rng = np.random.default_rng(9)
    wrong = 0
    for _ in range(200):
        lengths = np.sort(rng.integers(1, 60, 40)).tolist()
        p1, p2, p3, p4 = rng.integers(0, 50, 4).tolist()
        size = int(rng.integers(2, 8))
        right, loop = (
            batch(lengths, of_stages(p1, p2, p3, p4), 1, max_batch=size, method=method)
            for method in ("auto", "reference")
        )
        assert right.method == "lines"
        assert right.total_fs == loop.total_fs
        found = hull_that_forgets(lengths, (p1, p2), (p3, p4), size)
        assert found >= right.total_fs
        wrong += found > right.total_fs
    assert wrong > 50


def test_totals_beyond_64_bits_stay_exact():
    big = in_order(BilinearCost, 2**50, 2**52, 2**55, 2**56, 0, 0, 0, 1)
    lengths = [1, 2, 2, 3, 3, 3, 4, 4, 5] * 60
    case = (lengths, big, 2, None, 3)
    assert fits_into_64_bits(build(*case))
    found = same(case)
    assert found.total_fs > 2**64
    assert found.total_ns == int(found.serving_ns.sum())


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_beyond_64_bits_stay_exact(sign):
    huge = in_order(BilinearCost, sign * 2**50, 2**62, 2**58, 2**62, 2**30, 2**61, 3, 2**62)
    case = ([1, 7, 7, 8, 2, 900, 2, 2, 7] * 4, huge, 50, TableMemory(((60, 5), (70, 9)), 2), None)
    assert not fits_into_64_bits(build(*case))
    assert same(case).total_fs > 2**64
