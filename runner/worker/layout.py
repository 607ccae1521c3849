"""What is in a step: where each token stands, and where its keys and values go."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from orsched.runner.worker.chunk import Chunk
    from orsched.runner.worker.slots import Slots


class Span(NamedTuple):
    """A chunk of a prompt: ``size`` tokens of the request in ``slot``, from token ``start`` on."""

    slot: int
    start: int
    size: int


class Layout(NamedTuple):
    """The tokens of a step, in one row: one for each slot of a round, then those of the chunks.

    Attributes:
        rows: slots 0 to ``rows`` - 1 take part in a round, if any.
        reach: no cache of these slots holds more tokens after the step.
        spans: the chunks of prompts, if any.
        positions: [tokens] of each token in its request, on the device.
        places: [tokens] row of the caches that takes its keys and values, on the device.
    """

    rows: int
    reach: int
    spans: tuple[Span, ...]
    positions: torch.Tensor
    places: torch.Tensor


class Placed(NamedTuple):
    """What a step with chunks needs on the device.

    Attributes:
        layout: for the attention.
        tokens: [tokens] what the step processes.
        slots, ends: [chunks] the chunks' slots, and the tokens in their caches after the step.
        yielding: [yields] slots of the chunks from which a token follows.
        last: [rows + yields] tokens of the step whose logits are wanted.
    """

    layout: Layout
    tokens: torch.Tensor
    slots: torch.Tensor
    ends: torch.Tensor
    yielding: torch.Tensor
    last: torch.Tensor


def round_layout(slots: Slots, rows: int, reach: int) -> Layout:
    """Return the layout of a round, from what is on the device only.

    A slot that yields nothing takes part without effect, even if it is full, or a chunk of its
    prompt is in the same step.
    """
    positions = slots.lengths[:rows].clamp(max=slots.length - 1)
    places = slots.begins[:rows] + positions
    places = (places - slots.unread) * slots.active[:rows] + slots.unread
    return Layout(rows, reach, (), positions, places)


def place(
    slots: Slots,
    chunks: Sequence[Chunk],
    rows: int,
    reach: int,
    to_device: Callable[[np.ndarray], torch.Tensor],
) -> Placed:
    """Lay out chunks, beside a round if there are rows; one transfer to the device."""
    import torch

    spans = tuple(Span(each.slot, each.start, len(each.tokens)) for each in chunks)
    slot, start, size = np.array(spans, np.int64).reshape(-1, 3).T
    after = np.cumsum(size)
    positions = np.arange(after[-1]) + np.repeat(start - (after - size), size)
    yields = np.array([each.yields for each in chunks], bool)
    parts = (
        np.concatenate([np.asarray(each.tokens, np.int64) for each in chunks]),
        positions,
        positions + np.repeat(slot * slots.length, size),
        slot,
        start + size,
        slot[yields],
        np.concatenate([np.arange(rows), rows + after[yields] - 1]),
    )
    moved = to_device(np.concatenate(parts)).split([len(part) for part in parts])
    tokens, positions_, places, slot_, ends, yielding, last = moved
    if rows:
        round_ = round_layout(slots, rows, reach)
        tokens = torch.cat([slots.tokens[:rows], tokens])
        positions_ = torch.cat([round_.positions, positions_])
        places = torch.cat([round_.places, places])
    layout = Layout(rows, reach, spans, positions_, places)
    return Placed(layout, tokens, slot_, ends, yielding, last)
