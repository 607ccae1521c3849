"""When requests begin and end, and when each token comes: times, gaps between tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.data.schedule import DECODE, MIXED
from orsched.metrics.timeline import Timeline
from orsched.metrics.timeline_rows import changes, covered_sum, spanned_max

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.metrics.timeline_rows import Mask


def request_times(
    instance: Instance, schedule: Schedule, timeline: Timeline | None = None
) -> dict[str, IntColumn]:
    """Return client, prefill start and end, first token and finish of every request, in ns: one row
    a request, -1 where the schedule does not serve it. Client and prefill start are those of the
    first stay; the prefill ends with the first one that is complete; the finish is the end of the
    last row, invalid tokens included. ``timeline`` is the schedule's, if it is at hand."""
    line = Timeline(instance, schedule) if timeline is None else timeline
    return {
        "client": _of_requests(line, slice(None, None, -1), line.client),
        "prefill_start_ns": _of_requests(line, line.prefills[::-1], line.start_ns[line.first]),
        "prefill_end_ns": _prefill_ends(line),
        "first_token_ns": first_tokens_ns(line),
        "finish_ns": finishes_ns(line),
    }


def _of_requests(line: Timeline, rows: IntColumn | slice, values: IntColumn) -> IntColumn:
    """Return the value of the last one of some rows for each request, -1 for none. Rows are in
    order of request, then step: reversed, the first one of a request wins."""
    found = np.full(len(line.instance), -1, np.int64)
    found[line.request[rows]] = values[rows]
    return found


def begins_ns(line: Timeline) -> IntColumn:
    """Return when the first work of every request begins, -1 where it has none."""
    return _of_requests(line, slice(None, None, -1), line.start_ns[line.first])


def finishes_ns(line: Timeline) -> IntColumn:
    """Return the finish of every request, as ``request_times`` does."""
    return _of_requests(line, slice(None), line.end_ns[line.last])


def first_tokens_ns(line: Timeline, first_round_ns: IntColumn | None = None) -> IntColumn:
    """Return the first token of every request, as ``request_times`` does; ``first_round_ns`` is
    what the first round of each decode step takes, by place, if it is known."""
    if line.instance.first_token == "prefill":
        return _prefill_ends(line)
    found = _of_requests(line, line.decodes[::-1], line.first)  # places of the first rounds
    served = np.flatnonzero(found >= 0)
    places = found[served]
    if first_round_ns is None:
        one = first_rounds_ns(line, places)
    else:
        whole = line.phase[places] == MIXED
        one = np.where(whole, (line.end_ns - line.start_ns)[places], first_round_ns[places])
    found[served] = line.start_ns[places] + one
    return found


def _prefill_ends(line: Timeline) -> IntColumn:
    """End of each request's first complete prefill; of its last prefill row if none is complete."""
    rows, prompts = line.prefills, line.instance.requests.prompt_tokens
    final = changes(line.stay_of[rows][::-1])[::-1]
    # Until a prefill is complete nothing is yielded, so the prompt alone completes the first one.
    done = final & (line.cached_after[rows] >= prompts[line.request[rows]])
    ordered = np.concatenate([rows, rows[done][::-1]])
    return _of_requests(line, ordered, line.end_ns[line.last])


def first_rounds_ns(line: Timeline, places: IntColumn) -> IntColumn:
    """Duration of the first round of some steps. Exact where all rounds of a step last equally
    long; where contexts matter, the cost model is asked for the first round, unless the run was
    measured (its steps then have equal rounds)."""
    duration = (line.end_ns - line.start_ns)[places] // line.rounds[places]
    workers = line.instance.workers
    matters = np.array([worker.cost.context_matters for worker in workers])
    if matters.any() and not line.schedule.is_measured:
        asked = np.flatnonzero(matters[line.worker[places]] & (line.rounds[places] > 1))
        several, which = np.unique(places[asked], return_inverse=True)
        caches = line.caches
        contexts = (caches.active, caches.context_padded, caches.context_max)
        columns = (line.worker[several], *(column[several] for column in contexts))
        rows = zip(*(column.tolist() for column in columns), strict=True)
        found = [workers[index].cost.round_ns(*contexts) for index, *contexts in rows]
        duration[asked] = np.array(found, np.int64)[which]
    return duration


_CHUNK = 1 << 21  # tokens that are looked at together


class TokenLimits(NamedTuple):
    """Until when each token of each request is in time, one entry a request."""

    judged: Mask  # whether its tokens are looked at
    first_ns: IntColumn  # until when token 0 is in time
    further_ns: IntColumn  # how much later each further token may be; -1: as late as it likes


def tokens_in_time(line: Timeline, limits: TokenLimits) -> IntColumn:
    """Return for each request how many of its tokens are in time; 0 where it is not judged. Token
    i, from 0, is in time until ``first_ns + i * further_ns`` (Echo, arXiv 2504.03651, section 3.2:
    latency of token i = TTFT + i TPOT)."""
    n = len(line.instance)
    counts = np.zeros(n, np.int64)
    for request, _, met in judged_tokens(line, limits):
        counts += np.bincount(request[met], minlength=n)
    return counts


def judged_tokens(
    line: Timeline, limits: TokenLimits
) -> Iterator[tuple[IntColumn, IntColumn, Mask]]:
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


def token_times(line: Timeline, wanted: Mask) -> Iterator[tuple[IntColumn, IntColumn, IntColumn]]:
    """Yield request, index from 0 and time of all tokens of the wanted requests, in parts. The cost
    model says when each round of a run ends; where times were measured, rounds of a step are
    equal."""
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


def _of_prefills(line: Timeline, wanted: Mask) -> tuple[IntColumn, IntColumn, IntColumn]:
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


class TokenGaps:
    """The times between two successive tokens of each request, in nanoseconds. A token comes at the
    end of its round, or of the complete prefill that yields it; evictions, rounds that leave the
    request out and the prefills of others lengthen a gap. Invalid tokens do not count. Where times
    were measured, the rounds of a step are equal, to the nanosecond.

    A round's gap is held once, with the number of requests that have it (as ``vllm bench serve``
    counts them: ``ITL`` is over all gaps of all requests)."""

    def __init__(self, line: Timeline) -> None:
        self.line, rows = line, line.decodes
        self.rows = rows
        ends = _round_ends_ns(line, rows)
        self.first = line.rounds_before[line.first[rows]]
        self.last = self.first + line.row_rounds[rows] - 1
        self.rounds = np.diff(ends, prepend=0)  # of the same row where it has the one before
        self.request, self.between = self._between(ends[self.first])

    def _between(self, decode_first_ns: IntColumn) -> tuple[IntColumn, IntColumn]:
        """Request and gap of each two successive rows that yield tokens."""
        line = self.line
        yields = line.row_phase == DECODE
        first = np.zeros(len(yields), np.int64)
        first[yields] = decode_first_ns
        if line.instance.first_token == "prefill":
            stays = np.flatnonzero(line.complete & (line.prefill_rows > 0))
            rows = line.stay_row[stays] + line.prefill_rows[stays] - 1  # prefills come first
            yields[rows] = True
            first[rows] = line.end_ns[line.last[rows]]
        rows = np.flatnonzero(yields)
        request, last = line.request[rows], line.end_ns[line.last[rows]]
        same = request[1:] == request[:-1]
        gaps: IntColumn = first[rows][1:] - last[:-1]
        return request[1:][same], gaps[same]

    def largest(self) -> IntColumn:
        """Return the largest gap of each request, its stall; 0 for one of fewer than two tokens."""
        found = np.zeros(len(self.line.instance), np.int64)
        within = spanned_max(self.rounds, self.first + 1, self.last)
        np.maximum.at(found, self.line.request[self.rows], within)
        np.maximum.at(found, self.request, self.between)
        return found

    def spread(self, wanted: Mask | None = None) -> tuple[IntColumn, IntColumn]:
        """Return the gaps of the wanted requests (None: of all) and how often each occurs."""
        first, last, between = self.first, self.last, self.between
        if wanted is not None:
            mine = wanted[self.line.request[self.rows]]
            first, last, between = first[mine], last[mine], between[wanted[self.request]]
        counts = covered_sum(len(self.rounds), first + 1, last)
        some = counts > 0
        return (
            np.concatenate([self.rounds[some], between]),
            np.concatenate([counts[some], np.ones(len(between), np.int64)]),
        )
