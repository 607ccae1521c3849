"""Shares of time by pixel, as an image and as text in the page."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orsched.data.schedule import DECODE
from orsched.metrics.summary import summarise
from orsched.metrics.timeline import Timeline
from orsched.views import density, style
from orsched.views.density import density_data, density_image, runs, shares
from orsched.views.page_data import chart_of
from orsched.views.spans import lane_offsets
from tests.metrics.any_schedule import any_schedule
from tests.views.samples import every_kind, random_instance, served, use_of


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


def test_the_image_holds_the_colours_in_their_shares(monkeypatch):
    monkeypatch.setattr(density, "PIXELS", 40)
    instance = random_instance()
    schedule = served(instance)
    use = use_of(instance, schedule)
    image = density_image(Timeline(instance, schedule), use)
    assert image.shape == (6, 40, 3)
    # Amid its first request a client decodes: blue is the strongest part there.
    middle = int((use.decode.start_ns[0] + use.decode.end_ns[0]) / 2 * 40 / schedule.makespan_ns)
    red, _, blue = image[use.decode.lane[0], middle]
    assert blue > red


def test_clients_share_rows_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(density, "MAX_ROWS", 4)
    monkeypatch.setattr(density, "PIXELS", 30)
    instance = random_instance()
    schedule = served(instance)
    use = use_of(instance, schedule)
    coarse = density_image(Timeline(instance, schedule), use)
    monkeypatch.setattr(density, "MAX_ROWS", 6)
    fine = density_image(Timeline(instance, schedule), use)
    assert coarse.shape == (3, 30, 3)
    assert coarse == pytest.approx(fine.reshape(3, 2, 30, 3).mean(axis=1))


def test_invalid_tokens_and_pauses_have_their_colours(monkeypatch):
    from matplotlib.colors import to_rgb

    monkeypatch.setattr(density, "PIXELS", 59)
    case = every_kind()
    image = density_image(Timeline(*case), use_of(*case))
    assert image[0, 30] == pytest.approx(to_rgb(style.INVALID_COLOUR))  # one column a nanosecond
    assert image[2, 45] == pytest.approx(to_rgb(style.PAUSED_COLOUR))
    veil = style.MIXED_OPACITY
    decode, stage = np.array(to_rgb(style.DECODE_COLOURS[0])), np.array(to_rgb(style.STAGE_COLOUR))
    assert image[2, 20] == pytest.approx(decode * (1 - veil) + stage * veil)


def density_of(instance, schedule, *, is_cut=True):
    return density_data(Timeline(instance, schedule), use_of(instance, schedule), is_cut=is_cut)


def decoded(text):
    return np.array([density._CODES.tobytes().index(code) for code in text.encode()]) / 63


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
    monkeypatch.setattr(density, "MOST_ROWS", 3)
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


def test_runs_are_half_open():
    assert runs(np.array([0, 1, 2, 5, 7, 8])) == [[0, 3], [5, 6], [7, 9]]
    assert runs(np.array([], np.int64)) == []
