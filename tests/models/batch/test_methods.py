"""The published loop, numpy by groups and the line queries return the same partition."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import assume, given

from orsched.costs import BilinearCost
from orsched.models.batch import DEEPSPEED, PaddedMemory, TableMemory, batch
from orsched.models.batch.batch_problem import build
from orsched.models.batch.recurrences import Hulls, fits
from tests.in_order import in_order
from tests.models.batch.oracles import accepted, cases, random_case

METHODS = ("reference", "fast", "lines", "auto")
COST = BilinearCost.from_ms((0.12, 1.7, 0.4, 31.5), (0.00061, 0.09, 0.0021, 29.3))


def same(case):
    """Whether all methods return one partition; None if the input is refused."""
    results = [accepted(lambda m=method: batch(*case, method=m)) for method in METHODS]
    if results[0] is None:
        assert results == [None] * len(METHODS)
        return None
    first = results[0]
    for other in results[1:]:
        assert other.boundaries.tolist() == first.boundaries.tolist(), (case, other.method)
        assert other.serving_ns.tolist() == first.serving_ns.tolist()
        assert other.total_fs == first.total_fs
        assert other.conditions == first.conditions
    return results[2]


def test_ties_go_to_the_smaller_last_batch():
    # Two batches whatever the cut; the loop takes the last one as small as it can be.
    found = same(([1, 2, 2], in_order(BilinearCost, 0, 1, 0, 9, 0, 0, 0, 0), 1, None, 2))
    assert found.sizes.tolist() == [2, 1]
    # A falls: position 1, cut off its piece by the window, is as good as the later position 2.
    rng, seen = np.random.default_rng(4), 0
    for _ in range(300):
        lengths = rng.integers(1, 5, 9).tolist()
        cost = in_order(
            BilinearCost, -1, 5, int(rng.integers(0, 3)), int(rng.integers(0, 4)), 0, 0, 0, 0
        )
        seen += same((lengths, cost, 1, None, 3)) is not None
    assert seen > 250


@given(cases(most=40))
def test_methods_agree(case):
    assume(same(case) is not None)


@given(cases(most=40, negative=True))
def test_methods_agree_with_negative_coefficients(case):
    assume(same(case) is not None)


def agree(seed, count, most):
    """Run random cases; return how often each structure answered the line queries."""
    rng, seen = np.random.default_rng(seed), Counter()
    while seen.total() < count:
        found = same(random_case(rng, most))
        if found is not None:
            seen[found.why.partition("; ")[2]] += 1
    return seen


def test_methods_agree_on_random_inputs_by_every_structure():
    assert len(agree(5, 150, 60)) == 4  # both conditions met, one broken, the other, both


@pytest.mark.full
def test_methods_agree_on_thousands_of_random_inputs():
    assert min(agree(6, 6000, 80).values()) > 20


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


def hull_that_forgets(lengths, slope_of, base_of, size):
    """Least total by the usual monotone queue of lines, expired lines dropped from its front."""
    least, queue = [0], [0]
    for i, length in enumerate(lengths, 1):
        a = slope_of(length)
        while queue[0] < i - size:
            queue.pop(0)
        while len(queue) > 1 and least[queue[1]] - a * queue[1] <= least[queue[0]] - a * queue[0]:
            queue.pop(0)
        least.append(least[queue[0]] + a * (i - queue[0]) + base_of(length))
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
        right = batch(
            lengths, in_order(BilinearCost, p1, p2, p3, p4, 0, 0, 0, 0), 1, max_batch=size
        )
        assert right.method == "lines"
        loop = batch(
            lengths, BilinearCost(**asdict(COST) | {
                "p1_fs": p1, "p2_fs": p2, "p3_fs": p3, "p4_fs": p4,
                "d1_fs": 0, "d2_fs": 0, "d3_fs": 0, "d4_fs": 0,
            }), 1, max_batch=size, method="reference",
        )  # fmt: skip
        assert right.total_fs == loop.total_fs
        found = hull_that_forgets(
            lengths, lambda x, p=(p1, p2): p[0] * x + p[1], lambda x, p=(p3, p4): p[0] * x + p[1],
            size,
        )  # fmt: skip
        assert found >= right.total_fs
        wrong += found > right.total_fs
    assert wrong > 50


def test_totals_beyond_64_bits_stay_exact():
    big = in_order(BilinearCost, 2**50, 2**52, 2**55, 2**56, 0, 0, 0, 1)
    lengths = [1, 2, 2, 3, 3, 3, 4, 4, 5] * 60
    case = (lengths, big, 2, None, 3)
    assert fits(build(*case))
    found = same(case)
    assert found.total_fs > 2**64
    assert found.total_ns == int(found.serving_ns.sum())


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_beyond_64_bits_stay_exact(sign):
    huge = in_order(BilinearCost, sign * 2**50, 2**62, 2**58, 2**62, 2**30, 2**61, 3, 2**62)
    case = ([1, 7, 7, 8, 2, 900, 2, 2, 7] * 4, huge, 50, TableMemory(((60, 5), (70, 9)), 2), None)
    assert not fits(build(*case))
    assert same(case).total_fs > 2**64


def test_hulls_find_the_least_line_of_every_suffix():
    rng = np.random.default_rng(10)
    hulls, lines = Hulls(), []
    assert hulls.query(0, 1) is None
    for j in np.cumsum(rng.integers(1, 4, 70)).tolist():
        time = int(rng.integers(-50, 50))
        hulls.add(j, time)
        lines.append((j, time))
        for first in range(len(lines)):
            slope = int(rng.integers(-60, 60))
            least = min((t - slope * k, -k) for k, t in lines[first:])
            assert hulls.query(first, slope) == (least[0], -least[1])
