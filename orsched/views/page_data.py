"""Compact columns from which the page's script builds its charts; shares where bars are thin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.data.schedule import DECODE, MIXED, PREFILL
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import request_times
from orsched.views import style
from orsched.views.curves import class_panels, has_class_curves, usage_panels
from orsched.views.spans import (
    bins,
    client_use,
    lane_offsets,
    lanes_of,
    rank_in_lane,
    stage_columns,
)
from orsched.views.style import MOST_OF_DATA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.views.curves import Line, Panel
    from orsched.views.spans import ClientUse, Lanes, Spans


PIXELS = 1600
MAX_ROWS = 2000
"""Pixels of the image; more clients than rows share a row."""


def shares(
    rows: Any, start_ns: Any, end_ns: Any, shape: tuple[int, int], horizon_ns: int
) -> NDArray[np.float64]:
    """Return the share of each cell's time that the disjoint intervals of its row cover."""
    n_rows, columns = shape
    scale = columns / max(1, horizon_ns)
    covered = np.zeros(n_rows * (columns + 2))
    for moments, sign in ((start_ns, 1.0), (end_ns, -1.0)):
        place = np.asarray(moments) * scale
        cell = np.minimum(place.astype(np.int64), columns)
        inside = cell + 1 - place  # part of the cell after the moment
        flat = np.asarray(rows, np.int64) * (columns + 2) + cell
        # Differences of a curve whose running sum is "time covered in this cell".
        covered += sign * np.bincount(flat, inside, len(covered))
        covered += sign * np.bincount(flat + 1, 1 - inside, len(covered))
    result = np.cumsum(covered.reshape(n_rows, columns + 2), axis=1)[:, :columns]
    return np.clip(result, 0.0, 1.0)


def density_image(
    line: Timeline, use: ClientUse, lanes: Lanes | None = None
) -> NDArray[np.float64]:
    """Return an RGB image (rows of clients or ``lanes``, columns of time) in the Gantt colours."""
    from matplotlib.colors import to_rgb

    lanes = lanes_of(line.instance) if lanes is None else lanes
    rows = lanes.rows
    per_row = max(1, -(-rows // MAX_ROWS))
    horizon = line.schedule.makespan_ns
    image = np.zeros((-(-rows // per_row), PIXELS, 3))
    rest = np.ones(image.shape[:2])
    for spans, colour in (
        (use.decode, style.DECODE_COLOURS[0]),
        (use.invalid, style.INVALID_COLOUR),
        (use.paused, style.PAUSED_COLOUR),
        (use.prefill, style.PREFILL_COLOUR),
    ):
        if len(spans) == 0:
            continue
        row = lanes.row[spans.lane]
        exact = shares(row, spans.start_ns, spans.end_ns, (rows, PIXELS), horizon)
        share = _row_means(exact, per_row)
        image += share[..., None] * np.array(to_rgb(colour))
        rest -= share
    image += np.clip(rest, 0, 1)[..., None] * np.array(to_rgb(style.IDLE_COLOUR))
    owner = np.searchsorted(lanes.top, np.arange(0, rows, per_row), side="right") - 1
    for phase, opacity in ((PREFILL, 0.45), (MIXED, style.MIXED_OPACITY)):
        steps = np.flatnonzero(line.schedule.steps.phase == phase)
        veil = opacity * _stage_shares(line, steps, PIXELS)[owner][..., None]
        image = image * (1 - veil) + veil * np.array(to_rgb(style.STAGE_COLOUR))
    clipped: NDArray[np.float64] = np.clip(image, 0.0, 1.0)
    return clipped


def _stage_shares(line: Timeline, rows: IntColumn, columns: int) -> NDArray[np.float64]:
    """Return the share of each worker's time that some steps cover."""
    steps, shape = line.schedule.steps, (len(line.instance.workers), columns)
    begin, end = steps.start_ns[rows], steps.end_ns[rows]
    return shares(steps.worker[rows], begin, end, shape, line.schedule.makespan_ns)


def _row_means(values: NDArray[np.float64], per_row: int) -> NDArray[np.float64]:
    if per_row == 1:
        return values
    starts = np.arange(0, len(values), per_row)
    counts = np.diff(np.append(starts, len(values)))
    means: NDArray[np.float64] = np.add.reduceat(values, starts, axis=0) / counts[:, None]
    return means


STRETCHES = 512
"""Stretches of time."""

MOST_ROWS = 128
"""Rows of clients, about: more clients share a row."""

BARS_A_CLIENT = 250
MOST_CLIENTS = 320
"""With more bars a client, or more clients, bars can be thinner than a pixel of the chart."""

_CODES = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8
)


def density_data(line: Timeline, use: ClientUse, *, is_cut: bool) -> dict[str, Any] | None:
    """Return shares of client-time in use by stretch of time; None where bars are thick enough.

    ``lanes`` are the half-open runs of clients of each row, ``use`` the shares in which they
    prefill or decode, ``prefill`` those of each worker's time in steps that prefill: a letter each,
    in 63rds (base64's alphabet for file names). ``is_cut``: not all bars are in the page.
    """
    used = np.unique(use.stays.lane)
    bars = len(use.decode) + len(use.prefill)
    if not (is_cut or bars > BARS_A_CLIENT * len(used) or len(used) > MOST_CLIENTS):
        return None
    groups = _groups(line.instance, used)
    lanes, end = int(lane_offsets(line.instance)[-1]), line.schedule.makespan_ns
    busy = sum(
        shares(spans.lane, spans.start_ns, spans.end_ns, (lanes, STRETCHES), end)
        for spans in (use.decode, use.prefill)
    )
    prefills = np.flatnonzero(line.schedule.steps.phase != DECODE)
    stages = _stage_shares(line, prefills, STRETCHES)
    return {
        "columns": STRETCHES,
        "lanes": groups,
        "use": [_text(np.asarray(busy)[low:high].mean(axis=0)) for low, high in groups],
        "prefill": [_text(row) for row in stages],
    }


def runs(numbers: IntColumn) -> list[list[int]]:
    """Return rising numbers as half-open runs."""
    if len(numbers) == 0:
        return []
    breaks = np.flatnonzero(np.diff(numbers) > 1)
    heads, ends = numbers[np.append(0, breaks + 1)], numbers[np.append(breaks, -1)] + 1
    return [list(pair) for pair in zip(heads.tolist(), ends.tolist(), strict=True)]


def _groups(instance: Instance, used: IntColumn) -> list[list[int]]:
    """Return half-open runs of clients in use, each of one worker, of one size where it can be."""
    size = max(1, -(-len(used) // MOST_ROWS))
    offsets = lane_offsets(instance).tolist()
    found = []
    for first, last in runs(used):
        inner = [edge for edge in offsets if first < edge < last]
        for low, high in zip([first, *inner], [*inner, last], strict=True):
            found += [[k, min(k + size, high)] for k in range(low, high, size)]
    return found


def _text(values: NDArray[np.float64]) -> str:
    return _CODES[np.rint(63 * np.clip(values, 0, 1)).astype(np.int64)].tobytes().decode()


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
