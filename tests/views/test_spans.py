"""Who holds which client when, and the stages around: by hand and against the times of requests."""

from __future__ import annotations

import numpy as np
import pytest

from orsched.data.schedule import DECODE, PREFILL
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import request_times
from orsched.views.spans import STAGE_COLUMNS, bins, lane_offsets, rank_in_lane, stage_columns
from tests.metrics.any_schedule import any_schedule
from tests.views.samples import (
    by_hand,
    empty,
    every_kind,
    random_instance,
    served,
    transferred,
    use_of,
)


def rows(spans):
    columns = (spans.request, spans.lane, spans.start_ns, spans.end_ns)
    return list(zip(*(c.tolist() for c in columns), strict=True))


def test_lanes_count_through_the_workers():
    assert lane_offsets(by_hand()[0]).tolist() == [0, 2, 3]


def test_chunks_are_prefills_of_their_own():
    assert rows(use_of(*by_hand()).prefill) == [
        (0, 0, 0, 10), (0, 0, 10, 20), (1, 1, 0, 10), (1, 0, 24, 30), (2, 2, 5, 9),
    ]  # fmt: skip


def test_a_bar_runs_from_the_end_of_the_prefill_and_a_restart_has_its_own():
    assert rows(use_of(*by_hand()).decode) == [
        (0, 0, 20, 24), (1, 1, 10, 24), (1, 0, 30, 33), (2, 2, 9, 12),
    ]  # fmt: skip


def test_a_stay_holds_all_chunks_and_ends_with_an_eviction():
    assert rows(use_of(*by_hand()).stays) == [
        (0, 0, 0, 24), (1, 1, 0, 24), (1, 0, 24, 33), (2, 2, 5, 12),
    ]  # fmt: skip


def test_rounds_after_the_last_token_are_spans_of_their_own():
    use = use_of(*every_kind())
    assert rows(use.invalid) == [(0, 0, 26, 38)]
    assert rows(use.decode) == [
        (0, 0, 20, 26), (1, 1, 20, 38), (2, 2, 14, 42), (2, 2, 47, 59), (3, 3, 42, 59),
    ]  # fmt: skip


def test_a_request_is_paused_while_the_worker_decodes_without_it():
    assert rows(use_of(*every_kind()).paused) == [(2, 2, 42, 47)]


@pytest.mark.parametrize("seed", range(40))
def test_spans_fill_every_stay_without_overlap(seed):
    use = use_of(*any_schedule(seed))
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
    use = use_of(instance, schedule)
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
    spans = use_of(*every_kind()).decode
    assert rank_in_lane(spans).tolist() == [0, 0, 0, 0, 0]
    assert rank_in_lane(by_hand_decodes()).tolist() == [0, 0, 1, 0]


def by_hand_decodes():
    return use_of(*by_hand()).decode


def test_ranks_count_the_spans_of_each_lane():
    instance = random_instance()
    spans = use_of(instance, served(instance)).decode
    ranks = rank_in_lane(spans)
    for lane in range(6):
        mine = np.flatnonzero(spans.lane == lane)
        by_start = mine[np.argsort(spans.start_ns[mine])]
        assert ranks[by_start].tolist() == list(range(len(mine)))


def test_nothing_has_no_spans():
    use = use_of(*empty())
    for found in (use.decode, use.prefill, use.stays):
        assert rows(found) == []
        assert rank_in_lane(found).tolist() == []


@pytest.mark.parametrize("seed", [1, 2, 9])
def test_each_transfer_is_a_bar_on_both_workers(seed):
    instance, schedule = transferred(seed)
    sent, use = schedule.transfers, use_of(instance, schedule)
    assert len(use.transfers) == 2 * len(sent)
    assert sorted(use.transfers.start_ns.tolist()) == sorted([*sent.start_ns, *sent.start_ns])
    evicted = int((schedule.work.stay[schedule.work.phase == 0] > 0).any())
    assert bool(len(use.restarts)) == bool(evicted)


def test_stages_by_hand():
    columns = stage_columns(Timeline(*by_hand()))
    assert tuple(columns) == STAGE_COLUMNS
    rows = list(zip(*(columns[name].tolist() for name in STAGE_COLUMNS), strict=True))
    assert rows == [
        (0, 0, 0, 0, 10, 1, 2, 2, 5),
        (0, 0, 1, 10, 20, 1, 1, 1, 2),
        (0, 1, 1, 20, 24, 2, 2, 0, 0),
        (0, 0, 2, 24, 30, 1, 1, 1, 2),
        (0, 1, 2, 30, 33, 1, 1, 0, 0),
        (1, 0, 0, 5, 9, 1, 1, 1, 4),
        (1, 1, 0, 9, 12, 1, 1, 0, 0),
    ]
    assert bins(Timeline(*by_hand())).tolist() == [0, 0, 0, 1, 1, 2, 2]


def test_a_mixed_step_stands_alone():
    columns = stage_columns(Timeline(*every_kind()))
    rows = list(zip(*(columns[name].tolist() for name in STAGE_COLUMNS), strict=True))
    assert rows == [
        (0, 0, 0, 0, 20, 1, 2, 2, 8),
        (0, 1, 0, 20, 38, 3, 2, 0, 0),
        (1, 0, 0, 0, 14, 1, 1, 1, 4),
        (1, 2, 1, 14, 29, 1, 2, 1, 4),
        (1, 2, 2, 29, 42, 1, 2, 1, 2),
        (1, 1, 2, 42, 59, 3, 2, 0, 0),
    ]
    assert bins(Timeline(*every_kind())).tolist() == [0, 0, 1, 0, 0, 2, 2, 2]


@pytest.mark.parametrize("latest_ns", [0, 60 * 10**9])
def test_stages_hold_all_time_rounds_and_tokens(latest_ns):
    instance = random_instance(latest_ns=latest_ns)
    schedule = served(instance)
    steps, columns = schedule.steps, stage_columns(Timeline(instance, schedule))
    for phase in (PREFILL, DECODE):
        mine, own = columns["phase"] == phase, steps.phase == phase
        duration = (columns["end"] - columns["start"])[mine].sum()
        assert duration == (steps.end_ns - steps.start_ns)[own].sum()
        assert columns["rounds"][mine].sum() == steps.rounds[own].sum()
    prefill = columns["phase"] == PREFILL
    assert prefill.sum() == (steps.phase == PREFILL).sum()
    assert columns["tokens"][prefill].sum() == instance.requests.prompt_tokens.sum()
    assert columns["requests"][prefill].sum() == len(instance)
    assert columns["bin"][prefill].tolist() == list(range(prefill.sum()))
    assert (columns["start"][1:] >= columns["end"][:-1]).all()
    # No decode stage follows another without a pause.
    joined = (columns["phase"][1:] == DECODE) & (columns["phase"][:-1] == DECODE)
    assert (columns["start"][1:] > columns["end"][:-1])[joined].all()
    assert np.array_equal(columns["tokens"] > 0, prefill)


def test_nothing_has_no_stages():
    assert all(len(column) == 0 for column in stage_columns(Timeline(*empty())).values())
