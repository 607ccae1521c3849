"""Prefixes: which blocks of their prompts requests share, as hash chains and as a tree."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False)
class Prefixes:
    """Cache-block identifiers of each prompt: equal identifiers mean an equal prefix.

    ``ids[offsets[r]:offsets[r + 1]]`` are the blocks of request r (n + 1 offsets, first 0); each
    block stands for ``block_tokens`` tokens and all before: a hash chain. So an identifier always
    has the same place, behind the same one. The last one of a request may stand for fewer
    tokens; what is behind the last one no other request shares. Raises ``InputError`` if offsets,
    identifiers or their chains are wrong; the row is the request.
    """

    offsets: IntColumn
    ids: IntColumn
    block_tokens: int

    def __post_init__(self) -> None:
        ids = int_column(self.ids, "prefix_ids")
        offsets = int_column(self.offsets, "prefix_offsets", maximum=len(ids))
        if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(ids):
            raise InputError(
                f"must run from 0 to the number of ids, {len(ids)}",
                field="prefix_offsets",
                remedy="give one offset per request and one more",
            )
        if (np.diff(offsets) < 0).any():
            row = int(np.argmax(np.diff(offsets) < 0))
            raise InputError(
                "offsets must not fall", row=row, field="prefix_offsets", remedy="sort them"
            )
        size = whole_number(self.block_tokens, "prefix_block_tokens", minimum=1, maximum=MAX_TOKENS)
        object.__setattr__(self, "block_tokens", size)
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "offsets", offsets)
        self._require_chains()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Prefixes):
            return NotImplemented
        return (
            self.block_tokens == other.block_tokens
            and bool(np.array_equal(self.offsets, other.offsets))
            and bool(np.array_equal(self.ids, other.ids))
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def counts(self) -> IntColumn:
        """Identifiers of each request."""
        return np.diff(self.offsets)

    def of(self, request: int) -> IntColumn:
        """Return the identifiers of a request."""
        return self.ids[self.offsets[request] : self.offsets[request + 1]]

    def _require_chains(self) -> None:
        """Raise ``InputError`` unless each identifier always follows the same one, or none.

        Then it also has the same place everywhere, and no request has it twice: the chain
        before it is the same, back to the start.
        """
        if len(self.ids) == 0:
            return
        before = np.empty_like(self.ids)
        before[1:] = self.ids[:-1]
        starts = self.offsets[:-1]
        before[starts[self.counts > 0]] = -1
        _, first, which = np.unique(self.ids, return_index=True, return_inverse=True)
        wrong = before != before[first[which]]
        if wrong.any():
            at = int(np.argmax(wrong))
            raise self._disagreement(at, int(first[which[at]]), before)

    def _disagreement(self, at: int, known: int, before: IntColumn) -> InputError:
        row, other = (int(np.searchsorted(self.offsets, x, side="right")) - 1 for x in (at, known))
        place, there = at - int(self.offsets[row]), known - int(self.offsets[other])
        name = int(self.ids[at])
        remedy = "equal ids stand for equal tokens up to and with their block: give each block one"
        if row == other:
            return InputError(
                f"the id {name} appears twice, as blocks {there} and {place}",
                row=row,
                field="prefix_ids",
                remedy=remedy,
            )
        here, was = (_behind(int(before[x]), y) for x, y in ((at, place), (known, there)))
        return InputError(
            f"hash chains disagree: the id {name} is {here}, in request {other} {was}",
            row=row,
            field="prefix_ids",
            remedy=remedy,
        )

    def require_within(self, prompt_tokens: IntColumn) -> None:
        """Raise ``InputError`` where a request has more blocks than its prompt."""
        most = -(-prompt_tokens // self.block_tokens)
        if (self.counts > most).any():
            row = int(np.argmax(self.counts > most))
            raise InputError(
                f"the prefix is longer than the prompt: {self.counts[row]} blocks of "
                f"{self.block_tokens} tokens, the prompt of {prompt_tokens[row]} has {most[row]}",
                row=row,
                field="prefix_ids",
                remedy="drop the last ids, or correct prefix_block_tokens",
            )

    def take(self, rows: IntColumn) -> Prefixes:
        """Return the prefixes of some requests, in the order of ``rows``."""
        counts = self.counts[rows]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], counts)
        return Prefixes(offsets, self.ids[places], self.block_tokens)

    def refined(self, block_tokens: int, prompt_tokens: ArrayLike | None = None) -> Prefixes:
        """Return the same prefixes in smaller blocks, of a size that divides the present one.

        Each identifier becomes ``self.block_tokens / block_tokens`` new ones. ``prompt_tokens``,
        one number a request, cuts what a last block that stands for fewer tokens has too many of.
        """
        size = whole_number(block_tokens, "block_tokens", minimum=1, maximum=MAX_TOKENS)
        parts, rest = divmod(self.block_tokens, size)
        if rest:
            raise InputError(
                f"{size} does not divide the {self.block_tokens} tokens of a block",
                field="block_tokens",
                remedy="give a divisor",
            )
        counts = self.counts * parts
        if prompt_tokens is not None:
            prompts = int_column(prompt_tokens, "prompt_tokens", length=len(self))
            counts = np.minimum(counts, -(-prompts // size))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        whole, part = np.divmod(place, parts)
        number = np.unique(self.ids, return_inverse=True)[1]
        old = np.repeat(self.offsets[:-1], counts) + whole
        return Prefixes(offsets, number[old] * parts + part, size)

    @classmethod
    def from_parents(
        cls,
        parent: ArrayLike,
        tokens: ArrayLike,
        leaf_of_request: ArrayLike,
        block_tokens: int,
    ) -> Prefixes:
        """Return the prefixes of requests whose prompts begin with a path of a tree of segments.

        Args:
            parent: segment before each segment, -1 for none.
            tokens: length of each segment, at least 0.
            leaf_of_request: last segment of each request's prefix, -1 for none.
            block_tokens: tokens a block. A block belongs to the segment of its last token; one
                that the path does not fill belongs to no segment.

        Raises:
            InputError: parents that do not exist or run in a circle, and as the class; the row of
                ``parent`` and ``tokens`` is the segment.
        """

        return cls(*blocks_of_paths(parent, tokens, leaf_of_request, block_tokens), block_tokens)

    @classmethod
    def from_documents(
        cls, document: ArrayLike, shared_tokens: ArrayLike, block_tokens: int
    ) -> Prefixes:
        """Return the prefixes of requests whose prompts begin with (the begin of) a document.

        Args:
            document: number of each request's document, -1 for none.
            shared_tokens: how many tokens of it each prompt begins with: one number for all, or
                one a request.
            block_tokens: tokens a block; only full blocks are shared.
        """

        return cls(*blocks_of_documents(document, shared_tokens, block_tokens), block_tokens)


def _behind(before: int, place: int) -> str:
    return f"block {place}, " + ("the first one" if before < 0 else f"behind {before}")
