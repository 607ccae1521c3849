"""Attention over the slots' caches.

All tokens of a step stand in one row: linear layers see no padding. Only here are requests
distinguished. Keys and values go into the caches first; then a round and the chunks of prompts
attend, each by a kernel of its own: the fastest that is there and attends as the dense one does.

The operators and compilers behind the fast ones are not what torch promises to keep, so each is
compared with the dense kernel on a few random tokens of this device before it is trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from warnings import warn

from orsched.runner.worker.kernels import (
    DecodeRounds,
    DenseChunks,
    DenseRounds,
    FlashChunks,
    FlashRounds,
)
from orsched.runner.worker.language_model import Shape
from orsched.runner.worker.layout import (
    Chunk,
    Heads,
    Slots,
    extent_of,
    lay_out,
    pack,
    spans_of,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from orsched.runner.worker.kernels import Kernel
    from orsched.runner.worker.layout import Layout

NAME = "orsched"  # under which transformers finds this attention


class SlotAttention:
    """Writes keys and values of a step into the slots' caches, and attends to them.

    Called by each layer of the model, after ``begin``.
    """

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.rounds, self.chunks = rounds_kernel(slots), chunks_kernel(slots)
        self.places = slots.begins  # [tokens] rows of the caches that the step writes
        self.parts = (False, False)

    def begin(self, layout: Layout) -> None:
        """Take what is in the step."""
        self.places = layout.places
        self.parts = layout.rows > 0, layout.chunks is not None
        for part, kernel in zip(self.parts, (self.rounds, self.chunks), strict=True):
            if part:
                kernel.begin(layout)

    def write(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Put keys and values, [tokens, heads of keys, head size], into the caches of a layer."""
        keys, values = self.slots.rows[layer]
        keys.index_copy_(0, self.places, key)
        values.index_copy_(0, self.places, value)

    def __call__(self, heads: Heads) -> Tensor:
        """Return [tokens, heads, head size]; keys and values of the step are in the caches."""
        import torch

        if all(self.parts):
            return torch.cat([self.rounds(heads), self.chunks(heads)])
        return self.rounds(heads) if self.parts[0] else self.chunks(heads)


def install(model: Any, attention: SlotAttention) -> None:
    """Make a model's layers attend through ``attention``."""
    if model.config.model_type == "gpt_neo":
        for block in model.transformer.h:
            _install_gpt_neo(block.attn.attention, attention)
        return
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _from_transformers)
    model.config._attn_implementation = NAME
    for module in model.modules():
        if getattr(module, "layer_idx", None) is not None:
            module.orsched_attention = attention


def _from_transformers(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend as the attention interface of transformers asks: a batch of one row of tokens."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    query, key, value = (x[0].transpose(0, 1) for x in (query, key, value))
    attention: SlotAttention = module.orsched_attention
    attention.write(module.layer_idx, key, value)
    return attention(Heads(module.layer_idx, query, scale))[None], None


def _install_gpt_neo(module: Any, attention: SlotAttention) -> None:
    """GPT-Neo asks one function, here replaced: unscaled, in every other layer with a window."""
    window = module.config.window_size if module.attention_type == "local" else None

    def attend(query: Tensor, key: Tensor, value: Tensor, _: Any = None) -> tuple[Tensor, None]:
        query, key, value = (x[0].transpose(0, 1) for x in (query, key, value))
        attention.write(module.layer_id, key, value)
        found = attention(Heads(module.layer_id, query, 1.0, window))
        return found.transpose(0, 1)[None], None

    module._attn = attend


TOLERANCE = 0.05
"""Of means of standard normal values: two units in the last place of bfloat16 between 2 and 4."""


def rounds_kernel(slots: Slots) -> Kernel:
    """Return what attends in rounds: our kernel, torch's flash operator, or the dense one."""
    return _first_trusted(slots, (DecodeRounds, FlashRounds), DenseRounds)


def chunks_kernel(slots: Slots) -> Kernel:
    """Return what attends in chunks of prompts: torch's flash operator, or the dense kernel."""
    return _first_trusted(slots, (FlashChunks,), DenseChunks)


def _first_trusted(slots: Slots, fast: tuple[type[Kernel], ...], dense: type[Kernel]) -> Kernel:
    for kernel in fast:
        if not kernel.serves(slots):
            continue
        cache = slots.keys[0]
        trial = Slots(Shape(1, cache.shape[2], cache.shape[3], 0, 0), 4, 96, cache)
        try:
            if agrees(kernel(trial), dense(trial), trial):
                return kernel(slots)
            reason = "it attends otherwise than the dense kernel on this device"
        except Exception as error:  # a compiler's own, or of an operator that changed
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
        warn(f"steps are slower: {kernel.__name__}: {reason}", RuntimeWarning, stacklevel=2)
    return dense(slots)


def agrees(fast: Kernel, dense: Kernel, slots: Slots) -> bool:
    """Return whether two kernels attend alike, with and without a window, in every part of steps.

    ``slots``: four, of 96 tokens; what is in them is overwritten.
    """
    import torch

    cache = slots.keys[0]
    numbers = torch.Generator().manual_seed(0)
    for each in slots.rows[0]:
        each.copy_(torch.randn(each.shape, generator=numbers))
    for layout in _trials(slots):
        size = (len(layout.places), 4 * cache.shape[2], cache.shape[3])
        query = torch.randn(size, generator=numbers).to(cache)
        if not _has_part(dense, layout):
            continue
        found = []
        for kernel in (fast, dense):
            kernel.begin(layout)
            for window in (None, 4, 40):
                heads = Heads(0, query, cache.shape[3] ** -0.5, window)
                found.append(kernel(heads)[: _counted(dense, layout)].float())
        half = len(found) // 2
        worst = max(
            float((one - other).abs().max())
            for one, other in zip(found[:half], found[half:], strict=True)
        )
        if not worst <= TOLERANCE:  # so that NaN is refused
            return False
    return True


def _has_part(dense: Kernel, layout: Layout) -> bool:
    return layout.rows > 0 if isinstance(dense, DenseRounds) else layout.chunks is not None


def _counted(dense: Kernel, layout: Layout) -> int | None:
    """Return how many rows are read: the last one of a trial's round is unused."""
    return layout.rows - 1 if isinstance(dense, DenseRounds) else None


def _trials(slots: Slots) -> Iterator[Layout]:
    """Yield a round over scattered slots and the unused one, with new and continued chunks."""
    import torch

    device = slots.lengths.device
    lengths = torch.tensor([25, 13, 90, 0, 0])
    slots.lengths.copy_(lengths)
    slots.order.copy_(torch.tensor([2, 0, slots.unused, slots.unused]))
    yield lay_out(slots, 3, 96)
    chunks = [Chunk(3, 0, [0] * 70, True), Chunk(1, 13, [0] * 6, True)]
    packed = torch.from_numpy(pack(slots, chunks, extent_of(chunks))).to(device)
    inputs = unpack(packed, extent_of(chunks), spans_of(chunks))
    yield lay_out(slots, 3, 96, None, inputs)
