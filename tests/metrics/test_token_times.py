"""Gaps between tokens, and sums over intervals, against one place at a time."""

import random
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched.common.columns import exact_sum
from orsched.costs import BilinearCost
from orsched.data.schedule import DECODE, INVALID, MIXED
from orsched.metrics import timeline_rows
from orsched.metrics.summary import distribution, summarise
from orsched.metrics.timeline import Timeline
from orsched.metrics.timeline_rows import NOTHING, covered_above, covered_max, covered_sum
from orsched.metrics.token_times import TokenGaps
from orsched.metrics.token_times import token_times as all_times
from tests.by_the_book import Book
from tests.in_order import in_order
from tests.metrics.any_schedule import any_schedule
from tests.metrics.book_of_classes import token_times
from tests.random_instances import random_instance
from tests.seeds import seeds

cases = st.integers(0, 10**6).map(any_schedule)


def every_gap(instance, schedule):
    """The gaps of each request from a literal reading of its tokens."""
    times = token_times(Book(instance, schedule))
    return [[b - a for a, b in pairwise(times[r])] for r in range(len(instance))]


def literal_gaps(instance, schedule):
    """The largest gap of each request."""
    return [max(gaps, default=0) for gaps in every_gap(instance, schedule)]


@settings(max_examples=150)
@given(cases)
def test_gaps_are_those_of_every_token(case):
    instance, schedule = case
    gaps = literal_gaps(instance, schedule)
    assert TokenGaps(Timeline(instance, schedule)).largest().tolist() == gaps
    several = [g for g, n in zip(gaps, instance.requests.output_tokens, strict=True) if n >= 2]
    results, flat = summarise(instance, schedule), [*chain(*every_gap(instance, schedule))]
    assert results["stall_ns"] == distribution(several)
    assert results["itl_ns"] == distribution(flat)
    if flat:
        as_vllm_bench_counts(results["itl_ns"], flat)


def as_vllm_bench_counts(found, itls):
    """Compare with the formulas of ``vllm bench serve``: mean and percentiles over the gaps of all
    requests. Its percentile lies between two gaps, of which ours, the nearest rank, is one."""
    assert found["mean"] == pytest.approx(np.mean(itls))
    for percent in (50, 90, 95, 99):
        low, high = (np.percentile(itls, percent, method=each) for each in ("lower", "higher"))
        assert low <= found[f"p{percent}"] <= high
        assert low <= np.percentile(itls, percent) <= high
    assert found["max"] == max(itls)


@settings(max_examples=60)
@given(cases, st.integers(0, 2**20))
def test_gaps_of_some_requests_are_theirs(case, chosen):
    instance, schedule = case
    wanted = np.array([chosen >> (r % 20) & 1 for r in range(len(instance))], bool)
    values, counts = TokenGaps(Timeline(instance, schedule)).spread(wanted)
    literal = [g for r, g in enumerate(every_gap(instance, schedule)) if wanted[r]]
    assert sorted(np.repeat(values, counts).tolist()) == sorted(chain(*literal))


def test_the_drawn_schedules_have_gaps_of_every_cause():
    """Evictions, paused requests, mixed steps and prefills of others are among them."""
    kinds = set()
    for seed in range(200):
        _, schedule = any_schedule(seed)
        work, steps = schedule.work, schedule.steps
        request, stay = work.request[work.phase == DECODE], work.stay[work.phase == DECODE]
        seen = {
            "mixed": steps.phase == MIXED, "evicted": stay >= 1, "evicted twice": stay >= 2,
            "on a third worker": steps.worker == 2, "held": work.phase == INVALID,
            "paused": (request[1:] == request[:-1]) & (stay[1:] == stay[:-1]),
            "several rounds": steps.rounds[steps.phase == DECODE] > 1,
        }  # fmt: skip
        kinds |= {kind for kind, rows in seen.items() if rows.any()}
    assert kinds == set(seen)


@pytest.mark.parametrize("method", ["fcfs", "vllm", "static", "ils", "scls", "slack"])
def test_gaps_of_methods_are_those_of_every_token(method):
    """Chunked, mixed, evicting and static batches, on the oracle's sizes of instance."""
    compared = 0
    for seed in range(12):
        instance = random_instance(random.Random(seed))
        try:
            schedule = orsched.solve(instance, method, iterations=2).schedule
        except orsched.InputError:
            continue  # the method does not suit the instance
        gaps = TokenGaps(Timeline(instance, schedule)).largest().tolist()
        assert gaps == literal_gaps(instance, schedule)
        compared += 1
    assert compared > 2


@settings(max_examples=60)
@given(cases)
def test_measured_gaps_are_those_of_equal_rounds(case):
    instance, schedule = case
    measured = schedule.replace(run={"device": "a device", "clock": "a clock"})
    line = Timeline(instance, measured)
    tokens = {}
    for part in all_times(line, np.ones(len(instance), bool)):
        for request, index, time in zip(*(each.tolist() for each in part), strict=True):
            tokens[request, index] = time
    expected = [0] * len(instance)
    for (request, index), time in tokens.items():
        before = tokens.get((request, index - 1), time)
        expected[request] = max(expected[request], time - before)
    assert TokenGaps(line).largest().tolist() == expected


def test_a_gap_by_hand():
    """The prefill of the second request stands between two tokens of the first."""
    worker = orsched.Worker(2, in_order(orsched.AffineCost, 100, 1, 10, 0))
    requests = orsched.Requests([5, 7], [4, 1], arrival_ns=[0, 115])
    instance = orsched.Instance(requests, worker, first_token="decode")
    result = orsched.solve(instance, "fcfs")
    # rounds at 105 to 115, 115 to 125; then 107 for the prefill, and the next round ends at 242
    assert TokenGaps(Timeline(instance, result.schedule)).largest().tolist() == [117, 0]
    assert result.itl_max_s == 117 / 1e9


@settings(max_examples=100)
@given(st.data())
def test_maxima_of_spans(data):
    n = data.draw(st.integers(1, 40))
    values = np.array(data.draw(st.lists(st.integers(-50, 50), min_size=n, max_size=n)))
    place = st.integers(0, n - 1)
    spans = data.draw(st.lists(st.tuples(place, place), max_size=30))
    first, last = (np.array([span[k] for span in spans], np.int64) for k in (0, 1))
    found = timeline_rows.spanned_max(values, first, last)
    assert found.tolist() == [max(values[a : b + 1].tolist(), default=NOTHING) for a, b in spans]


def test_a_derived_model_is_asked_for_each_round():
    """Rounds of a step may last differently: each is asked for."""

    class Bumpy(BilinearCost):
        def round_ns(self, active, context_sum, context_max):
            return 10_000 if context_max == 6 else 100

        def rounds_ns(self, rounds, active, context_sum, context_max):
            return sum(self.round_ns(active, 0, context_max + k) for k in range(rounds))

    bumpy = in_order(Bumpy, 0, 0, 0, 10**9, 0, 0, 0, 10**8)
    instance = orsched.Instance(orsched.Requests([3], [6]), orsched.Worker(1, bumpy), "decode")
    assert orsched.solve(instance, "fcfs").itl_max_s == 10_000 / 1e9


@st.composite
def span_cases(draw):
    """Number of places, intervals (some empty), a value for each, and a limit for each place."""
    n = draw(st.integers(1, 40))
    count = draw(st.integers(0, 12))
    first = [draw(st.integers(0, n - 1)) for _ in range(count)]
    last = [draw(st.integers(f - 1, n - 1)) for f in first]
    value = [draw(st.integers(0, 50)) for _ in range(count)]
    limit = [draw(st.integers(0, 70)) for _ in range(n)]
    return n, *(np.array(column, np.int64) for column in (first, last, value, limit))


def drawn(seed):
    """The same, larger: values beyond 2**31, more pairs than are compared one by one."""
    dice = np.random.default_rng(seed)
    n, many = int(dice.integers(1, 300)), int(dice.integers(0, 200))
    ends = np.sort(dice.integers(0, n, (2, many)), axis=0)
    most = int(dice.choice([1, 2, 7, 8, 100, 2**31 - 1]))
    return n, ends[0], ends[1], dice.integers(0, most, many), dice.integers(0, most + 1, n)


def require_right(n, first, last, value, limit):
    held = [value[(first <= place) & (place <= last)].tolist() for place in range(n)]
    assert covered_sum(n, first, last).tolist() == [len(there) for there in held]
    assert covered_sum(n, first, last, value).tolist() == [sum(there) for there in held]
    largest = [max((v - 25 for v in there), default=NOTHING) for there in held]
    assert covered_max(n, first, last, value - 25).tolist() == largest
    above = [sum(v > least for v in there) for there, least in zip(held, limit, strict=True)]
    assert covered_above(first, last, value, limit).tolist() == above


@given(span_cases())
def test_each_place_sees_the_intervals_that_hold_it(case):
    require_right(*case)


@pytest.mark.parametrize("seed", seeds(12, 60))
def test_many_intervals(seed):
    require_right(*drawn(seed))


def test_many_pairs_are_counted_bit_by_bit():
    """Most of the cases above have more pairs than are compared one by one."""
    assert sum(drawn(s)[0] * len(drawn(s)[1]) > 4096 for s in range(60)) > 30


def test_sums_and_maxima_by_hand():
    assert timeline_rows.before(np.array([3, 0, 4])).tolist() == [0, 3, 3, 7]
    assert timeline_rows.before(np.empty(0, np.int64)).tolist() == [0]
    ends, huge = np.array([0, 1]), [2**61, -(2**61)]
    assert covered_max(2, ends, ends, np.array(huge)).tolist() == huge


def test_sums_beyond_64_bits():
    values = np.array([2**62, 2**62 - 1, 2**62, 5], np.int64)
    factors = np.array([2**31 - 1, 3, 2**30, 0], np.int64)
    assert exact_sum(values) == 3 * 2**62 + 4
    products = zip(factors.tolist(), values.tolist(), strict=True)
    assert timeline_rows.exact_product(factors, values) == sum(a * b for a, b in products)
