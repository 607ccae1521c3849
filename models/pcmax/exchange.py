"""Large integers: exchanges between clients, in place of splits of pairs.

Where lengths are large, hardly a split of a given pair meets the target to the unit, but some
pair's exchange does: each client is held against all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.models.pcmax.exchanges import WIDTH, Clients
from orsched.models.pcmax.local import longest_first

if TYPE_CHECKING:
    from orsched.common.stop import Clock
    from orsched.models.pcmax.local import Groups

MOVES = 80_000
"""Moves of a walk, before the next one begins."""
WALKS = 4
"""Walks without a time limit."""
_AT_ONCE = 500
_DRAWS_OF_A_MOVE = 40


def exchange(
    groups: Groups, target: int, rng: np.random.Generator, clock: Clock, loops: Any
) -> Groups:
    """Return the best groups that some walks find; ends when all loads are at most the target.

    Args:
        groups: lengths of the jobs of each client; the first walk starts here.
        target: where it ends.
        rng: of the walks.
        clock: with a deadline there are walks until then, else a fixed number.
        loops: ``exchanges``, compiled or plain.
    """
    best, jobs = groups, [job for group in groups for job in group]
    walks = 0
    while max(map(sum, best)) > target and not clock.out():
        found = _walk(
            groups if not walks else longest_first(jobs, len(groups)), target, rng, clock, loops
        )
        best = min(best, found, key=lambda each: max(map(sum, each)))
        walks += 1
        if not clock.limited and walks == WALKS:
            break
    return best


def _walk(
    groups: Groups, target: int, rng: np.random.Generator, clock: Clock, loops: Any
) -> Groups:
    clients = _clients(groups, target)
    at, draws = 0, rng.random(WIDTH * len(groups))
    for client in range(len(groups)):
        at = loops.subsets(clients, client, draws, at)
    moves = 0
    while moves < MOVES and clients.room.min() < 0 and not clock.out():
        # a tour of all clients needs many draws, a move but few
        draws = rng.random(_AT_ONCE * _DRAWS_OF_A_MOVE + 100 * len(groups))
        moves += max(1, loops.walk(clients, draws, _AT_ONCE))
    rows = zip(clients.jobs.tolist(), clients.count.tolist(), strict=True)
    return [row[:count] for row, count in rows]


def _clients(groups: Groups, target: int) -> Clients:
    """Return the groups as arrays; the subsets are not listed yet."""
    count = np.array([len(group) for group in groups], dtype=np.int64)
    jobs = np.zeros((len(groups), 2 * int(count.max()) + 2 * WIDTH), dtype=np.int64)
    for row, group in zip(jobs, groups, strict=True):
        row[: len(group)] = group
    table = np.zeros((len(groups), 1 << WIDTH), dtype=np.int64)
    return Clients(
        jobs, count, target - jobs.sum(axis=1), table, table.copy(), np.zeros_like(count)
    )
