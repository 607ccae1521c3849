"""Stays: what a request finds, prefills and yields each time it is on a client."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from orsched.metrics.handovers import Handovers
from orsched.metrics.intervals import before
from orsched.metrics.timeline_rows import Rows

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.metrics.timeline_rows import Mask


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
        """Tokens that each stay has to have: the prompt and what was yielded before.

        It prefills those that it does not find in a prefix cache.
        """
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
        """Tokens before each stay, complete prefills, and tokens of each request.

        Whether a prefill is complete depends on the tokens before, and these on whether earlier
        ones were: all first stays are looked at together, then all second ones.
        """
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
