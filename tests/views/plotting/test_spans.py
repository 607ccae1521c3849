"""Spans: who holds which client when."""

from __future__ import annotations

import numpy as np
import pytest

from orsched.metrics.request_times import request_times
from orsched.views.spans import client_use, lane_offsets, rank_in_lane
from tests.metrics.any_schedule import any_schedule
from tests.views.plotting.samples import by_hand, empty, every_kind, random_instance, served


def rows(spans):
    columns = (spans.request, spans.lane, spans.start_ns, spans.end_ns)
    return list(zip(*(c.tolist() for c in columns), strict=True))


def test_lanes_count_through_the_workers():
    assert lane_offsets(by_hand()[0]).tolist() == [0, 2, 3]


def test_chunks_are_prefills_of_their_own():
    assert rows(client_use(*by_hand()).prefill) == [
        (0, 0, 0, 10), (0, 0, 10, 20), (1, 1, 0, 10), (1, 0, 24, 30), (2, 2, 5, 9),
    ]  # fmt: skip


def test_a_bar_runs_from_the_end_of_the_prefill_and_a_restart_has_its_own():
    assert rows(client_use(*by_hand()).decode) == [
        (0, 0, 20, 24), (1, 1, 10, 24), (1, 0, 30, 33), (2, 2, 9, 12),
    ]  # fmt: skip


def test_a_stay_holds_all_chunks_and_ends_with_an_eviction():
    assert rows(client_use(*by_hand()).stays) == [
        (0, 0, 0, 24), (1, 1, 0, 24), (1, 0, 24, 33), (2, 2, 5, 12),
    ]  # fmt: skip


def test_rounds_after_the_last_token_are_spans_of_their_own():
    use = client_use(*every_kind())
    assert rows(use.invalid) == [(0, 0, 26, 38)]
    assert rows(use.decode) == [
        (0, 0, 20, 26), (1, 1, 20, 38), (2, 2, 14, 42), (2, 2, 47, 59), (3, 3, 42, 59),
    ]  # fmt: skip


def test_a_request_is_paused_while_the_worker_decodes_without_it():
    assert rows(client_use(*every_kind()).paused) == [(2, 2, 42, 47)]


@pytest.mark.parametrize("seed", range(40))
def test_spans_fill_every_stay_without_overlap(seed):
    use = client_use(*any_schedule(seed))
    parts = [*rows(use.prefill), *rows(use.decode), *rows(use.invalid), *rows(use.paused)]
    for request, lane, start, end in rows(use.stays):
        inside = sorted(
            (a, b) for r, at, a, b in parts if (r, at) == (request, lane) and start <= a <= b <= end
        )
        inside = [(a, b) for a, b in inside if a < b]
        borders = [start, *(b for _, b in inside)]
        if start < end:
            assert [a for a, _ in inside] == borders[:-1]
            assert borders[-1] == end
    assert len(parts) >= len(use.stays)


@pytest.mark.parametrize("first_token", ["decode", "prefill"])
def test_without_evictions_spans_are_the_times_of_the_requests(first_token):
    instance = random_instance(latest_ns=20 * 10**9, first_token=first_token)
    schedule = served(instance)
    times = request_times(instance, schedule)
    use = client_use(instance, schedule)
    decode, prefill = use.decode, use.prefill
    assert rows(use.stays) == list(
        zip(
            range(len(instance)),
            times["client"].tolist(),
            times["prefill_start_ns"].tolist(),
            times["finish_ns"].tolist(),
            strict=True,
        )
    )
    assert np.array_equal(prefill.end_ns, times["prefill_end_ns"])
    assert np.array_equal(decode.request, np.flatnonzero(instance.rounds_needed > 0))
    assert np.array_equal(decode.start_ns, times["prefill_end_ns"][decode.request])
    assert np.array_equal(decode.end_ns, times["finish_ns"][decode.request])


def test_successive_spans_of_a_request_have_one_rank():
    spans = client_use(*every_kind()).decode
    assert rank_in_lane(spans).tolist() == [0, 0, 0, 0, 0]
    assert rank_in_lane(by_hand_decodes()).tolist() == [0, 0, 1, 0]


def by_hand_decodes():
    return client_use(*by_hand()).decode


def test_ranks_count_the_spans_of_each_lane():
    instance = random_instance()
    spans = client_use(instance, served(instance)).decode
    ranks = rank_in_lane(spans)
    for lane in range(6):
        mine = np.flatnonzero(spans.lane == lane)
        by_start = mine[np.argsort(spans.start_ns[mine])]
        assert ranks[by_start].tolist() == list(range(len(mine)))


def test_nothing_has_no_spans():
    use = client_use(*empty())
    for found in (use.decode, use.prefill, use.stays):
        assert rows(found) == []
        assert rank_in_lane(found).tolist() == []
