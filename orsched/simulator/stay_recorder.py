"""What a schedule must say of stays on workers with a prefix cache, so that it can be replayed."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn

_REQUEST_BITS = 32


class StayRecorder:
    """Hits and turns of stays that begin, and when those that are evicted end.

    Attributes:
        begun: request, stay, tokens hit and turn, one after the other.
        ended: worker, request, stay, the worker's step before which it is evicted, and how many
            stays began on the worker before it; in the order of the evictions.
    """

    def __init__(self) -> None:
        self.begun = array("q")
        self.ended = array("q")

    def columns(self, rows: dict[str, IntColumn]) -> dict[str, IntColumn]:
        """Return the columns ``hit``, ``turn``, ``rested`` and ``exit`` of rows in any order.

        ``rows`` number the steps by worker.
        """
        key = _key(rows["request"], rows["stay"])
        columns = {name: np.zeros(len(key), np.int64) for name in ("hit", "turn")}
        order = np.lexsort((rows["phase"], rows["first_step"], key))
        request, stay, hit, turn = np.array(self.begun, np.int64).reshape(-1, 4).T
        _, opens = np.unique(key[order], return_index=True)
        at = order[opens][np.searchsorted(key[order][opens], _key(request, stay))]
        columns["hit"][at], columns["turn"][at] = hit, turn
        if self.ended:
            columns |= self._evicted(key, order, rows["last_step"])
        return columns

    def _evicted(
        self, key: IntColumn, order: IntColumn, last_step: IntColumn
    ) -> dict[str, IntColumn]:
        """Return the columns ``rested`` and ``exit``, both on the last row of an evicted stay."""
        ended = np.array(self.ended, np.int64).reshape(-1, 5)
        _, request, stay, step, _ = ended.T
        backwards = order[::-1]
        keys, closes = np.unique(key[backwards], return_index=True)
        at = backwards[closes][np.searchsorted(keys, _key(request, stay))]
        columns = {name: np.zeros(len(key), np.int64) for name in ("rested", "exit")}
        columns["rested"][at] = step - last_step[at] - 1
        columns["exit"][at] = _exits(ended)
        return columns


def _exits(ended: IntColumn) -> list[int]:
    """Return the places of evictions before one step; 0 where the last admitted went first."""
    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row, (worker, _, _, step, place) in enumerate(ended.tolist()):
        groups.setdefault((worker, step), []).append((row, place))
    exits = [0] * len(ended)
    for group in groups.values():
        places = [place for _, place in group]
        if places != sorted(places, reverse=True):
            for turn, (row, _) in enumerate(group):
                exits[row] = turn
    return exits


def _key(request: Any, stay: Any) -> IntColumn:
    return np.asarray(request, np.int64) << _REQUEST_BITS | np.asarray(stay, np.int64)
