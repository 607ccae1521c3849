"""Shares of client-time in use: what a chart shows where bars would be thinner than a pixel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.data.schedule import DECODE
from orsched.views.density import shares
from orsched.views.spans import lane_offsets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.views.spans import ClientUse

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


def density_data(
    instance: Instance, schedule: Schedule, use: ClientUse, *, is_cut: bool
) -> dict[str, Any] | None:
    """Return shares of client-time in use by stretch of time; None where bars are thick enough.

    ``lanes`` are the half-open runs of clients of each row, ``use`` the shares in which they
    prefill or decode, ``prefill`` those of each worker's time in steps that prefill: a letter each,
    in 63rds (base64's alphabet for file names). ``is_cut``: not all bars are in the page.
    """
    used = np.unique(use.stays.lane)
    bars = len(use.decode) + len(use.prefill)
    if not (is_cut or bars > BARS_A_CLIENT * len(used) or len(used) > MOST_CLIENTS):
        return None
    groups = _groups(instance, used)
    lanes, end = int(lane_offsets(instance)[-1]), schedule.makespan_ns
    busy = sum(
        shares(spans.lane, spans.start_ns, spans.end_ns, (lanes, STRETCHES), end)
        for spans in (use.decode, use.prefill)
    )
    prefills = np.flatnonzero(schedule.steps.phase != DECODE)
    steps, shape = schedule.steps, (len(instance.workers), STRETCHES)
    stages = shares(
        steps.worker[prefills], steps.start_ns[prefills], steps.end_ns[prefills], shape, end
    )
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
