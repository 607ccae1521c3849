"""Attention by ``scaled_dot_product_attention``: a round in few calls, each chunk in its own.

A round attends from one token a slot to the slots' caches; the heads that share keys stand in the
place of several queries, so nothing is repeated. Slots that are neighbours attend in one call, to
views of the caches as far as the longest of them; in a graph, which serves any slots, their caches
are copied together first. A chunk attends to a view of its slot's cache: nothing is padded, nothing
copied; in a graph each of its tokens attends like a request of a round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    import torch
    from torch import Tensor

    from orsched.runner.worker.heads import Heads
    from orsched.runner.worker.inputs import Span
    from orsched.runner.worker.layout import Layout, Run
    from orsched.runner.worker.slots import Slots

COPIED_BYTES = 192 << 10
"""What is copied in the time of a call: many scattered caches are copied, few get one each."""


class _Dense:
    """What rounds and chunks share: masks that are made once a step, not in every layer."""

    any_reach = False

    def __init__(self, slots: Slots) -> None:
        import torch

        self.slots = slots
        self.columns = torch.arange(slots.length, device=slots.lengths.device)
        self.layout: Layout
        self.masks: dict[Hashable, torch.Tensor] = {}

    def begin(self, layout: Layout) -> None:
        """Take what is in the step."""
        self.layout = layout
        self.masks = {}

    def _mask(self, key: Hashable, at: Tensor, reach: int, window: int | None) -> Tensor:
        """Return what is added to the scores of tokens at some positions: [tokens, reach]."""
        if (key, window) not in self.masks:
            place, at = self.columns[:reach], at[:, None]
            hidden = place > at
            if window is not None:
                hidden |= place <= at - window
            like = self.slots.keys[0]
            mask = like.new_zeros(hidden.shape).masked_fill_(hidden, float("-inf"))
            self.masks[key, window] = mask
        return self.masks[key, window]

    def _each(
        self, heads: Heads, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor
    ) -> Tensor:
        """Attend from single tokens, each to keys of its own: [tokens, reach, heads, head size]."""
        from torch.nn.functional import scaled_dot_product_attention as attend

        found = attend(
            query.unflatten(1, (keys.shape[2], -1)),  # [tokens, heads of keys, queries, head size]
            keys.transpose(1, 2),
            values.transpose(1, 2),
            attn_mask=mask[:, None, None],
            scale=heads.scale,
        )
        return found.flatten(1, 2)


class DenseRounds(_Dense):
    """Serves rounds on any device and in any type."""

    def __call__(self, heads: Heads) -> Tensor:
        """Return [rows, heads, head size]."""
        import torch

        layout = self.layout
        runs = layout.runs
        if runs is None or self._bytes() < COPIED_BYTES * (len(runs) - 1):
            return self._copied(heads)
        parts = [self._run(run, heads) for run in runs]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _bytes(self) -> int:
        """Return how much the keys and values of a layer take that the round reads."""
        token: int = self.slots.keys[0][0, 0].nbytes
        return 2 * self.layout.rows * self.layout.reach * token

    def _copied(self, heads: Heads) -> Tensor:
        layout, rows = self.layout, self.layout.rows
        slots = layout.slots.clamp(max=self.slots.count - 1)  # nobody reads any slot's first key
        keys, values = (
            x[heads.layer][:, : layout.reach][slots] for x in (self.slots.keys, self.slots.values)
        )
        mask = self._mask(None, layout.positions[:rows], layout.reach, heads.window)
        return self._each(heads, heads.query[:rows], keys, values, mask)

    def _run(self, run: Run, heads: Heads) -> Tensor:
        rows = slice(run.row, run.row + run.size)
        keys, values = (
            x[heads.layer][run.slot : run.slot + run.size, : run.reach]
            for x in (self.slots.keys, self.slots.values)
        )
        mask = self._mask(run, self.layout.positions[rows], run.reach, heads.window)
        return self._each(heads, heads.query[rows], keys, values, mask)


class DenseChunks(_Dense):
    """Serves chunks of prompts on any device and in any type."""

    def __call__(self, heads: Heads) -> Tensor:
        """Return [tokens of chunks, heads, head size]."""
        import torch

        chunks, at = self.layout.chunks, self.layout.rows
        assert chunks is not None
        if chunks.spans is None:
            return self._tokens(heads)
        parts = []
        for span in chunks.spans:
            parts.append(self._chunk(span, heads, heads.query[at : at + span.size]))
            at += span.size
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _tokens(self, heads: Heads) -> Tensor:
        chunks, rows = self.layout.chunks, self.layout.rows
        assert chunks is not None
        keys, values = (x[heads.layer][chunks.owners] for x in (self.slots.keys, self.slots.values))
        mask = self._mask(None, chunks.positions, self.slots.length, heads.window)
        return self._each(heads, heads.query[rows:], keys, values, mask)

    def _chunk(self, span: Span, heads: Heads, query: Tensor) -> Tensor:
        """Attend from the tokens of a chunk to its slot's cache."""
        from torch.nn.functional import scaled_dot_product_attention as attend

        reach, window = span.start + span.size, heads.window
        key, value = (
            x[heads.layer][span.slot, :reach] for x in (self.slots.keys, self.slots.values)
        )
        plain = not span.start and (window is None or span.size <= window)
        mask = None
        if not plain:
            mask = self._mask(span, self.columns[span.start : reach], reach, window)
        query, key, value = (x.transpose(0, 1)[None] for x in (query, key, value))
        found = attend(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=plain,
            scale=heads.scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return found[0].transpose(0, 1)
