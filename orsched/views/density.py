"""The Gantt chart of very large schedules: exact shares of time by pixel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.data.schedule import MIXED, PREFILL
from orsched.views import style
from orsched.views.lanes import lanes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.views.lanes import Lanes
    from orsched.views.spans import ClientUse

PIXELS = 1600
MAX_ROWS = 2000
"""Pixels of the image; more clients than rows share a row."""


def shares(
    rows: Any, start_ns: Any, end_ns: Any, shape: tuple[int, int], horizon_ns: int
) -> NDArray[np.float64]:
    """Return the share of each cell's time that the intervals of its row cover.

    Intervals of one row must not overlap; an array of the given shape (rows, columns).
    """
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
    instance: Instance, schedule: Schedule, use: ClientUse, lanes: Lanes | None = None
) -> NDArray[np.float64]:
    """Return an RGB image (rows of clients, columns of time) in the colours of the Gantt chart.

    ``lanes`` are the rows of the chart; by default each client has one.
    """
    from matplotlib.colors import to_rgb

    lanes = lanes_of(instance) if lanes is None else lanes
    rows = lanes.rows
    per_row = max(1, -(-rows // MAX_ROWS))
    horizon = schedule.makespan_ns
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
        veil = opacity * _stage_shares(instance, schedule, phase)[owner][..., None]
        image = image * (1 - veil) + veil * np.array(to_rgb(style.STAGE_COLOUR))
    clipped: NDArray[np.float64] = np.clip(image, 0.0, 1.0)
    return clipped


def _stage_shares(instance: Instance, schedule: Schedule, phase: int) -> NDArray[np.float64]:
    """Return the share of each worker's time that its steps of a phase cover."""
    steps = schedule.steps
    chosen = np.flatnonzero(steps.phase == phase)
    return shares(
        steps.worker[chosen],
        steps.start_ns[chosen],
        steps.end_ns[chosen],
        (len(instance.workers), PIXELS),
        schedule.makespan_ns,
    )


def _row_means(values: NDArray[np.float64], per_row: int) -> NDArray[np.float64]:
    if per_row == 1:
        return values
    starts = np.arange(0, len(values), per_row)
    counts = np.diff(np.append(starts, len(values)))
    means: NDArray[np.float64] = np.add.reduceat(values, starts, axis=0) / counts[:, None]
    return means
