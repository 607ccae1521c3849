"""Compact columns from which the page's script builds its charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.metrics.request_times import request_times
from orsched.metrics.timeline import Timeline
from orsched.views.class_curves import class_curves, has_class_curves
from orsched.views.curves import client_curves, means
from orsched.views.density_data import density_data, runs
from orsched.views.load_curves import load_curves
from orsched.views.spans import client_use, lane_offsets, rank_in_lane
from orsched.views.stages import bins, stage_columns
from orsched.views.style import (
    BULK_COLOURS,
    DECODE_COLOURS,
    OWNERS,
    STAGE_COLOUR,
    USES,
    WORKER_COLOURS,
)
from orsched.views.usage import COLUMNS, borders_of, named_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.views.curves import Curve
    from orsched.views.spans import Spans

MAX_BARS = 12_000
"""Most bars and stages of one interactive chart; after them it shows shares of client-time only."""

PAGE_BARS = 26_000
"""The same for all charts of a page together: a bar takes about 80 bytes."""

_DASHES = ("solid", "dash", "dashdot", "dot")

BARS = ("prefill", "decode", "invalid", "paused")
"""Kinds of bars, by their names in the page's data."""


def instance_data(instance: Instance) -> dict[str, Any]:
    """Return what all charts share: the workers and their lanes."""
    return {
        "offsets": lane_offsets(instance).tolist(),
        "workers": [worker.name for worker in instance.workers],
        "usage": [list(use) for use in USES.values()],
        "colours": list(WORKER_COLOURS),
    }


def chart_data(instance: Instance, schedule: Schedule, charts: int = 1) -> dict[str, Any]:
    """Return the columns of one schedule's chart, of so many; times are integer nanoseconds.

    ``shown_ns`` is the end of the part with single bars: the makespan unless the schedule has more
    than ``MAX_BARS`` bars and stages, or its part of ``PAGE_BARS``. ``used`` are the clients that
    ever hold a request, as half-open runs.
    """
    use, stages = client_use(instance, schedule), stage_columns(instance, schedule)
    bars = {name: getattr(use, name) for name in BARS}
    shown = _shown_ns(schedule, bars, stages, min(MAX_BARS, PAGE_BARS // charts))
    used = np.unique(use.stays.lane)
    shade = (rank_in_lane(use.decode) % 2)[use.decode.start_ns < shown]
    again = use.restarts.take(use.restarts.start_ns < shown)
    bars = {name: spans.take(spans.start_ns < shown) for name, spans in bars.items()}
    requests = np.unique(np.concatenate([spans.request for spans in bars.values()]))
    bin_of = bins(instance, schedule)
    part = stages["start"] < shown
    columns = {name: _bar_columns(spans, requests, bin_of) for name, spans in bars.items()}
    columns["decode"]["shade"] = shade.tolist()
    if use.bulk is not None:
        columns["decode"]["bulk"] = use.bulk[bars["decode"].request].astype(int).tolist()
    overtime = {"classes": class_data(instance, schedule)} if has_class_curves(instance) else {}
    return {
        "shown_ns": shown,
        "used": runs(used),
        "density": density_data(instance, schedule, use, is_cut=shown < schedule.makespan_ns),
        "requests": _request_columns(instance, schedule, requests),
        **columns,
        "restarts": {
            "start": again.start_ns.tolist(),
            "lane": again.lane.tolist(),
            "request": np.searchsorted(requests, again.request).tolist(),
            "stay": again.stay.tolist(),
        },
        "stages": {name: column[part].tolist() for name, column in stages.items()},
        "usage": usage_data(instance, schedule),
        **({} if schedule.is_partial else overtime),
    }


def class_data(instance: Instance, schedule: Schedule) -> dict[str, Any]:
    """Return what classes and tenants get over time, as means of stretches of time.

    Values are null where there is none; ``rows`` has a title and lines each: name, colour, dash,
    values, and whether they are stacked.
    """
    curves = class_curves(instance, schedule)

    def values(column: NDArray[np.float64], factor: float = 1.0) -> list[float | None]:
        scaled = (column * factor).tolist()
        return [None if value != value else round(value, 3) for value in scaled]

    shares = [
        (name, colour, dash, values(column, 100.0), False)
        for name, colour, dash, column in (
            ("tokens in time", DECODE_COLOURS[0], "solid", curves.attainment),
            ("prompt tokens found in the cache", STAGE_COLOUR, "dash", curves.hits),
        )
        if column is not None
    ]
    owners = [(*OWNERS[name], "solid", values(held), True) for name, held in curves.owners]
    bulk = (
        []
        if curves.bulk is None
        else [
            (
                "bulk tokens, prefilled and decoded",
                BULK_COLOURS[0],
                "solid",
                values(curves.bulk),
                False,
            )
        ]
    )
    service = [
        (f"tenant {name}", WORKER_COLOURS[k], _DASHES[k % len(_DASHES)], values(column), False)
        for k, (name, column) in enumerate(curves.service[: len(WORKER_COLOURS)])
    ]
    rows = (("share (%)", shares), ("KV blocks", owners), ("tokens/s", bulk), ("service", service))
    return {
        "borders": [round(border) for border in curves.borders_ns.tolist()],
        "rows": [{"title": title, "lines": lines} for title, lines in rows if lines],
    }


def usage_data(instance: Instance, schedule: Schedule) -> dict[str, Any]:
    """Return clients by use and KV blocks over time, as means of stretches of time.

    ``borders`` are the stretches' ends in nanoseconds, ``uses`` the clients of each use in the
    order of ``style.USES``, ``requests`` those that wait and run, ``blocks`` name, limit and values
    of each worker with memory.
    """
    line = Timeline(instance, schedule)
    curves, blocks = client_curves(line), named_blocks(instance, line)
    requests = load_curves(line)
    every = [*curves.values(), *requests.values(), *(curve for _, curve, _ in blocks)]
    borders = borders_of(every, schedule.makespan_ns, COLUMNS)

    def values(curve: Curve) -> list[float]:
        return [round(mean, 3) for mean in means(curve, borders).tolist()]

    return {
        "borders": [round(border) for border in borders.tolist()],
        "uses": [values(curves[name]) for name in USES],
        "requests": {name: values(curve) for name, curve in requests.items()},
        "blocks": [
            {"name": name, "limit": limit, "values": values(curve)} for name, curve, limit in blocks
        ],
    }


def _shown_ns(
    schedule: Schedule, bars: dict[str, Spans], stages: dict[str, IntColumn], most: int
) -> int:
    starts = np.concatenate([*(spans.start_ns for spans in bars.values()), stages["start"]])
    if len(starts) <= most:
        return schedule.makespan_ns
    return min(schedule.makespan_ns, int(np.partition(starts, most)[most]))


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
