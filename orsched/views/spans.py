"""Which request holds which client when: spans, the stages around them, and the clients' rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.data.schedule import DECODE, INVALID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.metrics.timeline import Timeline

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, eq=False)
class Spans:
    """Stretches of time of requests on clients, one row each, in order of request, then time.

    ``request`` is its row, ``lane`` the client, counted through all workers (``lane_offsets``);
    steps are rows of ``Steps``, both included; ``stay`` is the number of the request's stay.
    """

    request: IntColumn
    lane: IntColumn
    start_ns: IntColumn
    end_ns: IntColumn
    first_step: IntColumn
    last_step: IntColumn
    stay: IntColumn

    def __len__(self) -> int:
        return len(self.request)

    def take(self, rows: IntColumn | Mask) -> Spans:
        """Return the given rows."""
        return Spans(*(column[rows] for column in vars(self).values()))


def lane_offsets(instance: Instance) -> IntColumn:
    """Return the first lane of each worker, and the number of lanes at the end."""
    return np.cumsum([0, *(worker.clients for worker in instance.workers)], dtype=np.int64)


def tells_classes_apart(instance: Instance) -> bool:
    """Whether some requests are bulk and others are not."""
    return bool(instance.bulk.any() and not instance.bulk.all())


@dataclass(frozen=True, eq=False)
class ClientUse:
    """What every client does with the requests that it holds; the spans of a client are disjoint.

    Attributes:
        prefill: one span a prefill row (chunks are rows).
        decode: one span a decode row, from the end of the row before to its last token; prefills
            of others in between are part of it. A request that its prefill finishes has none.
        invalid: the same for the rounds after the last token.
        paused: between two rows of a stay, while the worker decodes without the request, or before
            the next part of its prompt.
        stays: the unbroken time of each request on a client; an eviction ends it.
        restarts: those that come after an eviction.
        transfers: caches on their way over links, on the clients of both workers.
        bulk: by request, whether it is bulk, where some are and others are not; else None.
    """

    prefill: Spans
    decode: Spans
    invalid: Spans
    paused: Spans
    stays: Spans
    restarts: Spans
    transfers: Spans
    bulk: Mask | None = None


def client_use(line: Timeline) -> ClientUse:
    """Return the spans of all requests of a schedule."""
    instance, work, steps = line.instance, line.schedule.work, line.schedule.steps
    lane = lane_offsets(instance)[line.row_worker] + work.client
    start, end = line.start_ns[line.first], line.end_ns[line.last]

    def spans(
        rows: IntColumn | Mask, begin: IntColumn, until: IntColumn, first: IntColumn
    ) -> Spans:
        return Spans(
            work.request[rows], lane[rows], begin[rows], until[rows], first[rows],
            work.last_step[rows], work.stay[rows],
        )  # fmt: skip

    follows = np.ones(len(work), bool)
    follows[line.stay_row] = False
    before = np.maximum(np.arange(len(work)) - 1, 0)
    ended = end[before]
    # A row that yields tokens joins the row before unless the worker had rounds in between.
    rounds = line.rounds_before[line.first] - line.rounds_before[line.last[before] + 1]
    joins = follows & ~line.is_prefill & (rounds == 0)
    begin = np.where(joins, ended, start)
    paused = np.flatnonzero(follows & ~joins & (start > ended))
    head, tail = line.stay_row, line.stay_end
    stays = Spans(
        work.request[head], lane[head], start[head], steps.end_ns[work.last_step[tail]],
        work.first_step[head], work.last_step[tail], work.stay[head],
    )  # fmt: skip
    return ClientUse(
        prefill=spans(line.is_prefill, start, end, work.first_step),
        decode=spans(work.phase == DECODE, begin, end, work.first_step),
        invalid=spans(work.phase == INVALID, begin, end, work.first_step),
        paused=Spans(
            work.request[paused], lane[paused], ended[paused], start[paused],
            work.last_step[before][paused], work.first_step[paused], work.stay[paused],
        ),
        stays=stays,
        restarts=stays.take(_again(line)),
        transfers=_transfers(line, stays),
        bulk=instance.bulk if tells_classes_apart(instance) else None,
    )  # fmt: skip


def _again(line: Timeline) -> Mask:
    """Return which stays come after an eviction."""
    later: Mask = line.stay[line.stay_row] > 0
    return later if line.schedule.transfers is None else later & ~line.handovers.comes


def _transfers(line: Timeline, stays: Spans) -> Spans:
    """Return when caches go, on the clients that hold them meanwhile."""
    sent = line.schedule.transfers
    if sent is None:
        return stays.take(np.zeros(0, np.int64))
    hands = line.handovers
    goes, comes = np.flatnonzero(hands.goes), np.flatnonzero(hands.comes)
    found = stays.take(np.concatenate([goes, comes]))
    rows = np.concatenate([hands.out_of[goes], hands.into[comes]])
    return replace(found, start_ns=sent.start_ns[rows], end_ns=sent.end_ns[rows])


def rank_in_lane(spans: Spans) -> IntColumn:
    """Return the place, from 0, of spans' requests in their lane's order; spans of one share it."""
    order = np.lexsort((spans.start_ns, spans.lane))
    lanes, requests = spans.lane[order], spans.request[order]
    changes = np.zeros(len(order), np.int64)
    changes[1:] = (lanes[1:] != lanes[:-1]) | (requests[1:] != requests[:-1])
    place = np.cumsum(changes)
    head = np.ones(len(order), bool)
    head[1:] = lanes[1:] != lanes[:-1]
    rank = np.empty(len(order), np.int64)
    rank[order] = place - np.maximum.accumulate(np.where(head, place, 0))
    return rank


STAGE_COLUMNS = (
    "worker", "phase", "bin", "start", "end", "rounds", "requests", "prefilled", "tokens",
)  # fmt: skip


def bins(line: Timeline) -> IntColumn:
    """Return each step's bin: its worker's latest step that prefills, counted from 0, or -1."""
    result = np.empty(len(line.order), np.int64)
    result[line.order] = _bins_by_place(line)
    return result


def _bins_by_place(line: Timeline) -> IntColumn:
    prefills = line.phase != DECODE
    count = np.cumsum(prefills)
    heads = np.searchsorted(line.worker, line.worker)
    found: IntColumn = count - (count - prefills)[heads] - 1
    return found


def stage_columns(line: Timeline) -> dict[str, IntColumn]:
    """Return the stages in order of worker, then start; a decode stage joins its runs of rounds.

    Columns ``worker, phase, bin, start, end, rounds, requests`` (the most that are served at a
    time), ``prefilled`` (those of them that are prefilled) and ``tokens`` (tokens prefilled).
    """
    n = len(line.order)
    head = np.ones(n, bool)
    # A step that prefills stands alone; runs of rounds join across no change and no pause.
    head[1:] = (
        (line.phase[1:] != DECODE)
        | (line.phase[1:] != line.phase[:-1])
        | (line.worker[1:] != line.worker[:-1])
        | (line.start_ns[1:] != line.end_ns[:-1])
    )
    heads = np.flatnonzero(head)
    if len(heads) == 0:
        return {name: np.empty(0, np.int64) for name in STAGE_COLUMNS}
    last = np.append(heads[1:], n) - 1
    prefilled, tokens = line.by_place(line.batches.size), line.by_place(line.batches.total)
    serving = prefilled + line.caches.active
    return {
        "worker": line.worker[heads],
        "phase": line.phase[heads],
        "bin": _bins_by_place(line)[heads],
        "start": line.start_ns[heads],
        "end": line.end_ns[last],
        "rounds": np.add.reduceat(line.rounds, heads),
        "requests": np.maximum.reduceat(serving, heads),
        "prefilled": prefilled[heads],
        "tokens": tokens[heads],
    }


FOLD_FROM = 3
"""So many clients of a worker without a request are folded; fewer are shown."""

HEIGHT_PIXELS, MIN_HEIGHT_PIXELS, MAX_ROW_PIXELS = 1000, 120, 45
_STRIP_PIXELS, _WORDED_STRIPS = 26, 12
"""Height of a strip in which words stand, and how many of them there may be."""


@dataclass(frozen=True, eq=False)
class Lanes:
    """Rows of a Gantt chart, counted from the top, one a client; folded clients share a strip.

    ``row`` is by client (``lane_offsets``), the strip's for folded ones; ``top`` the first row of
    each worker, and the number of rows at the end; ``shown`` and ``folded`` count clients by
    worker; ``numbers`` are those of each row's client within its worker, -1 in strips.
    """

    row: IntColumn
    top: IntColumn
    shown: IntColumn
    folded: IntColumn
    numbers: IntColumn

    @property
    def rows(self) -> int:
        """Rows of all workers together."""
        return int(self.top[-1])

    @property
    def worded(self) -> bool:
        """Whether strips are high enough for words."""
        return int((self.folded > 0).sum()) <= _WORDED_STRIPS

    def row_pixels(self) -> int:
        """Pixels of a row: as high as a line of text for few, thin for many."""
        return max(1, min(MAX_ROW_PIXELS, HEIGHT_PIXELS // max(1, self.rows)))

    def height_pixels(self) -> int:
        """Pixels of all rows, each a whole number, so that all look the same."""
        pixels = self.rows * self.row_pixels()
        return max(MIN_HEIGHT_PIXELS, min(pixels, 2 * HEIGHT_PIXELS))


def lanes_of(instance: Instance, stays: Spans | None = None) -> Lanes:
    """Return the rows of all clients; with ``stays`` (``ClientUse``) unused ones are folded."""
    offsets = lane_offsets(instance)
    used = np.full(int(offsets[-1]), stays is None)
    if stays is not None:
        used[stays.lane] = True
    kept = [used[low:high] for low, high in pairwise(offsets.tolist())]
    kept = [mask if (~mask).sum() >= FOLD_FROM else np.ones_like(mask) for mask in kept]
    return _laid_out(kept, _strip_rows(kept))


def _strip_rows(kept: Sequence[Any]) -> int:
    """Rows that a strip takes: as many as its words need, or one where there are many strips."""
    strips = sum(not mask.all() for mask in kept)
    if not 0 < strips <= _WORDED_STRIPS:
        return 1
    shown = sum(int(mask.sum()) for mask in kept)
    pixels = min(MAX_ROW_PIXELS, HEIGHT_PIXELS // max(1, shown + strips))
    return max(1, min(-(-_STRIP_PIXELS // max(1, pixels)), max(1, shown // 6)))


def _laid_out(kept: Sequence[Any], strip: int) -> Lanes:
    row, top, numbers = [], [0], []
    for mask in kept:
        shown = int(mask.sum())
        place = np.cumsum(mask) - 1
        row.append(top[-1] + np.where(mask, place, shown))
        numbers.append(np.flatnonzero(mask))
        if shown < len(mask):
            numbers.append(np.full(strip, -1))
        top.append(top[-1] + shown + (strip if shown < len(mask) else 0))
    shown_of = np.array([int(mask.sum()) for mask in kept], np.int64)
    folded = np.array([len(mask) for mask in kept], np.int64) - shown_of
    empty = np.empty(0, np.int64)
    return Lanes(
        np.concatenate([empty, *row]).astype(np.int64), np.array(top, np.int64), shown_of, folded,
        np.concatenate([empty, *numbers]).astype(np.int64),
    )  # fmt: skip
