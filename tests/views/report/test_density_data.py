"""Shares of client-time in the page: they add up to the busy time, for clients in use."""

from __future__ import annotations

import numpy as np
import pytest

from orsched.data.schedule import DECODE
from orsched.metrics.summary import summarise
from orsched.views import density_data as module
from orsched.views.density_data import density_data, runs
from orsched.views.page_data import chart_data
from orsched.views.spans import client_use, lane_offsets
from tests.metrics.any_schedule import any_schedule
from tests.views.plotting.samples import random_instance, served


def density_of(instance, schedule, *, is_cut=True):
    return density_data(instance, schedule, client_use(instance, schedule), is_cut=is_cut)


def shares(text):
    return np.array([module._CODES.tobytes().index(code) for code in text.encode()]) / 63


def test_shares_add_up_to_the_time_of_decode_and_prefill():
    instance = random_instance(n=80, clients=9)
    schedule = served(instance, bound=False)
    found, use = density_of(instance, schedule), client_use(instance, schedule)
    width = schedule.makespan_ns / found["columns"]
    cells = sum(
        (last - first) * shares(text).sum()
        for (first, last), text in zip(found["lanes"], found["use"], strict=True)
    )
    exact = sum(int((s.end_ns - s.start_ns).sum()) for s in (use.decode, use.prefill))
    assert cells * width == pytest.approx(exact, rel=0.01)
    assert exact >= summarise(instance, schedule)["busy_client_ns"]
    steps = schedule.steps
    prefills = (steps.end_ns - steps.start_ns)[steps.phase != DECODE].sum()
    assert shares(found["prefill"][0]).sum() * width == pytest.approx(prefills, rel=0.02)


@pytest.mark.parametrize("seed", range(8))
def test_rows_cover_the_clients_in_use_and_no_others(seed, monkeypatch):
    monkeypatch.setattr(module, "ROWS", 3)
    instance, schedule = any_schedule(seed, requests=6)
    found = density_of(instance, schedule)
    used = np.unique(client_use(instance, schedule).stays.lane).tolist()
    assert [lane for first, last in found["lanes"] for lane in range(first, last)] == used
    offsets = lane_offsets(instance)
    for first, last in found["lanes"]:
        assert np.searchsorted(offsets, first, "right") == np.searchsorted(
            offsets, last - 1, "right"
        )
    assert chart_data(instance, schedule)["used"] == runs(np.array(used))


def test_bars_that_are_thick_enough_need_no_shares():
    instance = random_instance(n=30)
    assert density_of(instance, served(instance), is_cut=False) is None


def test_runs_are_half_open():
    assert runs(np.array([0, 1, 2, 5, 7, 8])) == [[0, 3], [5, 6], [7, 9]]
    assert runs(np.array([], np.int64)) == []
