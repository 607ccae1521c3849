"""Whether what waits fits into the clients' rounds: written so that numba can compile it.

It knows nothing of stages: who waits may start on any client as soon as that is free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from orsched.models.best_first.arrays import Bins, Case

MOST_TRIED = 20_000
"""Steps after which what has not been refuted counts as fitting."""


def packs(case: Case, cnt: Any, left: Any, rounds: int, bins: Bins) -> bool:
    """Return whether what waits may fit into so many rounds of clients busy for ``left`` of them.

    The client of the least room is filled first, so that nothing that remains fits in, too: what
    fits could come from another client. All together can leave no more empty than they have too
    much (``slacks``). What remains for the last client then fits.
    """
    clients, kinds = case.clients, len(case.rounds)
    slack, client, kind = 0, 0, 0
    for i in range(kinds):
        bins.stock[i] = cnt[i]
        slack -= cnt[i] * case.rounds[i]
    for j in range(clients):
        slack += rounds - left[j]
    if slack < 0 or rounds < left[clients - 1]:
        return False
    if clients == 1:
        return True
    begin_client(case, left, rounds, bins, 0, slack)
    for _ in range(MOST_TRIED):
        if kind < kinds and bins.rests[client] - bins.sums[client, kind] <= bins.slacks[client]:
            some = min(bins.stock[kind], bins.rests[client] // case.rounds[kind])
            bins.taken[client, kind] = 0
            take(case, bins, client, kind, some)
            kind += 1
        elif kind == kinds and is_full(case, bins, client):
            if client == clients - 2:
                return True
            slack = bins.slacks[client] - bins.rests[client]
            client, kind = client + 1, 0
            begin_client(case, left, rounds, bins, client, slack)
        else:
            kind = last_taken(bins, client, kind)
            while kind < 0 and client > 0:
                client -= 1
                kind = last_taken(bins, client, kinds)
            if kind < 0:
                return False
            take(case, bins, client, kind, -1)
            kind += 1
    return True


def begin_client(case: Case, left: Any, rounds: int, bins: Bins, client: int, slack: int) -> None:
    """Write what the next client may hold and leave empty, and the sums of what remains."""
    bins.slacks[client] = slack
    bins.rests[client] = rounds - left[case.clients - 1 - client]
    kinds = len(case.rounds)
    bins.sums[client, kinds] = 0
    for i in range(kinds - 1, -1, -1):
        bins.sums[client, i] = bins.sums[client, i + 1] + bins.stock[i] * case.rounds[i]


def take(case: Case, bins: Bins, client: int, kind: int, some: int) -> None:
    """Give a client so many more of a kind."""
    bins.taken[client, kind] += some
    bins.stock[kind] -= some
    bins.rests[client] -= some * case.rounds[kind]


def is_full(case: Case, bins: Bins, client: int) -> bool:
    """Return whether a client has little enough room left, and none for what remains."""
    if bins.rests[client] > bins.slacks[client]:
        return False
    for i in range(len(case.rounds) - 1, -1, -1):
        if bins.stock[i] > 0:
            return bool(case.rounds[i] > bins.rests[client])
    return True


def last_taken(bins: Bins, client: int, before: int) -> int:
    """Return the last kind before one of which a client has some, or -1."""
    kind = before - 1
    while kind >= 0 and bins.taken[client, kind] == 0:
        kind -= 1
    return kind
