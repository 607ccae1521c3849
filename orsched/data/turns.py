"""Turns of conversations: a request may name its *parent*, with whose prompt and answer its own
prompt begins. A request without one is the first of its conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import int_column
from orsched.common.errors import InputError
from orsched.common.units import MAX_TIME_NS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from orsched.common.columns import IntColumn
NONE = -1
"""Parent of a first turn, and delay of a request that arrives at its own time."""


def parent_column(values: ArrayLike | None, n: int) -> IntColumn | None:
    """Return the parents of n requests as rows, ``NONE`` for first turns; None where all are."""
    if values is None:
        return None
    remedy = "the row of another request, or -1 for the first turn of a conversation"
    parent = int_column(values, "parent", minimum=NONE, maximum=n - 1, length=n, remedy=remedy)
    first, _ = conversations(parent)
    circular = parent[first] != NONE
    if circular.any():
        raise InputError(
            "the parents form a circle: no request of it is the first",
            row=int(np.argmax(circular)),
            field="parent",
            remedy="leave the parent of the first turn out",
        )
    return parent if (parent != NONE).any() else None


def delay_column(values: ArrayLike | None, parent: IntColumn | None, n: int) -> IntColumn | None:
    """Return the delays of n requests, ``NONE`` for own arrival times; None where all are."""
    if values is None:
        return None
    delay = int_column(
        values, "delay_ns", minimum=NONE, maximum=MAX_TIME_NS, length=n,
        below="delays are 0 or longer; -1: the request arrives at its own time",
    )  # fmt: skip
    alone = delay != NONE if parent is None else (delay != NONE) & (parent == NONE)
    if alone.any():
        raise InputError(
            "a delay without a parent",
            row=int(np.argmax(alone)),
            field="delay_ns",
            remedy="name the request whose end it follows (parent), or leave the delay out",
        )
    return delay if (delay != NONE).any() else None


def conversations(parent: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Return the first turn of each request's conversation, and how many turns are before it."""
    first = np.where(parent == NONE, np.arange(len(parent)), parent)
    depth = (parent != NONE).astype(np.int64)
    for _ in range(len(parent).bit_length()):
        depth, first = depth + depth[first], first[first]
    return first, depth


def with_all_before(
    parent: IntColumn, kept: np.ndarray[Any, np.dtype[np.bool_]]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return the requests that are kept and all of whose turns before are: others are not sent."""
    up, found = np.where(parent == NONE, np.arange(len(parent)), parent), kept.copy()
    for _ in range(len(parent).bit_length()):
        found &= found[up]
        up = up[up]
    return found


def taken_parents(parent: IntColumn, kept: IntColumn) -> IntColumn:
    """Return the parents of the rows that are kept; a turn without its parent is a first one."""
    place = np.full(len(parent) + 1, NONE, np.int64)
    place[kept] = np.arange(len(kept))  # the last place is where NONE points to
    return place[parent[kept]]
