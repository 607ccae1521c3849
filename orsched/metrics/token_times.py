"""When the tokens of requests come, and how many of them come in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.common.columns import IntColumn
    from orsched.metrics.timeline import Timeline

_CHUNK = 1 << 21
"""Tokens that are looked at together."""


class TokenLimits(NamedTuple):
    """Until when each token of each request is in time, one entry a request.

    Attributes:
        judged: whether the tokens of the request are looked at.
        first_ns: until when token 0 is in time.
        further_ns: by how much more each further token may be later; -1: as late as it likes.
    """

    judged: np.ndarray[tuple[int], np.dtype[np.bool_]]
    first_ns: IntColumn
    further_ns: IntColumn


def tokens_in_time(line: Timeline, limits: TokenLimits) -> IntColumn:
    """Return for each request how many of its tokens are in time; 0 where it is not judged.

    Token i of a request, from 0, is in time until ``first_ns + i * further_ns`` (Echo, arXiv
    2504.03651, section 3.2: latency of token i = TTFT + i TPOT).
    """
    n = len(line.instance)
    counts = np.zeros(n, np.int64)
    for request, _, met in judged_tokens(line, limits):
        counts += np.bincount(request[met], minlength=n)
    return counts


def judged_tokens(
    line: Timeline, limits: TokenLimits
) -> Iterator[tuple[IntColumn, IntColumn, np.ndarray[tuple[int], np.dtype[np.bool_]]]]:
    """Yield request, time and whether it is in time of each token that is judged, in parts."""
    for request, index, time in token_times(line, limits.judged):
        late = np.maximum(time - limits.first_ns[request], 0)
        pace = limits.further_ns[request]
        # i * pace could leave 64 bits; what is late by less than i paces is compared instead.
        paces = -(-late // np.maximum(pace, 1))
        yield (
            request,
            time,
            (late == 0) | ((pace > 0) & (paces <= index)) | ((pace < 0) & (index > 0)),
        )


def token_times(
    line: Timeline, wanted: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> Iterator[tuple[IntColumn, IntColumn, IntColumn]]:
    """Yield request, index from 0 and time of all tokens of the wanted requests, in parts.

    Within a run of rounds the cost model says when each round ends; where times were measured, the
    rounds of a step are equal.
    """
    if line.instance.first_token == "prefill":
        yield _of_prefills(line, wanted)
    rows = line.decodes[wanted[line.request[line.decodes]]]
    ends = _round_ends_ns(line, rows)
    count = line.row_rounds[rows]
    sums = np.concatenate([[0], np.cumsum(count)])
    first_round, index = line.rounds_before[line.first[rows]], _first_index(line)[rows]
    begin = 0
    while begin < len(rows):
        end = int(np.searchsorted(sums, sums[begin] + _CHUNK, side="right")) - 1
        part = slice(begin, max(end, begin + 1))
        repeats = count[part]
        within = np.arange(int(repeats.sum())) - np.repeat(sums[part] - sums[begin], repeats)
        yield (
            np.repeat(line.request[rows[part]], repeats),
            np.repeat(index[part], repeats) + within,
            ends[np.repeat(first_round[part], repeats) + within],
        )
        begin = part.stop


def _of_prefills(
    line: Timeline, wanted: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> tuple[IntColumn, IntColumn, IntColumn]:
    """The tokens that the ends of complete prefills yield."""
    stays = np.flatnonzero(line.complete & (line.prefill_rows > 0) & wanted[line.stay_request])
    last = line.stay_row[stays] + line.prefill_rows[stays] - 1  # prefills come first in a stay
    return line.stay_request[stays], line.yielded_before[stays], line.end_ns[line.last[last]]


def _first_index(line: Timeline) -> IntColumn:
    """Index of the first token of each decode row."""
    decoded = np.where(line.is_prefill, 0, line.row_rounds)
    decoded[line.invalids] = 0
    sums = np.concatenate([[0], np.cumsum(decoded)])
    repeats = line.stay_end - line.stay_row + 1
    before = line.yielded_before + line.stay_yields
    found: IntColumn = sums[:-1] + np.repeat(before - sums[line.stay_row], repeats)
    return found


def _round_ends_ns(line: Timeline, rows: IntColumn) -> IntColumn:
    """Ends of all rounds, those of the steps before each place first; exact for the rows' steps."""
    rounds = np.where(line.has_rounds, line.rounds, 0)
    count = int(line.rounds_before[-1])
    number = np.arange(count) - np.repeat(line.rounds_before[:-1], rounds) + 1
    took = np.repeat(line.end_ns - line.start_ns, rounds)
    many = np.repeat(np.maximum(rounds, 1), rounds)
    # took * number could leave 64 bits in runs of many rounds
    share = took // many * number + took % many * number // many
    ends: IntColumn = np.repeat(line.start_ns, rounds) + share
    if not line.schedule.is_measured:
        _ask_models(line, rows, ends)
    return ends


def _ask_models(line: Timeline, rows: IntColumn, ends: IntColumn) -> None:
    """Put in the ends of rounds where these depend on contexts that grow within a step."""
    workers = line.instance.workers
    matters = np.array([worker.cost.context_matters for worker in workers])
    asked = matters[line.worker] & line.has_rounds & (line.rounds > 1)
    if not asked.any():
        return
    sums = np.zeros(len(line.worker) + 1, np.int64)
    np.add.at(sums, line.first[rows], 1)
    np.add.at(sums, line.last[rows] + 1, -1)
    places = np.flatnonzero(asked & (np.cumsum(sums)[:-1] > 0))
    caches, starts = line.caches, line.rounds_before
    for place in places.tolist():
        cost = workers[line.worker[place]].cost
        active, total = int(caches.active[place]), int(caches.context_padded[place])
        most, now = int(caches.context_max[place]), int(line.start_ns[place])
        first = int(starts[place])
        for later in range(int(line.rounds[place]) - 1):
            now += cost.round_ns(active, total + active * later, most + later)
            ends[first + later] = now
