"""The queues of Algorithm 1 of Pang on their own: sorted, and stolen from by idle clients."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from orsched.common.columns import frame, int_column, whole_number
from orsched.common.registry import attached
from orsched.common.scalars import require_one_of
from orsched.heuristics.gated import ORDERS, ClientQueues

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

MAX_LENGTH = 2**31


class Taken(NamedTuple):
    """A request that left its queue: its row, and the client that got it."""

    request: int
    client: int


class StealingQueues:
    """A queue for each client, from which requests are taken one at a time.

    Attributes:
        lengths: tokens of each request, N^p + N^d.
        assignment: the client in whose queue each request is or was.
        taken: what has left the queues, in order.
    """

    def __init__(self, lengths: list[int], assignment: list[int], clients: int, order: str) -> None:
        self.lengths, self.assignment, self.clients = lengths, assignment, clients
        self.taken: list[Taken] = []
        self._queues = ClientQueues(clients, steal=True)
        for request, (length, client) in enumerate(zip(lengths, assignment, strict=True)):
            key = {"longest": -length, "shortest": length}.get(order, request)
            self._queues.add(request, client, key, length)

    def __len__(self) -> int:
        return self._queues.queued

    @property
    def remaining(self) -> list[int]:
        """Tokens in each client's queue (Pang's remain_token)."""
        return list(self._queues.remaining)

    def take(self, client: int) -> int | None:
        """Remove and return the request that an idle client gets: the first of its own queue, else
        the first of the queue with the most tokens; None where no request waits."""
        client = whole_number(client, "client", maximum=self.clients - 1)
        offered = self._queues.offer([client], [])
        request = next(offered, None)
        if request is not None:
            next(offered, None)  # which takes it
            self.taken.append(Taken(request, client))
        return request

    def serve(self) -> list[int]:
        """Let each client take a request whenever it has served its last one, a token in a unit of
        time, until none waits; return the end of each client."""
        ends = [0] * self.clients
        idle = [(0, client) for client in range(self.clients)]
        while len(self):
            now, client = heappop(idle)
            request = self.take(client)
            assert request is not None
            ends[client] = now + self.lengths[request]
            heappush(idle, (ends[client], client))
        return ends

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame with a row for each request that was taken, in order: its length, the
        client of its queue, the client that took it, and whether that is another."""
        rows, clients = [t.request for t in self.taken], [t.client for t in self.taken]
        own = [self.assignment[row] for row in rows]
        return frame({
            "request": rows, "length": [self.lengths[row] for row in rows], "queue": own,
            "client": clients, "stolen": [a != b for a, b in zip(own, clients, strict=True)],
        })  # fmt: skip

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the tokens that each client has taken, a bar for each request; return the axes."""
        lengths = [self.lengths[taken.request] for taken in self.taken]
        clients = [taken.client for taken in self.taken]
        drawn: Axes = attached("loads_chart")(
            lengths, clients, [0] * self.clients, None, "client", ax
        )
        return drawn

    def __repr__(self) -> str:
        return (
            f"StealingQueues: {len(self):,} of {len(self.lengths):,} requests wait at "
            f"{self.clients:,} clients, {sum(self.remaining):,} tokens"
        )


def sort_with_stealing(
    lengths: ArrayLike,
    clients: int,
    assignment: Sequence[int] | None = None,
    order: str = "longest",
) -> StealingQueues:
    """Queue requests at clients, sorted by length; an idle client steals (Pang, Algorithm 1).

    >>> queues = sort_with_stealing([9, 4, 3, 8], clients=2, assignment=[0, 1, 1, 0])
    >>> [queues.take(1) for _ in range(3)], queues.remaining
    ([1, 2, 0], [8, 0])
    >>> queues.take(1), queues.take(1)
    (3, None)

    Args:
        lengths: (n,) tokens of each request, N^p + N^d: whole numbers of at least 0.
        clients: J, at least 1.
        assignment: (n,) client of each request, ``pack(...).assignment`` for instance; default: in
            turn.
        order: ``longest`` first (as Pang), ``shortest`` first, or as given: ``arrival``.

    Raises:
        InputError: a number is not whole or out of range, the columns have other lengths, or the
            order is unknown.
    """
    sizes = int_column(lengths, "lengths", maximum=MAX_LENGTH).tolist()
    clients = whole_number(clients, "clients", minimum=1, maximum=10**6)
    require_one_of(order, "order", ORDERS)
    if assignment is None:
        places = [row % clients for row in range(len(sizes))]
    else:
        places = int_column(
            assignment, "assignment", maximum=clients - 1, length=len(sizes)
        ).tolist()
    return StealingQueues(sizes, places, clients, order)
