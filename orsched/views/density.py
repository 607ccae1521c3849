"""Where bars would be thinner than a pixel: exact shares of time, as an image and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.data.schedule import DECODE, MIXED, PREFILL
from orsched.views import style
from orsched.views.spans import lane_offsets, lanes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.metrics.timeline import Timeline
    from orsched.views.spans import ClientUse, Lanes


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
