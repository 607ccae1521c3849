"""What is in a step: where each token stands, and where its keys and values go."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from numpy.typing import NDArray

    from orsched.runner.worker.language_model import Shape


class Slots:
    """Caches of ``count`` slots for ``length`` tokens each, allocated once.

    What a slot holds beyond its length is garbage: it is written over before it is read. One more
    slot stands for no request: it has one row in the caches, which is never read, and takes what
    rows without a request write.

    Attributes:
        keys, values: for each layer, [slots, tokens, heads, head size].
        rows: for each layer, both as [slots * tokens + 1, heads, head size]; the last is unused.
        begins: first of these rows of each slot, int64, on the device; the last for the unused one.
        lengths: tokens in the cache of each slot, int64, on the device; the unused slot has none.
        tokens: the token that a slot processes next, int64, on the device.
        order: the slots of a round's rows, int64, on the device: those that yield a token, then
            the unused one.
    """

    def __init__(self, shape: Shape, count: int, length: int, like: torch.Tensor) -> None:
        import torch

        size = (count, length, shape.kv_heads, shape.head_dim)
        self.count, self.length, self.unread = count, length, count * length
        self.unused = count  # the number of that slot, ``count``
        # zeros, since a masked weight of 0 times garbage is NaN where the garbage is
        self.rows = [
            (like.new_zeros(self.unread + 1, *size[2:]), like.new_zeros(self.unread + 1, *size[2:]))
            for _ in range(shape.layers)
        ]
        self.keys = [keys[: self.unread].view(size) for keys, _ in self.rows]
        self.values = [values[: self.unread].view(size) for _, values in self.rows]
        numbers = torch.arange(count + 1, device=like.device)
        self.begins = numbers * length
        self.lengths = torch.zeros_like(numbers)
        self.tokens = torch.zeros_like(numbers)
        self.one = (
            numbers < count
        ).long()  # 1 for each slot, 0 for the unused slot, int64, on the device
        self.order = torch.full_like(numbers[:count], self.unused)

    def bytes(self) -> int:
        """Return the memory that the caches take."""
        return sum(keys.nbytes + values.nbytes for keys, values in self.rows)


class Heads(NamedTuple):
    """Queries of a step's tokens in a layer; the keys and values are in the caches already."""

    layer: int  # its number
    query: torch.Tensor  # [tokens, heads, head size]
    scale: float  # of the scores
    window: int | None = None  # tokens that each one sees, itself among them; None: all before it


class Chunk(NamedTuple):
    """Tokens of a request that a step processes.

    ``loads`` are copied from the prefix store into the slot before the step, ``saves`` back after
    it, or before any other chunk where there are no tokens.
    """

    slot: int  # where the request is
    start: int  # tokens of it that are in the slot's cache already
    tokens: Sequence[int]  # what to process
    yields: bool  # whether the prompt ends here and its prefill yields the first token
    feeds: int | None = None  # the prompt's last token, where a round is to process it and yield
    loads: Sequence[tuple[int, int]] = ()  # blocks of the slot, their rows in the store
    saves: Sequence[tuple[int, int]] = ()  # blocks of the slot, their rows in the store
    whole: Sequence[int] = ()  # in a stay's first chunk: prompt and what was yielded before it

    @property
    def only_saves(self) -> bool:
        """Whether nothing is processed: blocks are stored of a request that leaves."""
        return not self.tokens and self.feeds is None


REACH_STEP = 64  # rounds attend to multiples of this many tokens, so that shapes seldom change


class Run(NamedTuple):
    """Rows of a round whose slots are neighbours: ``size`` rows from ``row`` on."""

    row: int  # the first one
    slot: int  # of the first one
    size: int  # how many rows, and slots
    reach: int  # no cache of these slots holds more tokens after the step


class Layout(NamedTuple):
    """The tokens of a step in a row: one of each request of a round, then those of the chunks."""

    rows: int  # the first rows are a round's, if any
    reach: int  # no cache of a round's slots holds more tokens after the step
    slots: torch.Tensor  # [rows] of a round's rows, on the device
    runs: tuple[Run, ...] | None  # the host's ``slots``; None in a graph, which serves any
    chunks: Inputs | None  # of prompts, if any
    positions: torch.Tensor  # [tokens] of each token in its request, on the device
    places: torch.Tensor  # [tokens] row of the caches that takes its keys and values, on the device


def lay_out(
    slots: Slots,
    rows: int,
    reach: int,
    runs: tuple[Run, ...] | None = None,
    chunks: Inputs | None = None,
) -> Layout:
    """Return a step's layout from the device alone; its round is the first ``slots.order``."""
    import torch

    order = slots.order[:rows]
    positions = slots.lengths[order]
    places = slots.begins[order] + positions
    if chunks is not None:
        positions = torch.cat([positions, chunks.positions]) if rows else chunks.positions
        places = torch.cat([places, chunks.places]) if rows else chunks.places
    return Layout(rows, reach, order, runs, chunks, positions, places)


def runs_of(active: Sequence[int], lengths: Sequence[int], most: int) -> tuple[Run, ...]:
    """Return the runs of neighbours among slots in ascending order.

    ``lengths`` are tokens in the caches before the step, ``most`` is what a slot holds.
    """
    runs: list[Run] = []
    for row, slot in enumerate(active):
        reach = min(most, -(-(lengths[slot] + 1) // REACH_STEP) * REACH_STEP)
        last = runs[-1] if runs else None
        if last is not None and last.slot + last.size == slot:
            runs[-1] = Run(last.row, last.slot, last.size + 1, max(last.reach, reach))
        else:
            runs.append(Run(row, slot, 1, reach))
    return tuple(runs)


class Span(NamedTuple):
    """A chunk of a prompt: ``size`` tokens of the request in ``slot``, from token ``start`` on."""

    slot: int
    start: int
    size: int


class Extent(NamedTuple):
    """How much room a step's chunks take."""

    tokens: int  # of all chunks
    prompts: int  # the number of chunks
    yields: int  # of how many chunks logits are computed

    def numbers(self) -> int:
        """Return how many numbers describe the chunks."""
        return sum(self.sizes())

    def sizes(self) -> tuple[int, ...]:
        """Return how many numbers each part of ``Inputs`` has."""
        tokens, prompts, yields = self
        return tokens, tokens, tokens, tokens, prompts, prompts, prompts + 1, yields, yields


class Inputs(NamedTuple):
    """The chunks of a step, on the device, int64."""

    tokens: torch.Tensor  # [tokens] what the step processes
    positions: torch.Tensor  # [tokens] of each token in its request
    places: torch.Tensor  # [tokens] row of the caches that takes its keys and values
    owners: torch.Tensor  # [tokens] slot whose cache the token sees
    slots: torch.Tensor  # [prompts] of the chunks
    ends: torch.Tensor  # [prompts] tokens in their caches after the step
    queries: torch.Tensor  # [prompts + 1] where chunks begin among the tokens, and the last ends
    last: torch.Tensor  # [yields] tokens whose logits are wanted
    yielding: (
        torch.Tensor
    )  # [yields] slots that get the token which follows; the unused slot for none
    spans: tuple[Span, ...] | None  # the host's chunks; None in a graph, which serves any


def extent_of(chunks: Sequence[Chunk]) -> Extent:
    """Return the room that chunks take without padding."""
    return Extent(
        sum(len(each.tokens) for each in chunks), len(chunks), sum(each.yields for each in chunks)
    )


def spans_of(chunks: Sequence[Chunk]) -> tuple[Span, ...]:
    """Return where chunks lie."""
    return tuple(Span(each.slot, each.start, len(each.tokens)) for each in chunks)


def pack(slots: Slots, chunks: Sequence[Chunk], extent: Extent) -> NDArray[np.int64]:
    """Return the numbers of ``Inputs``, one after the other, of chunks with tokens, at least one.

    ``extent`` is at least what they take; all prompts yield in a padded one.
    """
    slot, start, size = np.array(spans_of(chunks), np.int64).T
    after = np.cumsum(size)
    tokens = int(after[-1])
    positions = np.arange(tokens) + np.repeat(start - (after - size), size)
    owners = np.repeat(slot, size)
    yields = np.array([each.yields for each in chunks], bool)
    if extent.yields == int(yields.sum()):
        last, yielding = after[yields] - 1, slot[yields]
    else:
        last, yielding = after - 1, np.where(yields, slot, slots.unused)
    free, none = extent.tokens - tokens, extent.prompts - len(chunks)
    fewer = extent.yields - len(last)
    parts: list[tuple[NDArray[np.int64], int, int]] = [
        (np.concatenate([np.asarray(each.tokens, np.int64) for each in chunks]), free, 0),
        (positions, free, 0),
        (positions + owners * slots.length, free, slots.unread),
        (owners, free, 0),
        (slot, none, slots.unused),
        (start + size, none, 0),
        (np.concatenate([[0], after]), none, tokens),
        (last, fewer, 0),
        (yielding, fewer, slots.unused),
    ]
    return np.concatenate(
        [np.pad(part, (0, more), constant_values=x) if more else part for part, more, x in parts]
    )


def unpack(numbers: torch.Tensor, extent: Extent, spans: tuple[Span, ...] | None = None) -> Inputs:
    """Return views of the packed numbers."""
    parts = numbers[: extent.numbers()].split(extent.sizes())
    tokens, positions, places, owners, slots, ends, queries, last, yielding = parts
    return Inputs(tokens, positions, places, owners, slots, ends, queries, last, yielding, spans)


def nothing(slots: Slots, extent: Extent) -> NDArray[np.int64]:
    """Return packed numbers of a step whose tokens are no request's: it changes nothing."""
    values = (0, 0, slots.unread, 0, slots.unused, 0, 0, 0, slots.unused)
    return np.repeat(np.array(values, np.int64), extent.sizes())
