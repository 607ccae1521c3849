"""Stays: what a request finds, prefills and yields each time it is on a client."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.data.links import Transfers
from orsched.metrics.timeline_rows import Rows, before

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.metrics.timeline_rows import Mask


NONE = -1


class Handovers:
    """Which stays begin with a cache that came over a link, and which end with one that went. A
    transfer belongs to the stay of its request and number, and to the one before. What belongs to
    no stay, or appears twice, is for the checker to find."""

    def __init__(self, line: Rows) -> None:
        self.line = line
        self.transfers = line.schedule.transfers or Transfers.none()

    @cached_property
    def into(self) -> IntColumn:
        """Row of the transfer that begins each stay, NONE for the others."""
        line, sent = self.line, self.transfers
        found = np.full(len(line.stay_row), NONE, np.int64)
        own = (line.stay_request << 31) + line.stay[line.stay_row]
        order = np.argsort(own, kind="stable")
        keys = own[order]
        wanted = (sent.request << 31) + sent.stay
        at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        known = np.flatnonzero(keys[at] == wanted) if len(keys) else np.zeros(0, np.int64)
        found[order[at[known]]] = known
        return found

    @cached_property
    def out_of(self) -> IntColumn:
        """Row of the transfer that takes away the cache of each stay, NONE for the others."""
        line = self.line
        found = np.full(len(line.stay_row), NONE, np.int64)
        same = line.stay_request[1:] == line.stay_request[:-1]
        found[:-1][same] = self.into[1:][same]
        return found

    @cached_property
    def comes(self) -> Mask:
        """Whether each stay begins with a cache that came over a link."""
        found: Mask = self.into != NONE
        return found

    @cached_property
    def goes(self) -> Mask:
        """Whether the cache of each stay went over a link."""
        found: Mask = self.out_of != NONE
        return found

    @cached_property
    def received(self) -> IntColumn:
        """Tokens that came over a link for each stay."""
        return self._of(self.into, self.transfers.tokens)

    def _of(self, rows: IntColumn, values: IntColumn) -> IntColumn:
        """Return the value of each stay's transfer, 0 where it has none."""
        if not len(values):
            return np.zeros(len(rows), np.int64)
        return np.where(rows == NONE, 0, values[rows])

    @cached_property
    def took_ns(self) -> IntColumn:
        """Times from the last step of stays that were sent to the ends of their transfers."""
        stays = np.flatnonzero(self.goes)
        ends = self.transfers.end_ns[self.out_of[stays]]
        took: IntColumn = ends - self.line.end_ns[self.line.stay_last[stays]]
        return took

    @cached_property
    def held_first(self) -> IntColumn:
        """First places of rows, where a stay's first one begins with the start of its transfer: the
        first step of its worker that ends after that."""
        line, stays = self.line, np.flatnonzero(self.comes)
        start = self.transfers.start_ns[self.into[stays]]
        found = line.first.copy()
        for here, low, high in self._by_worker(stays):
            place = low + np.searchsorted(line.end_ns[low:high], start[here], side="right")
            rows = line.stay_row[stays[here]]
            found[rows] = np.minimum(found[rows], place)
        return found

    @cached_property
    def held_last(self) -> IntColumn:
        """Last places of rows, where a stay's last one ends with the end of its transfer: the last
        step of its worker that starts before that."""
        line, stays = self.line, np.flatnonzero(self.goes)
        end = self.transfers.end_ns[self.out_of[stays]]
        found = line.last.copy()
        for here, low, high in self._by_worker(stays):
            place = low + np.searchsorted(line.start_ns[low:high], end[here], side="left") - 1
            rows = line.stay_end[stays[here]]
            found[rows] = np.maximum(found[rows], place)
        return found

    def _by_worker(self, stays: IntColumn) -> Any:
        """Yield which of some stays are on each worker, and the places of that worker."""
        heads, worker = self.line.heads().tolist(), self.line.stay_worker[stays]
        for index in np.unique(worker).tolist():
            if index < len(heads) - 1:
                yield np.flatnonzero(worker == index), heads[index], heads[index + 1]


class Stays(Rows):
    """What the rows of a schedule say of each stay, the caches that went over links included."""

    @cached_property
    def cached_after(self) -> IntColumn:
        """Tokens in the request's cache after each row, hits in a prefix cache included."""
        sums = before(np.where(self.is_prefill, self.tokens, self.row_rounds))
        start = sums[self.stay_row]
        if self.finds:
            start -= self.stay_found
        return sums[1:] - np.repeat(start, self.stay_end - self.stay_row + 1)

    @property
    def cached(self) -> IntColumn:
        """Tokens in the request's cache before each row."""
        return self.cached_after - np.where(self.is_prefill, self.tokens, self.row_rounds)

    @cached_property
    def recomputed(self) -> IntColumn:
        """Tokens that each stay prefills although an earlier stay of the request had them."""
        later = self.ordinal > 0
        if not later.any():
            return np.zeros(len(later), np.int64)
        cached = self.cached_after[self.stay_end]
        most = np.zeros(len(later), np.int64)  # that earlier stays have had
        for each in np.flatnonzero(later).tolist():
            most[each] = max(most[each - 1], cached[each - 1])
        found = self.stay_found
        again: IntColumn = np.maximum(np.minimum(most, found + self.prefilled) - found, 0)
        return again

    @cached_property
    def stay_found(self) -> IntColumn:
        """Tokens that each stay need not prefill: found in a prefix cache, or come over a link."""
        found = self.stay_hit if self.has_hits else np.zeros(len(self.stay_row), np.int64)
        return found if self.schedule.transfers is None else found + self.handovers.received

    @cached_property
    def handovers(self) -> Handovers:
        """The caches that went over links, by stay."""
        return Handovers(self)

    @cached_property
    def held_first(self) -> IntColumn:
        """First place of each row; of a stay's first one, that from which its client is held."""
        return self.first if self.schedule.transfers is None else self.handovers.held_first

    @cached_property
    def held_last(self) -> IntColumn:
        """Last place of each row; of a stay's last one, that until which its client is held."""
        return self.last if self.schedule.transfers is None else self.handovers.held_last

    @cached_property
    def stay_yields(self) -> Mask:
        """Whether the prefill of each stay yields a token."""
        if self.instance.first_token != "prefill":
            return np.zeros(len(self.stay_row), bool)
        if self.schedule.transfers is None:
            return self.complete
        return self.complete & ~self.handovers.comes

    @cached_property
    def stay_finishes(self) -> Mask:
        """Whether each stay yields its request's last token; the others end before."""
        outputs = self.instance.requests.output_tokens[self.stay_request]
        finishes: Mask = self.yielded_then >= outputs
        return finishes

    @cached_property
    def stay_evicted(self) -> Mask:
        """Whether each stay was evicted: it neither finishes nor is handed to another worker."""
        if self.schedule.transfers is None:
            return ~self.stay_finishes
        return ~self.stay_finishes & ~self.handovers.goes

    @cached_property
    def yielded_then(self) -> IntColumn:
        """Tokens that the request has yielded by the end of each stay."""
        return self.yielded_before + self.decode_rounds + self.stay_yields

    @cached_property
    def stay_freed(self) -> IntColumn:
        """Place of the step before which each evicted stay was freed, as it says."""
        return self.stay_last + 1 + self.work.rested[self.row[self.stay_end]]

    @cached_property
    def stay_exit(self) -> IntColumn:
        """Place of each evicted stay among those evicted before one step, as it says."""
        return self.work.exit[self.row[self.stay_end]]

    @cached_property
    def due(self) -> IntColumn:
        """Tokens that each stay has to have, found or prefilled: the prompt and those yielded."""
        prompts = self.instance.requests.prompt_tokens
        return prompts[self.stay_request] + self.yielded_before

    @cached_property
    def yielded_before(self) -> IntColumn:
        """Tokens that earlier stays of the request have yielded."""
        return self._yields[0]

    @cached_property
    def complete(self) -> Mask:
        """Whether the prefill of each stay is complete; assumed where it decodes."""
        return self._yields[1]

    @cached_property
    def yielded(self) -> IntColumn:
        """Tokens that each request has yielded in all its stays."""
        return self._yields[2]

    @cached_property
    def _yields(self) -> tuple[IntColumn, Mask, IntColumn]:
        """Tokens before each stay, complete prefills, and tokens of each request. Whether a prefill
        is complete depends on the tokens before, and these on whether earlier ones were: all first
        stays are looked at together, then all second ones."""
        prompts, many = self.instance.requests.prompt_tokens, len(self.stay_request)
        total = np.zeros(len(self.instance), np.int64)
        earlier, complete = np.zeros(many, np.int64), np.zeros(many, bool)
        decodes = self.prefill_rows <= self.stay_end - self.stay_row
        had = self.prefilled + self.stay_found if self.finds else self.prefilled
        by_prefill = np.full(many, self.instance.first_token == "prefill")
        if self.schedule.transfers is not None:
            by_prefill &= ~self.handovers.comes
        order = np.argsort(self.ordinal, kind="stable")
        borders = np.searchsorted(self.ordinal[order], np.arange(self.ordinal.max(initial=-1) + 2))
        for begin, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
            stays = order[begin:end]
            of = self.stay_request[stays]
            earlier[stays] = total[of]
            complete[stays] = decodes[stays] | (had[stays] == prompts[of] + total[of])
            total[of] += self.decode_rounds[stays]
            total[of] += complete[stays] & by_prefill[stays]
        return earlier, complete, total
