"""Attention by ``scaled_dot_product_attention``: a round in one call, each chunk in its own.

A round attends from one token a slot to the slots' caches up to ``reach``; the heads that share
keys stand in the place of several queries, so nothing is repeated. A chunk attends to views of its
own tokens or of its slot's cache: nothing is padded, nothing copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from orsched.runner.worker.heads import Heads
    from orsched.runner.worker.layout import Layout, Span
    from orsched.runner.worker.slots import Slots


class DenseAttention:
    """Serves any device and any type; a mask is made once a step, not in every layer."""

    any_reach = False

    def __init__(self, slots: Slots) -> None:
        import torch

        self.slots = slots
        self.columns = torch.arange(slots.length, device=slots.lengths.device)
        self.layout: Layout
        self.masks: dict[tuple[Span | None, int | None], torch.Tensor] = {}

    def begin(self, layout: Layout) -> None:
        """Take what is in the step."""
        self.layout = layout
        self.masks = {}

    def __call__(self, heads: Heads) -> torch.Tensor:
        """Return [tokens, heads, head size]."""
        import torch

        at, parts = self.layout.rows, []
        if at:
            parts.append(self._round(heads))
        for span in self.layout.spans:
            parts.append(self._chunk(span, heads, slice(at, at + span.size)))
            at += span.size
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _round(self, heads: Heads) -> torch.Tensor:
        """Attend from the first rows, one for each slot, to the slots' caches."""
        from torch.nn.functional import scaled_dot_product_attention as attend

        rows, reach = self.layout.rows, self.layout.reach
        keys, values = (x[heads.layer][:rows, :reach] for x in (self.slots.keys, self.slots.values))
        query = heads.query[:rows]
        found = attend(
            query.unflatten(1, (keys.shape[2], -1)),  # [rows, heads of keys, queries, head size]
            keys.transpose(1, 2),
            values.transpose(1, 2),
            attn_mask=self._mask(None, heads.window)[:, None, None],
            scale=heads.scale,
        )
        return found.flatten(1, 2)

    def _chunk(self, span: Span, heads: Heads, own: slice) -> torch.Tensor:
        """Attend from the rows of a chunk to its own tokens, or to its slot's cache."""
        from torch.nn.functional import scaled_dot_product_attention as attend

        key, value, window = heads.key[own], heads.value[own], heads.window
        if span.start:
            cache = slice(0, span.start + span.size)
            key, value = (
                x[heads.layer][span.slot, cache] for x in (self.slots.keys, self.slots.values)
            )
        plain = not span.start and (window is None or span.size <= window)
        query, key, value = (x.transpose(0, 1)[None] for x in (heads.query[own], key, value))
        found = attend(
            query,
            key,
            value,
            attn_mask=None if plain else self._mask(span, window),
            is_causal=plain,
            scale=heads.scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return found[0].transpose(0, 1)

    def _mask(self, span: Span | None, window: int | None) -> torch.Tensor:
        """Return what is added to the scores: [queries, tokens in the cache]."""
        if (span, window) in self.masks:
            return self.masks[span, window]
        if span is None:
            at, reach = self.layout.positions[: self.layout.rows, None], self.layout.reach
        else:
            reach = span.start + span.size
            at = self.columns[span.start : reach, None]
        place = self.columns[:reach]
        hidden = place > at
        if window is not None:
            hidden |= place <= at - window
        mask = self.slots.keys[0].new_zeros(hidden.shape).masked_fill_(hidden, float("-inf"))
        self.masks[span, window] = mask
        return mask
