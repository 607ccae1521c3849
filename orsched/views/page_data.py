"""Compact columns from which the page's script builds its charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import request_times
from orsched.views.curves import class_panels, has_class_curves, usage_panels
from orsched.views.density import density_data, runs
from orsched.views.spans import bins, client_use, lane_offsets, rank_in_lane, stage_columns
from orsched.views.style import MOST_OF_DATA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.views.curves import Line, Panel
    from orsched.views.spans import Spans

MAX_BARS = 12_000
"""Most bars and stages of one interactive chart; after them it shows shares of client-time only."""

PAGE_BARS = 26_000
"""The same for all charts of a page together: a bar takes about 80 bytes."""

BARS = ("prefill", "decode", "invalid", "paused")
"""Kinds of bars, by their names in the page's data."""


class Chart(NamedTuple):
    """The charts of one schedule: columns for the page, and whether requests are ever paused."""

    columns: dict[str, Any]
    has_pauses: bool


def instance_data(instance: Instance) -> dict[str, Any]:
    """Return what all charts share: the workers and their lanes."""
    return {
        "offsets": lane_offsets(instance).tolist(),
        "workers": [worker.name for worker in instance.workers],
    }


def chart_of(instance: Instance, schedule: Schedule, charts: int = 1) -> Chart:
    """Return the columns of one schedule's charts, of so many; times are integer nanoseconds.

    ``shown_ns`` is the end of the part with single bars: the makespan unless the schedule has more
    than ``MAX_BARS`` bars and stages, or its part of ``PAGE_BARS``. ``used`` are the clients that
    ever hold a request, as half-open runs.
    """
    line = Timeline(instance, schedule)
    use, stages = client_use(line), stage_columns(line)
    bars = {name: getattr(use, name) for name in BARS}
    shown = _shown_ns(schedule, bars, stages, min(MAX_BARS, PAGE_BARS // charts))
    shade = (rank_in_lane(use.decode) % 2)[use.decode.start_ns < shown]
    again = use.restarts.take(use.restarts.start_ns < shown)
    bars = {name: spans.take(spans.start_ns < shown) for name, spans in bars.items()}
    requests = np.unique(np.concatenate([spans.request for spans in bars.values()]))
    bin_of = bins(line)
    part = stages["start"] < shown
    columns = {name: _bar_columns(spans, requests, bin_of) for name, spans in bars.items()}
    columns["decode"]["shade"] = shade.tolist()
    if use.bulk is not None:
        columns["decode"]["bulk"] = use.bulk[bars["decode"].request].astype(int).tolist()
    found: dict[str, Any] = {
        "shown_ns": shown,
        "used": runs(np.unique(use.stays.lane)),
        "density": density_data(line, use, is_cut=shown < schedule.makespan_ns),
        "requests": _request_columns(line, requests),
        **columns,
        "restarts": {
            "start": again.start_ns.tolist(),
            "lane": again.lane.tolist(),
            "request": np.searchsorted(requests, again.request).tolist(),
            "stay": again.stay.tolist(),
        },
        "stages": {name: column[part].tolist() for name, column in stages.items()},
        "usage": panel_data(usage_panels(line, is_page=True)),
    }
    if has_class_curves(instance) and not schedule.is_partial:
        panels = [panel._replace(limits=()) for panel in class_panels(line)]
        found["classes"] = panel_data(panels)
    return Chart(found, bool(len(use.paused)))


def panel_data(panels: Sequence[Panel]) -> dict[str, Any]:
    """Return panels over time that have the same stretches.

    ``borders`` are the stretches' ends in nanoseconds; ``rows`` have a title, lines (name, colour,
    dash, values, null where there is none, and whether they are stacked) and levels (value and
    colour). A level far above the lines is left out, it would flatten them.
    """
    rows = []
    for panel in panels:
        lines = [found for line in panel.lines if any((found := _line(line))[3]) or not found[4]]
        top = max((v for line in lines for v in line[3] if v is not None), default=0.0)
        levels = [
            (limit.value, limit.colour)
            for limit in panel.limits
            if limit.colour is None or limit.value <= MOST_OF_DATA * top
        ]
        rows.append({"title": panel.title, "lines": lines, "levels": levels})
    borders = panels[0].borders_ns.tolist() if panels else []
    return {"borders": [round(border) for border in borders], "rows": rows}


def _line(line: Line) -> tuple[str, str, str, list[float | None], bool]:
    values = [None if value != value else round(value, 3) for value in line.values.tolist()]
    return (line.told or line.words, line.colour, line.dash, values, line.form == "area")


def _shown_ns(
    schedule: Schedule, bars: dict[str, Spans], stages: dict[str, IntColumn], most: int
) -> int:
    starts = np.concatenate([*(spans.start_ns for spans in bars.values()), stages["start"]])
    if len(starts) <= most:
        return schedule.makespan_ns
    return min(schedule.makespan_ns, int(np.partition(starts, most)[most]))


def _request_columns(line: Timeline, rows: IntColumn) -> dict[str, list[Any] | None]:
    table, times = line.instance.requests, request_times(line.instance, line.schedule, line)
    return {
        "row": rows.tolist(),
        "id": None if table.ids is None else [table.ids[r] for r in rows.tolist()],
        "prompt": table.prompt_tokens[rows].tolist(),
        "output": table.output_tokens[rows].tolist(),
        "arrival": table.arrival_ns[rows].tolist(),
        "admit": times["prefill_start_ns"][rows].tolist(),
        "prefilled": times["prefill_end_ns"][rows].tolist(),
        "first": times["first_token_ns"][rows].tolist(),
        "finish": times["finish_ns"][rows].tolist(),
    }


def _bar_columns(spans: Spans, requests: IntColumn, bin_of: IntColumn) -> dict[str, list[int]]:
    """Return bars; ``request`` points into the request columns of the chart."""
    return {
        "request": np.searchsorted(requests, spans.request).tolist(),
        "lane": spans.lane.tolist(),
        "start": spans.start_ns.tolist(),
        "end": spans.end_ns.tolist(),
        "first": bin_of[spans.first_step].tolist(),
        "last": bin_of[spans.last_step].tolist(),
    }
