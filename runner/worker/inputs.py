"""What a step with chunks of prompts needs on the device, as one piece of memory.

The numbers of tokens and of prompts may be rounded up, so that one graph serves many steps: tokens
that are no request's stand at the end and go to nobody's slot, prompts that are none have no
tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from numpy.typing import NDArray

    from orsched.runner.worker.chunk import Chunk
    from orsched.runner.worker.slots import Slots


class Span(NamedTuple):
    """A chunk of a prompt: ``size`` tokens of the request in ``slot``, from token ``start`` on."""

    slot: int
    start: int
    size: int


class Extent(NamedTuple):
    """How much room a step's chunks take.

    Attributes:
        tokens: of all chunks.
        prompts: the number of chunks.
        yields: of how many chunks logits are computed.
    """

    tokens: int
    prompts: int
    yields: int

    def numbers(self) -> int:
        """Return how many numbers describe the chunks."""
        return sum(self.sizes())

    def sizes(self) -> tuple[int, ...]:
        """Return how many numbers each part of ``Inputs`` has."""
        tokens, prompts, yields = self
        return tokens, tokens, tokens, tokens, prompts, prompts, prompts + 1, yields, yields


class Inputs(NamedTuple):
    """The chunks of a step, on the device, int64.

    Attributes:
        tokens: [tokens] what the step processes.
        positions: [tokens] of each token in its request.
        places: [tokens] row of the caches that takes its keys and values.
        owners: [tokens] slot whose cache the token sees.
        slots, ends: [prompts] the chunks' slots, and the tokens in their caches after the step.
        queries: [prompts + 1] where each chunk begins among the tokens; the last ends there.
        last: [yields] tokens whose logits are wanted.
        yielding: [yields] slots that get the token which follows; nobody's for none.
        spans: the chunks as the host knows them; None in a graph, which serves any.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    places: torch.Tensor
    owners: torch.Tensor
    slots: torch.Tensor
    ends: torch.Tensor
    queries: torch.Tensor
    last: torch.Tensor
    yielding: torch.Tensor
    spans: tuple[Span, ...] | None


def extent_of(chunks: Sequence[Chunk]) -> Extent:
    """Return the room that chunks take without padding."""
    return Extent(
        sum(len(each.tokens) for each in chunks), len(chunks), sum(each.yields for each in chunks)
    )


def spans_of(chunks: Sequence[Chunk]) -> tuple[Span, ...]:
    """Return where chunks lie."""
    return tuple(Span(each.slot, each.start, len(each.tokens)) for each in chunks)


def pack(slots: Slots, chunks: Sequence[Chunk], extent: Extent) -> NDArray[np.int64]:
    """Return the numbers of ``Inputs``, one after the other; all prompts yield in a padded extent.

    Args:
        slots: of the worker.
        chunks: with tokens, at least one.
        extent: at least what they take.
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
        last, yielding = after - 1, np.where(yields, slot, slots.nobody)
    free, none = extent.tokens - tokens, extent.prompts - len(chunks)
    fewer = extent.yields - len(last)
    parts: list[tuple[NDArray[np.int64], int, int]] = [
        (np.concatenate([np.asarray(each.tokens, np.int64) for each in chunks]), free, 0),
        (positions, free, 0),
        (positions + owners * slots.length, free, slots.unread),
        (owners, free, 0),
        (slot, none, slots.nobody),
        (start + size, none, 0),
        (np.concatenate([[0], after]), none, tokens),
        (last, fewer, 0),
        (yielding, fewer, slots.nobody),
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
    """Return packed numbers of a step whose tokens are nobody's: it changes nothing."""
    values = (0, 0, slots.unread, 0, slots.nobody, 0, 0, 0, slots.nobody)
    return np.repeat(np.array(values, np.int64), extent.sizes())
