"""States packed into whole numbers, and the arrays that hold all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

NODES, OPEN, BEST, FOUND, BOUND, EXPANDED, LEFT_OUT, COUNTS = range(8)
"""Places in the array of counts: nodes, heap entries, best time, its node, bound, ..., length."""


class Case(NamedTuple):
    """What does not change during a search; arrays of int64.

    Attributes:
        clients, round, stage: J, the times of a round and of a stage.
        bits: of the remaining rounds of one client; the clients ascend from the lowest bits.
        rounds, counts, shifts: of each kind, the longest first: its rounds, how many there are,
            and where in ``waiting`` the number that waits begins.
        weights: one row a set of weights, one column a kind.
        holds: of each set, the greatest weight of requests that fit into 0, 1, 2, ... rounds.
    """

    clients: int
    round: int
    stage: int
    bits: int
    rounds: Any
    counts: Any
    shifts: Any
    weights: Any
    holds: Any


class Store(NamedTuple):
    """The nodes, the heap of those that are open, and two hash tables; arrays.

    Attributes:
        waiting, active: the state; ``active`` has one more bit, whether clients were left free.
        spent, since: the time until here, and until the last state before which no client waited.
        before: the node before, -1 at the start.
        below: the node that stands next among those that leave out others, -1 after the last.
        rounds: a lower bound on the rounds to the end, 0 before it was worked out.
        blocks: how many full blocks it begins with (``expansion.blocks_of``).
        closed: whether it has been taken from the heap.
        keys, open: the heap: bounds and requests that wait, and nodes.
        known: hash table of states: a node, or -1.
        fronts: hash table of waiting requests: the first node that leaves out others, or -1.
    """

    waiting: Any
    active: Any
    spent: Any
    since: Any
    before: Any
    below: Any
    rounds: Any
    blocks: Any
    closed: Any
    keys: Any
    open: Any
    known: Any
    fronts: Any


class Bins(NamedTuple):
    """Clients that are filled, one after the other; arrays of int64.

    Attributes:
        stock: how many of each kind remain.
        taken: one row a client, one column a kind: how many it has.
        sums: of what remained when a client's turn came, the rounds of the kinds from each on.
        rests, slacks: of each client, the rounds that are empty, and how many may be: by it and
            all after it.
    """

    stock: Any
    taken: Any
    sums: Any
    rests: Any
    slacks: Any


def bits_of(greatest: int) -> int:
    """Return how many bits hold whole numbers up to this one."""
    return max(1, greatest.bit_length())


def shifts_of(counts: Sequence[int]) -> list[int]:
    """Return where each kind's number begins; one more, where the last one ends."""
    shifts = [0]
    for count in counts:
        shifts.append(shifts[-1] + bits_of(count))
    return shifts
