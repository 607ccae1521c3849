"""Who holds which client when, the stages around, and the shares of time by pixel."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb

from orsched.data.schedule import DECODE, PREFILL
from orsched.metrics.summary import summarise
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import request_times
from orsched.views import page_data, style
from orsched.views.page_data import chart_of, density_data, density_image, runs, shares
from orsched.views.spans import STAGE_COLUMNS, bins, lane_offsets, rank_in_lane, stage_columns
from tests.metrics.any_schedule import any_schedule
from tests.seeds import seeds
from tests.views import samples
from tests.views.samples import by_hand, every_kind, random_instance, served, use_of


def rows(spans):
    return samples.rows_of(spans.request, spans.lane, spans.start_ns, spans.end_ns)


@pytest.mark.parametrize(
    ("case", "kind", "spans"),
    [
        # chunks are prefills of their own
        (by_hand, "prefill",
         [(0, 0, 0, 10), (0, 0, 10, 20), (1, 1, 0, 10), (1, 0, 24, 30), (2, 2, 5, 9)]),
        # a bar runs from the end of the prefill, and a restart has its own
        (by_hand, "decode", [(0, 0, 20, 24), (1, 1, 10, 24), (1, 0, 30, 33), (2, 2, 9, 12)]),
        # a stay holds all chunks, and ends with an eviction
        (by_hand, "stays", [(0, 0, 0, 24), (1, 1, 0, 24), (1, 0, 24, 33), (2, 2, 5, 12)]),
        # rounds after the last token
        (every_kind, "invalid", [(0, 0, 26, 38)]),
        (every_kind, "decode",
         [(0, 0, 20, 26), (1, 1, 20, 38), (2, 2, 14, 42), (2, 2, 47, 59), (3, 3, 42, 59)]),
        # the worker decodes without it
        (every_kind, "paused", [(2, 2, 42, 47)]),
        (samples.empty, "decode", []),
        (samples.empty, "prefill", []),
        (samples.empty, "stays", []),
    ],
)  # fmt: skip
def test_spans_by_hand(case, kind, spans):
    assert rows(getattr(use_of(*case()), kind)) == spans


def test_lanes_count_through_the_workers():
    assert lane_offsets(by_hand()[0]).tolist() == [0, 2, 3]


@pytest.mark.parametrize("seed", seeds(10, 40))
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
    count, begin = np.arange(len(instance)), times["prefill_start_ns"]
    expected = samples.rows_of(count, times["client"], begin, times["finish_ns"])
    assert rows(use.stays) == expected
    assert np.array_equal(prefill.end_ns, times["prefill_end_ns"])
    assert np.array_equal(decode.request, np.flatnonzero(instance.rounds_needed > 0))
    assert np.array_equal(decode.start_ns, times["prefill_end_ns"][decode.request])
    assert np.array_equal(decode.end_ns, times["finish_ns"][decode.request])


@pytest.mark.parametrize(
    ("case", "ranks"), [(every_kind, [0, 0, 0, 0, 0]), (by_hand, [0, 0, 1, 0]), (samples.empty, [])]
)
def test_successive_spans_of_a_request_have_one_rank(case, ranks):
    assert rank_in_lane(use_of(*case()).decode).tolist() == ranks


def test_ranks_count_the_spans_of_each_lane():
    instance = random_instance()
    spans = use_of(instance, served(instance)).decode
    ranks = rank_in_lane(spans)
    for lane in range(6):
        mine = np.flatnonzero(spans.lane == lane)
        by_start = mine[np.argsort(spans.start_ns[mine])]
        assert ranks[by_start].tolist() == list(range(len(mine)))


@pytest.mark.parametrize("seed", [1, 2, 9])
def test_each_transfer_is_a_bar_on_both_workers(seed):
    instance, schedule = samples.transferred(seed)
    sent, use = schedule.transfers, use_of(instance, schedule)
    assert len(use.transfers) == 2 * len(sent)
    assert sorted(use.transfers.start_ns.tolist()) == sorted([*sent.start_ns, *sent.start_ns])
    evicted = int((schedule.work.stay[schedule.work.phase == 0] > 0).any())
    assert bool(len(use.restarts)) == bool(evicted)


@pytest.mark.parametrize(
    ("case", "stages", "numbers"),
    [
        (
            by_hand,
            [
                (0, 0, 0, 0, 10, 1, 2, 2, 5),
                (0, 0, 1, 10, 20, 1, 1, 1, 2),
                (0, 1, 1, 20, 24, 2, 2, 0, 0),
                (0, 0, 2, 24, 30, 1, 1, 1, 2),
                (0, 1, 2, 30, 33, 1, 1, 0, 0),
                (1, 0, 0, 5, 9, 1, 1, 1, 4),
                (1, 1, 0, 9, 12, 1, 1, 0, 0),
            ],
            [0, 0, 0, 1, 1, 2, 2],
        ),
        (
            every_kind,  # a mixed step stands alone
            [
                (0, 0, 0, 0, 20, 1, 2, 2, 8),
                (0, 1, 0, 20, 38, 3, 2, 0, 0),
                (1, 0, 0, 0, 14, 1, 1, 1, 4),
                (1, 2, 1, 14, 29, 1, 2, 1, 4),
                (1, 2, 2, 29, 42, 1, 2, 1, 2),
                (1, 1, 2, 42, 59, 3, 2, 0, 0),
            ],
            [0, 0, 1, 0, 0, 2, 2, 2],
        ),
        (samples.empty, [], []),
    ],
)
def test_stages_by_hand(case, stages, numbers):
    line = Timeline(*case())
    columns = stage_columns(line)
    assert tuple(columns) == STAGE_COLUMNS
    assert samples.rows_of(*columns.values()) == stages
    assert bins(line).tolist() == numbers


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


@settings(max_examples=30)
@given(cuts=st.lists(st.integers(0, 60), unique=True, max_size=10), columns=st.integers(1, 15))
def test_shares_are_the_covered_time_of_each_cell(cuts, columns):
    horizon = 60
    cuts = sorted(cuts)[: len(cuts) // 2 * 2]
    start, end = cuts[0::2], cuts[1::2]
    found = shares([0] * len(start), start, end, (1, columns), horizon)[0]
    covered = np.zeros(horizon * columns)  # finer than both grids
    for a, b in zip(start, end, strict=True):
        covered[a * columns : b * columns] = 1
    assert found == pytest.approx(covered.reshape(columns, horizon).mean(axis=1), abs=1e-9)


def image_of(instance, schedule, monkeypatch, pixels, rows=None):
    monkeypatch.setattr(page_data, "PIXELS", pixels)
    if rows is not None:
        monkeypatch.setattr(page_data, "MAX_ROWS", rows)
    return density_image(Timeline(instance, schedule), use_of(instance, schedule))


def test_the_image_holds_the_colours_in_their_shares(monkeypatch):
    instance = random_instance()
    schedule = served(instance)
    image, decode = image_of(instance, schedule, monkeypatch, 40), use_of(instance, schedule).decode
    assert image.shape == (6, 40, 3)
    # Amid its first request a client decodes: blue is the strongest part there.
    middle = int((decode.start_ns[0] + decode.end_ns[0]) / 2 * 40 / schedule.makespan_ns)
    red, _, blue = image[decode.lane[0], middle]
    assert blue > red


def test_clients_share_rows_when_there_are_too_many(monkeypatch):
    instance = random_instance()
    schedule = served(instance)
    coarse, fine = (image_of(instance, schedule, monkeypatch, 30, rows) for rows in (4, 6))
    assert coarse.shape == (3, 30, 3)
    assert coarse == pytest.approx(fine.reshape(3, 2, 30, 3).mean(axis=1))


def test_invalid_tokens_and_pauses_have_their_colours(monkeypatch):
    image = image_of(*every_kind(), monkeypatch, 59)  # one column a nanosecond
    assert image[0, 30] == pytest.approx(to_rgb(style.INVALID_COLOUR))
    assert image[2, 45] == pytest.approx(to_rgb(style.PAUSED_COLOUR))
    veil = style.MIXED_OPACITY
    decode, stage = np.array(to_rgb(style.DECODE_COLOURS[0])), np.array(to_rgb(style.STAGE_COLOUR))
    assert image[2, 20] == pytest.approx(decode * (1 - veil) + stage * veil)


def density_of(instance, schedule, *, is_cut=True):
    return density_data(Timeline(instance, schedule), use_of(instance, schedule), is_cut=is_cut)


def decoded(text):
    return np.array([page_data._CODES.tobytes().index(code) for code in text.encode()]) / 63


def test_shares_add_up_to_the_time_of_decode_and_prefill():
    instance = random_instance(n=80, clients=9)
    schedule = served(instance, bound=False)
    found, use = density_of(instance, schedule), use_of(instance, schedule)
    width = schedule.makespan_ns / found["columns"]
    cells = sum(
        (last - first) * decoded(text).sum()
        for (first, last), text in zip(found["lanes"], found["use"], strict=True)
    )
    exact = sum(int((s.end_ns - s.start_ns).sum()) for s in (use.decode, use.prefill))
    assert cells * width == pytest.approx(exact, rel=0.01)
    assert exact >= summarise(instance, schedule)["busy_client_ns"]
    steps = schedule.steps
    prefills = (steps.end_ns - steps.start_ns)[steps.phase != DECODE].sum()
    assert decoded(found["prefill"][0]).sum() * width == pytest.approx(prefills, rel=0.02)


@pytest.mark.parametrize("seed", range(8))
def test_rows_cover_the_clients_in_use_and_no_others(seed, monkeypatch):
    monkeypatch.setattr(page_data, "MOST_ROWS", 3)
    instance, schedule = any_schedule(seed, requests=6)
    found = density_of(instance, schedule)
    used = np.unique(use_of(instance, schedule).stays.lane).tolist()
    assert [lane for first, last in found["lanes"] for lane in range(first, last)] == used
    offsets = lane_offsets(instance)
    for first, last in found["lanes"]:
        assert np.searchsorted(offsets, first, "right") == np.searchsorted(
            offsets, last - 1, "right"
        )
    assert chart_of(instance, schedule).columns["used"] == runs(np.array(used))


def test_bars_that_are_thick_enough_need_no_shares():
    instance = random_instance(n=30)
    assert density_of(instance, served(instance), is_cut=False) is None


@pytest.mark.parametrize(
    ("lanes", "ends"), [([0, 1, 2, 5, 7, 8], [[0, 3], [5, 6], [7, 9]]), ([], [])]
)
def test_runs_are_half_open(lanes, ends):
    assert runs(np.array(lanes, np.int64)) == ends
