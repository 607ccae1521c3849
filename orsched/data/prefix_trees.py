"""Hash chains of prompts that begin with paths of a tree, or with documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.common.columns import IntColumn, int_column, whole_number
from orsched.common.errors import InputError
from orsched.common.units import MAX_TOKENS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


_MOST_SHOWN = 8
"""Segments of a circle that its error names."""


def blocks_of_paths(
    parent: ArrayLike, tokens: ArrayLike, leaf_of_request: ArrayLike, block_tokens: int
) -> tuple[IntColumn, IntColumn]:
    """Return offsets and ids for ``Prefixes.from_parents``."""
    size = whole_number(block_tokens, "block_tokens", minimum=1, maximum=MAX_TOKENS)
    parents = _references(parent, "parent", None)
    lengths = int_column(tokens, "tokens", maximum=MAX_TOKENS, length=len(parents))
    leaves = _references(leaf_of_request, "leaf_of_request", len(parents))
    order = _from_the_roots(parents)
    ends = np.zeros(len(parents) + 1, np.int64)  # the last one is for parent -1
    for segment in order:
        ends[segment] = ends[parents[segment]] + lengths[segment]
    last = ends[:-1] // size
    own = last - ends[parents] // size
    first_id = np.cumsum(own) - own
    chains: dict[int, IntColumn] = {-1: np.zeros(0, np.int64)}
    needed = _ancestors(parents, leaves)
    for segment in order:
        if segment in needed:
            ids = np.arange(first_id[segment], first_id[segment] + own[segment])
            chains[segment] = np.concatenate([chains[int(parents[segment])], ids])
    return _joined([chains[leaf] for leaf in leaves.tolist()])


def _references(values: ArrayLike, field: str, many: int | None) -> IntColumn:
    """Return a column of segments, -1 for none; ``many``: how many there are, None for its own."""
    column = int_column(values, field, minimum=-1, remedy="a segment's number, or -1 for none")
    limit = len(column) if many is None else many
    if (column >= limit).any():
        row = int(np.argmax(column >= limit))
        raise InputError(
            f"segment {column[row]} does not exist",
            row=row,
            field=field,
            remedy=f"there are {limit} segments, counted from 0; -1 for none",
        )
    return column


def _from_the_roots(parents: IntColumn) -> list[int]:
    """Return all segments, each behind its parent; raises ``InputError`` for a circle."""
    children: dict[int, list[int]] = {}
    for segment, parent in enumerate(parents.tolist()):
        children.setdefault(parent, []).append(segment)
    order = list(children.get(-1, ()))
    for segment in order:  # grows meanwhile
        order += children.get(segment, ())
    if len(order) < len(parents):
        raise _circle(parents, set(order))
    return order


def _circle(parents: IntColumn, reached: set[int]) -> InputError:
    """Return the error that names a circle by its least segment."""
    at = next(segment for segment in range(len(parents)) if segment not in reached)
    seen: dict[int, None] = {}
    while at not in seen:
        seen[at] = None
        at = int(parents[at])
    path = list(seen)
    circle = path[path.index(at) :]
    turn = circle.index(min(circle))
    circle = circle[turn:] + circle[:turn]
    ends = ["..."] if len(circle) > _MOST_SHOWN else [str(circle[0])]
    shown = " -> ".join([*map(str, circle[:_MOST_SHOWN]), *ends])
    return InputError(
        f"the parents run in a circle: {shown}",
        row=circle[0],
        field="parent",
        remedy="a segment comes after its parent; -1 where a path begins",
    )


def _ancestors(parents: IntColumn, leaves: IntColumn) -> set[int]:
    found: set[int] = set()
    for leaf in set(leaves.tolist()):
        at = leaf
        while at >= 0 and at not in found:
            found.add(at)
            at = int(parents[at])
    return found


def blocks_of_documents(
    document: ArrayLike, shared_tokens: ArrayLike, block_tokens: int
) -> tuple[IntColumn, IntColumn]:
    """Return offsets and ids for ``Prefixes.from_documents``."""
    size = whole_number(block_tokens, "block_tokens", minimum=1, maximum=MAX_TOKENS)
    documents = int_column(document, "document", minimum=-1, remedy="a number, or -1 for none")
    given = np.asarray(shared_tokens)
    shared: ArrayLike = np.full(len(documents), given) if given.ndim == 0 else shared_tokens
    tokens = int_column(shared, "shared_tokens", maximum=MAX_TOKENS, length=len(documents))
    counts = np.where(documents < 0, 0, tokens // size)
    which = np.unique(documents, return_inverse=True)[1]
    longest = np.zeros(len(documents), np.int64)
    np.maximum.at(longest, which, counts)
    first = np.cumsum(longest) - longest
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return offsets, np.arange(offsets[-1]) + np.repeat(first[which] - offsets[:-1], counts)


def _joined(chains: list[IntColumn]) -> tuple[IntColumn, IntColumn]:
    offsets = np.cumsum([0, *map(len, chains)], dtype=np.int64)
    return offsets, np.concatenate(chains) if chains else np.zeros(0, np.int64)
