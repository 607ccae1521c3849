"""Attention over the slots' caches.

All tokens of a step stand in one row, first one for each slot of a round, then the chunks of
prompts: linear layers see no padding. Only here are they told apart. A round attends from one
token a slot to the slot's cache; the heads that share keys stand in the place of several
queries, so nothing is repeated. Chunks attend in a batch that is padded to the longest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

    from orsched.runner.slots import Slots

NAME = "orsched"
"""Under which transformers finds this attention."""


class Chunks(NamedTuple):
    """Prompt tokens of several requests that a step processes, as tensors on the device.

    Attributes:
        slots: [chunks].
        row, column: [tokens]: place of each token in a batch of chunks.
        slot, position: [tokens]: where each token's keys and values go.
        longest: tokens of the longest chunk.
        reach: tokens in the longest cache after the step.
        positions: [chunks, longest] position of each place in the batch; -1 beyond a chunk's end.
        fresh: whether all chunks are the first of their prompts.
    """

    slots: torch.Tensor
    row: torch.Tensor
    column: torch.Tensor
    slot: torch.Tensor
    position: torch.Tensor
    longest: int
    reach: int
    positions: torch.Tensor
    fresh: bool


class Layout(NamedTuple):
    """What is in a step.

    Attributes:
        rows: slots 0 to ``rows`` - 1 take part in a round, if any.
        reach: tokens in the longest of their caches after the step.
        chunks: the chunks of prompts, if any.
    """

    rows: int
    reach: int
    chunks: Chunks | None


class SlotAttention:
    """Writes keys and values of a step into the slots' caches, and attends to them.

    Called by each layer of the model; ``layout`` is set before each forward pass.
    """

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.layout = Layout(0, 0, None)

    def __call__(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float,
        window: int | None = None,
    ) -> torch.Tensor:
        """Return [tokens, heads, head size] from [heads, tokens, head size] of each."""
        import torch

        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        rows, parts = self.layout.rows, []
        if rows:
            parts.append(self._round(layer, query[:rows], key[:rows], value[:rows], scale, window))
        if self.layout.chunks is not None:
            q, k, v = query[rows:], key[rows:], value[rows:]
            parts.append(self._prompts(layer, self.layout.chunks, (q, k, v), scale, window))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _round(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float,
        window: int | None,
    ) -> torch.Tensor:
        import torch
        from torch.nn.functional import scaled_dot_product_attention as attend

        rows, reach, slots = self.layout.rows, self.layout.reach, self.slots
        keys, values = slots.keys[layer], slots.values[layer]
        each = torch.arange(rows, device=query.device)
        at = slots.lengths[:rows].clamp(max=slots.length - 1)
        keys[each, :, at] = key
        values[each, :, at] = value
        place = torch.arange(reach, device=query.device)
        mask = place <= at[:, None]
        if window is not None:
            mask &= place > at[:, None] - window
        heads, groups = keys.shape[1], query.shape[1] // keys.shape[1]
        found = attend(
            query.reshape(rows, heads, groups, -1),
            keys[:rows, :, :reach],
            values[:rows, :, :reach],
            attn_mask=mask[:, None, None, :].expand(rows, 1, groups, reach),
            scale=scale,
        )
        return found.reshape(rows, heads * groups, -1)

    def _prompts(
        self,
        layer: int,
        chunks: Chunks,
        tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        scale: float,
        window: int | None,
    ) -> torch.Tensor:
        import torch
        from torch.nn.functional import scaled_dot_product_attention as attend

        query, key, value = tensors
        keys, values = self.slots.keys[layer], self.slots.values[layer]
        keys[chunks.slot, :, chunks.position] = key
        values[chunks.slot, :, chunks.position] = value
        size = (len(chunks.slots), chunks.longest)
        batch = query.new_zeros(*size, *query.shape[1:])
        batch[chunks.row, chunks.column] = query
        groups = query.shape[1] // keys.shape[1]
        sources = []
        for cache, new in ((keys, key), (values, value)):
            if chunks.fresh:
                source = new.new_zeros(*size, *new.shape[1:])
                source[chunks.row, chunks.column] = new
                source = source.transpose(1, 2)
            else:
                source = cache[chunks.slots, :, : chunks.reach]
            sources.append(source.repeat_interleave(groups, 1) if groups > 1 else source)
        mask = None
        if window is not None or not chunks.fresh:
            place = torch.arange(sources[0].shape[2], device=query.device)
            at = chunks.positions.clamp(min=0)[:, None, :, None]
            mask = place <= at
            if window is not None:
                mask &= place > at - window
        found = attend(batch.transpose(1, 2), *sources, mask, is_causal=mask is None, scale=scale)
        return found.transpose(1, 2)[chunks.row, chunks.column]


def install(model: Any, attention: SlotAttention) -> None:
    """Let a model's layers attend through ``attention``."""
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
    attend = module.orsched_attention
    return attend(module.layer_idx, query[0], key[0], value[0], scale)[None], None


def _install_gpt_neo(module: Any, attention: SlotAttention) -> None:
    """GPT-Neo has no interface for attention: it asks one function, which is replaced.

    Its scores are not scaled; every other layer sees a window of tokens only.
    """
    window = module.config.window_size if module.attention_type == "local" else None

    def attend(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, _: Any = None
    ) -> tuple[torch.Tensor, None]:
        found = attention(module.layer_id, query[0], key[0], value[0], 1.0, window)
        return found.transpose(0, 1)[None], None

    module._attn = attend
