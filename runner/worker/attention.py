"""Attention over the slots' caches.

All tokens of a step stand in one row: linear layers see no padding. Only here are requests
distinguished. Keys and values go into the caches first; then a round and the chunks of prompts
attend, each by a kernel of its own (``kernels``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.runner.worker.heads import Heads
from orsched.runner.worker.kernels import chunks_kernel, rounds_kernel

if TYPE_CHECKING:
    from torch import Tensor

    from orsched.runner.worker.layout import Layout
    from orsched.runner.worker.slots import Slots

NAME = "orsched"
"""Under which transformers finds this attention."""


class SlotAttention:
    """Writes keys and values of a step into the slots' caches, and attends to them.

    Called by each layer of the model, after ``begin``.

    Attributes:
        rounds, chunks: the kernels.
        places: [tokens] rows of the caches that the step writes.
    """

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.rounds, self.chunks = rounds_kernel(slots), chunks_kernel(slots)
        self.places = slots.begins
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
    """GPT-Neo has no interface for attention: it asks one function, which is replaced.

    Its scores are not scaled; every other layer sees a window of tokens only.
    """
    window = module.config.window_size if module.attention_type == "local" else None

    def attend(query: Tensor, key: Tensor, value: Tensor, _: Any = None) -> tuple[Tensor, None]:
        query, key, value = (x[0].transpose(0, 1) for x in (query, key, value))
        attention.write(module.layer_id, key, value)
        found = attention(Heads(module.layer_id, query, 1.0, window))
        return found.transpose(0, 1)[None], None

    module._attn = attend
