"""Caches that go from one worker to another: who was handed to whom, and when links are free."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003  (fields of a NamedTuple)
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.data.transfers import COLUMNS, Transfers

if TYPE_CHECKING:
    from orsched.data.links import Link


class Handed(NamedTuple):
    """A request that has been prefilled on one worker and is to decode on another.

    Attributes:
        source, target: the workers.
        tokens: tokens in its cache.
    """

    source: int
    target: int
    tokens: int


class Calls(NamedTuple):
    """What the loop does when caches change hands.

    Attributes:
        wake: let a worker be asked at the next border.
        wake_all: the same for all workers.
        release: free what a request whose cache has gone holds on the worker that sent it.
    """

    wake: Callable[[int], None]
    wake_all: Callable[[], None]
    release: Callable[[Handed, int], None]


class Handovers:
    """The requests that change workers, and the link of each worker that sends.

    Attributes:
        handed: those that no worker has taken yet.
        under_way: those whose transfers have been asked for and have not ended.
        wake, wake_all, release: as in ``Calls``.
    """

    def __init__(self, link: Link, workers: int, calls: Calls) -> None:
        self.link = link
        self.free_ns = [0] * workers
        self.wake, self.wake_all, self.release = calls
        self.handed: dict[int, Handed] = {}
        self.under_way: dict[int, Handed] = {}
        self.rows: list[tuple[int, int, int, int, int, int, int]] = []
        self.ends: list[tuple[int, int]] = []  # (end, request) of transfers not told of yet

    def hand(self, request: int, handed: Handed) -> None:
        """Let a request wait for another worker to take its cache."""
        self.handed[request] = handed
        self.wake(handed.target)

    def send(self, request: int, stay: int, now_ns: int) -> bool:
        """Let a cache go over its link, after those that were asked for before; say if it is there.

        It is at once where the link takes no time and is free.
        """
        sent = self.under_way[request] = self.handed.pop(request)
        start = max(now_ns, self.free_ns[sent.source])
        end = self.free_ns[sent.source] = start + self.link.transfer_ns(sent.tokens)
        self.rows.append((request, stay, sent.source, sent.target, start, end, sent.tokens))
        if end == now_ns:
            self.release(self.under_way.pop(request), request)
            return True
        self.ends.append((end, request))
        return False

    def transfers(self) -> Transfers | None:
        """Return all transfers, in order of start, then source, then request."""
        if not self.rows:
            return None
        columns = np.array(self.rows, np.int64).T
        order = np.lexsort((columns[0], columns[2], columns[4]))
        return Transfers(
            **{item.name: column for item, column in zip(COLUMNS, columns[:, order], strict=True)}
        )
