"""Compact columns from which the page's script builds its charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.plotting.spans import (
    decode_spans,
    lane_offsets,
    prefill_spans,
    rank_in_lane,
)
from orsched.report.stages import bins, stage_columns
from orsched.timeline import request_times

if TYPE_CHECKING:
    from orsched.columns import IntColumn
    from orsched.instance import Instance
    from orsched.plotting.spans import Spans
    from orsched.schedule import Schedule

MAX_BARS = 6_000
"""Most bars and most stages of one interactive chart; more, and it shows the first part only."""


def instance_data(instance: Instance) -> dict[str, Any]:
    """Return what all charts share: the workers and their lanes."""
    return {
        "offsets": lane_offsets(instance).tolist(),
        "workers": [worker.name for worker in instance.workers],
    }


def chart_data(instance: Instance, schedule: Schedule) -> dict[str, Any]:
    """Return the columns of one schedule's chart; times are integer nanoseconds.

    ``shown_ns`` is the end of the part that is shown: the makespan unless the schedule has more
    than ``MAX_BARS`` bars or stages.
    """
    prefill, decode = prefill_spans(instance, schedule), decode_spans(instance, schedule)
    stages = stage_columns(schedule)
    shown = _shown_ns(schedule, prefill, decode, stages)
    shade = rank_in_lane(decode) % 2
    visible = decode.start_ns < shown
    prefill, decode, shade = (
        prefill.take(prefill.start_ns < shown),
        decode.take(visible),
        shade[visible],
    )
    requests = np.unique(np.concatenate([prefill.request, decode.request]))
    bin_of = bins(schedule.steps)
    part = stages["start"] < shown
    return {
        "shown_ns": shown,
        "requests": _request_columns(instance, schedule, requests),
        "prefill": _bar_columns(prefill, requests, bin_of),
        "decode": {**_bar_columns(decode, requests, bin_of), "shade": shade.tolist()},
        "stages": {name: column[part].tolist() for name, column in stages.items()},
    }


def _shown_ns(
    schedule: Schedule, prefill: Spans, decode: Spans, stages: dict[str, IntColumn]
) -> int:
    shown = schedule.makespan_ns
    for starts in (prefill.start_ns, decode.start_ns, stages["start"]):
        if len(starts) > MAX_BARS:
            shown = min(shown, int(np.partition(starts, MAX_BARS)[MAX_BARS]))
    return shown


def _request_columns(
    instance: Instance, schedule: Schedule, rows: IntColumn
) -> dict[str, list[Any] | None]:
    table, times = instance.requests, request_times(instance, schedule)
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
