"""Attention over the slots' caches.

All tokens of a step stand in one row: linear layers see no padding. Only here are requests
distinguished. Keys and values go into the caches first; then either one kernel with a length for
each request attends (``flash``), or a round and each chunk of a prompt attend by themselves
(``dense``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from warnings import warn

from orsched.runner.worker.dense import DenseAttention
from orsched.runner.worker.flash import FlashAttention, agrees, serves
from orsched.runner.worker.heads import Heads
from orsched.runner.worker.language_model import Shape
from orsched.runner.worker.slots import Slots

if TYPE_CHECKING:
    import torch

    from orsched.runner.worker.layout import Layout

NAME = "orsched"
"""Under which transformers finds this attention."""


class Kernel(Protocol):
    """Attends, when keys and values of a step are in the caches.

    Attributes:
        any_reach: whether how far a round reaches is no matter to it.
    """

    any_reach: bool

    def begin(self, layout: Layout) -> None:
        """Take what is in the step; what all layers need is made here, or once when asked for."""

    def __call__(self, heads: Heads) -> torch.Tensor:
        """Return [tokens, heads, head size]."""


class SlotAttention:
    """Writes keys and values of a step into the slots' caches, and attends to them.

    Called by each layer of the model, after ``begin``.
    """

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.kernel = _kernel(slots)
        self.places = slots.begins

    def begin(self, layout: Layout) -> None:
        """Take what is in the step."""
        self.places = layout.places
        self.kernel.begin(layout)

    def __call__(self, heads: Heads) -> torch.Tensor:
        """Return [tokens, heads, head size]."""
        keys, values = self.slots.rows[heads.layer]
        keys.index_copy_(0, self.places, heads.key)
        values.index_copy_(0, self.places, heads.value)
        return self.kernel(heads)


def _kernel(slots: Slots) -> Kernel:
    """Return the fast kernel if it is there and attends as the other one does on this device.

    Its operator is not one that torch promises to keep.
    """
    dense = DenseAttention(slots)
    if not serves(slots):
        return dense
    cache = slots.keys[0]
    shape = Shape(1, cache.shape[2], cache.shape[3], 0, 0)
    trial = Slots(shape, 3, 32, cache)
    try:
        fast = agrees(FlashAttention(trial), DenseAttention(trial), trial)
    except (RuntimeError, TypeError) as error:
        warn(f"rounds are slower than they could be: {error}", RuntimeWarning, stacklevel=2)
        return dense
    if not fast:
        warn("rounds are slower: this device's FlashAttention is wrong", RuntimeWarning, 2)
        return dense
    return FlashAttention(slots)


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
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attend as the attention interface of transformers asks: a batch of one row of tokens."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    query, key, value = (x[0].transpose(0, 1) for x in (query, key, value))
    found = module.orsched_attention(Heads(module.layer_idx, query, key, value, scale))
    return found[None], None


def _install_gpt_neo(module: Any, attention: SlotAttention) -> None:
    """GPT-Neo has no interface for attention: it asks one function, which is replaced.

    Its scores are not scaled; every other layer sees a window of tokens only.
    """
    window = module.config.window_size if module.attention_type == "local" else None

    def attend(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, _: Any = None
    ) -> tuple[torch.Tensor, None]:
        query, key, value = (x[0].transpose(0, 1) for x in (query, key, value))
        found = attention(Heads(module.layer_id, query, key, value, 1.0, window))
        return found.transpose(0, 1)[None], None

    module._attn = attend
