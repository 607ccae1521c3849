"""The caches that went over links, as the stays of a schedule see them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.data.transfers import Transfers

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.metrics.timeline_rows import Rows

    Mask = np.ndarray[Any, np.dtype[np.bool_]]

NONE = -1


class Handovers:
    """Which stays begin with a cache that came over a link, and which end with one that went.

    A transfer belongs to the stay of its request and number, and to the one before. What belongs to
    no stay, or appears twice, is for the checker to find.
    """

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
        """First places of rows, where a stay's first one begins with the start of its transfer.

        That is the first step of its worker that ends after the transfer's start.
        """
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
        """Last places of rows, where a stay's last one ends with the end of its transfer.

        That is the last step of its worker that starts before it.
        """
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
