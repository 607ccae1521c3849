"""The largest time between two successive tokens of each request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.costs.floor import stating
from orsched.data.schedule import DECODE
from orsched.metrics.intervals import spanned_max
from orsched.metrics.request_times import first_rounds_ns

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.costs import CostModel
    from orsched.metrics.timeline import Timeline


def largest_gaps_ns(line: Timeline, first_round_ns: IntColumn | None = None) -> IntColumn:
    """Return the largest time between two successive tokens of every request, in nanoseconds.

    0 for a request of fewer than two tokens. A token comes at the end of its round, or of the
    complete prefill that yields it; evictions, rounds that leave the request out and the prefills
    of others lengthen the gap. Invalid tokens do not count. Where times were measured, the rounds
    of a step are equal, to the nanosecond. ``first_round_ns`` is for ``first_tokens_ns``.
    """
    rows = line.decodes
    found = np.zeros(len(line.instance), np.int64)
    places = np.flatnonzero(line.has_rounds)
    first_end, later = _rounds(line, places, first_round_ns)
    index = np.cumsum(line.has_rounds) - 1  # of a place among those with rounds
    begin, end = index[line.first[rows]], index[line.last[rows]]
    step = later.copy()  # gaps that end in each step, the first round's included
    step[1:] = np.maximum(step[1:], first_end[1:] - line.end_ns[places[:-1]])
    within = np.maximum(later[begin], spanned_max(step, begin + 1, end))
    np.maximum.at(found, line.request[rows], within)
    _between(line, first_end[begin], found)
    return found


def _rounds(
    line: Timeline, places: IntColumn, first_round_ns: IntColumn | None
) -> tuple[IntColumn, IntColumn]:
    """End of the first round, and the longest of the further ones, of steps with rounds."""
    took, rounds = (line.end_ns - line.start_ns)[places], line.rounds[places]
    first = took.copy()
    several = np.flatnonzero(rounds > 1)
    here = places[several]
    if first_round_ns is None:
        first[several] = first_rounds_ns(line, here)
    else:
        first[several] = first_round_ns[here]
    later = np.zeros(len(places), np.int64)
    later[several] = -(-took[several] // rounds[several])
    workers = line.instance.workers
    matters = np.array([worker.cost.context_matters for worker in workers])
    if matters.any() and not line.schedule.is_measured:
        asked = matters[line.worker[here]]
        later[several[asked]] = _longest_later(line, here[asked])
    return line.start_ns[places] + first, later


def _longest_later(line: Timeline, places: IntColumn) -> IntColumn:
    """Longest round but the first of steps whose rounds depend on contexts, asked of the model."""
    costs = [worker.cost for worker in line.instance.workers]
    quick = [stating(cost, "longest_round_ns") for cost in costs]
    caches = line.caches
    columns = (line.worker, line.rounds, caches.active, caches.context_padded, caches.context_max)
    rows = zip(*(column[places].tolist() for column in columns), strict=True)
    found = []
    for worker, rounds, active, total, most in rows:
        run = rounds - 1, active, total + active, most + 1
        longest = quick[worker]
        found.append(longest(*run) if longest else _longest_of(costs[worker], *run))
    return np.array(found, np.int64)


def _longest_of(cost: CostModel, rounds: int, active: int, total: int, most: int) -> int:
    return max(cost.round_ns(active, total + active * k, most + k) for k in range(rounds))


def _between(line: Timeline, decode_first_ns: IntColumn, found: IntColumn) -> None:
    """Put in the gaps between what two rows yield, larger ones in the place of smaller ones."""
    yields = line.row_phase == DECODE
    first = np.zeros(len(yields), np.int64)
    first[yields] = decode_first_ns
    if line.instance.first_token == "prefill":
        stays = np.flatnonzero(line.complete & (line.prefill_rows > 0))
        rows = line.stay_row[stays] + line.prefill_rows[stays] - 1  # prefills come first in a stay
        yields[rows] = True
        first[rows] = line.end_ns[line.last[rows]]
    rows = np.flatnonzero(yields)
    request, last = line.request[rows], line.end_ns[line.last[rows]]
    same = request[1:] == request[:-1]
    gaps = first[rows][1:] - last[:-1]
    np.maximum.at(found, request[1:][same], gaps[same])
