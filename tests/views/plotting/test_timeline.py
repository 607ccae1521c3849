"""Who runs and who waits over time, against counting at single moments."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from orsched.common.errors import InputError
from orsched.metrics.summary import summarise
from orsched.metrics.timeline import Timeline
from orsched.views.load_curves import load_curves
from orsched.views.spans import client_use
from orsched.views.timeline import save_timeline, timeline_chart
from tests.metrics.any_schedule import any_schedule
from tests.views.plotting.samples import by_hand, empty, every_kind, random_instance, served


def at(curve, moment):
    place = np.searchsorted(curve.time_ns, moment, side="right") - 1
    return int(curve.value[place]) if place >= 0 else 0


@pytest.mark.parametrize("seed", range(30))
def test_running_and_waiting_are_counted(seed):
    instance, schedule = any_schedule(seed)
    curves = load_curves(Timeline(instance, schedule))
    spans = client_use(instance, schedule).stays
    finish = {}
    for request, end in zip(spans.request.tolist(), spans.end_ns.tolist(), strict=True):
        finish[request] = max(finish.get(request, 0), end)
    for moment in range(-1, schedule.makespan_ns + 2, max(1, schedule.makespan_ns // 97)):
        runs = ((spans.start_ns <= moment) & (moment < spans.end_ns)).sum()
        there = sum(
            arrival <= moment < finish[request]
            for request, arrival in enumerate(instance.requests.arrival_ns.tolist())
        )
        assert at(curves["running"], moment) == runs
        assert at(curves["waiting"], moment) == there - runs


def test_an_evicted_request_waits_again():
    curves = load_curves(Timeline(*by_hand()))
    waiting = curves["waiting"]
    assert list(zip(waiting.time_ns.tolist(), waiting.value.tolist(), strict=True)) == [
        (0, 1), (5, 0)
    ]  # fmt: skip


def parts(axes):
    return {patch.get_gid(): patch.get_data() for ax in axes for patch in ax.patches}


def test_rows_are_running_waiting_and_memory():
    instance, schedule = every_kind()
    axes = timeline_chart(instance, schedule)
    assert [ax.get_ylabel() for ax in axes] == ["running requests", "waiting requests",
                                                "KV blocks (%)"]  # fmt: skip
    assert axes[-1].get_xlabel() == "time (s)"
    found = parts(axes)
    blocks = found["blocks-0"]
    total = (blocks.values * np.diff(blocks.edges)).sum() * 18 / 100
    assert total >= summarise(instance, schedule)["kv_blocks"]["block_ns"] / 1e9 * (1 - 1e-9)
    assert len(timeline_chart(*by_hand())) == 2
    assert len(timeline_chart(*empty())) == 2


def test_several_schedules_are_lines_with_a_legend_inside_the_picture():
    instance = random_instance(n=40, latest_ns=10**10)
    schedule, figure = served(instance), Figure(figsize=(10, 6.8), layout="constrained")
    names = [f"method {k} with a long name of its own" for k in range(9)]
    axes = timeline_chart(instance, [schedule] * 9, figure, names=names)
    assert {f"waiting-{k}" for k in range(9)} <= parts(axes).keys()
    figure.canvas.draw()
    box, page = figure.legends[0].get_window_extent(), figure.bbox
    assert page.x0 <= box.x0
    assert box.x1 <= page.x1
    assert [t.get_text() for t in figure.legends[0].get_texts()] == names


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_equal_bytes_come_twice(tmp_path, suffix):
    paths = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for path in paths:
        save_timeline(*every_kind(), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    with pytest.raises(InputError, match="not a suffix"):
        save_timeline(*every_kind(), tmp_path / "a.gif")
