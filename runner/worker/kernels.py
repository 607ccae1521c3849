"""Kernels of attention: what attends in rounds, and in chunks of prompts.

``Dense...`` serve on any device, by ``scaled_dot_product_attention``: a round in few calls, each
chunk in its own. A round attends from one token a slot to the slots' caches; the heads that share
keys stand in the place of several queries, so nothing is repeated. Slots that are neighbours attend
in one call, to views of the caches as far as the longest of them; in a graph, which serves any
slots, their caches are copied together first. A chunk attends to a view of its slot's cache:
nothing is padded, nothing copied; in a graph each of its tokens attends like a request of a round.

``Flash...`` are torch's FlashAttention: one call for all requests of a round or of chunks. Each
request's queries lie in the step's row of tokens, its keys in the rows of the caches that begin
where its slot does, as many as it has. So nothing is padded, masked or repeated, and a short
request beside a long one costs what it costs alone. Rounds and chunks are calls of their own: with
queries of one token only, the heads that share keys read them once.
``scaled_dot_product_attention`` does not reach these arguments; the operator is the one behind it,
and behind torch's attention for sequences of several lengths.

``DecodeRounds`` is our own kernel (``triton_kernels.decode``).
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable

    import torch
    from torch import Tensor

    from orsched.runner.worker.layout import Heads, Layout, Run, Slots, Span


class Kernel(Protocol):
    """Attends in rounds, or in chunks, when keys and values of a step are in the caches."""

    any_reach: bool  # whether how far caches reach is no matter to it, and one graph serves all

    @staticmethod
    def serves(slots: Slots) -> bool:
        """Return whether the kernel is there for the caches' device, type and head size."""

    def __init__(self, slots: Slots) -> None:
        """Attend to the caches of these slots."""

    def begin(self, layout: Layout) -> None:
        """Take what is in the step; what all layers need is made here, or once when asked for."""

    def __call__(self, heads: Heads) -> Tensor:
        """Return [tokens of its part of the step, heads, head size]."""


COPIED_BYTES = 192 << 10
"""What is copied in the time of a call: many scattered caches are copied, few get one each."""


class _Dense:
    """What rounds and chunks share: masks that are made once a step, not in every layer."""

    any_reach = False

    @staticmethod
    def serves(slots: Slots) -> bool:
        """Return True: the plain kernel serves everywhere."""
        return True

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
        slots = layout.slots.clamp(max=self.slots.count - 1)  # no step reads any slot's first key
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


LARGEST_HEAD = 256


class _Flash:
    """The operator, with where queries and keys of each request begin."""

    any_reach = True

    @staticmethod
    def serves(slots: Slots) -> bool:
        """Return whether the kernel is there for the caches' device, type and head size."""
        import torch

        cache = slots.keys[0]
        return (
            cache.is_cuda
            and torch.version.hip is None
            and cache.dtype in (torch.bfloat16, torch.float16)
            and cache.shape[-1] % 8 == 0
            and cache.shape[-1] <= LARGEST_HEAD
            and torch.cuda.get_device_capability(cache.device) >= (8, 0)
            and torch.backends.cuda.is_flash_attention_available()
        )

    def __init__(self, slots: Slots) -> None:
        import torch

        device = slots.lengths.device
        self.slots = slots
        self.operator: Any = torch.ops.aten._flash_attention_forward
        self.numbers = torch.arange(slots.count + 1, dtype=torch.int32, device=device)
        self.queries, self.keys, self.used = self.numbers, self.numbers, self.numbers
        self.longest = 1

    def attend(self, heads: Heads, query: Tensor) -> Tensor:
        """Return [tokens, heads, head size]."""
        keys, values = self.slots.rows[heads.layer]
        window = heads.window
        found: Tensor = self.operator(
            query,
            keys,
            values,
            self.queries,
            self.keys,
            self.longest,
            self.slots.length,
            0.0,
            True,
            False,
            scale=heads.scale,
            window_size_left=None if window is None else window - 1,
            window_size_right=None if window is None else 0,
            seqused_k=self.used,
        )[0]
        return found


class FlashRounds(_Flash):
    """Serves rounds in bfloat16 and float16 on a GPU."""

    def begin(self, layout: Layout) -> None:
        """Find where each request's keys begin, and how many it has; the unused slot has one."""
        self.rows = layout.rows
        self.queries = self.numbers[: self.rows + 1]
        self.keys = _ends_do_not_matter(self.slots.begins[layout.slots])
        self.used = (layout.positions[: self.rows] + 1).int()

    def __call__(self, heads: Heads) -> Tensor:
        """Return [rows, heads, head size]."""
        return self.attend(heads, heads.query[: self.rows])


class FlashChunks(_Flash):
    """Serves chunks of prompts in bfloat16 and float16 on a GPU."""

    def begin(self, layout: Layout) -> None:
        """Find where each chunk's queries and keys begin, and how many keys it has."""
        chunks = layout.chunks
        if chunks is None:
            return
        self.rows = layout.rows
        self.queries = chunks.queries.int()
        self.keys = _ends_do_not_matter(self.slots.begins[chunks.slots])
        self.used = chunks.ends.int()
        spans = chunks.spans
        # in a graph any one chunk may have all tokens
        self.longest = len(chunks.tokens) if spans is None else max(each.size for each in spans)

    def __call__(self, heads: Heads) -> Tensor:
        """Return [tokens of chunks, heads, head size]."""
        return self.attend(heads, heads.query[self.rows :])


def _ends_do_not_matter(begins: Tensor) -> Tensor:
    """Return begins and, one more, where the last keys end: ``seqused_k`` says that better."""
    from torch.nn.functional import pad

    return pad(begins, (0, 1)).int()


def compiles(slots: Slots) -> bool:
    """Return whether Triton compiles kernels for the caches' device and type."""
    import torch

    cache = slots.keys[0]
    half = cache.dtype in (torch.bfloat16, torch.float16)
    return cache.is_cuda and find_spec("triton") is not None and half


HEAD_SIZES = (16, 32, 64, 128, 256)
LEAST_ROWS = 16  # of a matrix in the hardware's products: fewer query heads are padded
BLOCK = 64  # keys at a time: with 4 warps and 3 stages the best of those tried on an H100


class DecodeRounds:
    """Serves rounds; each request's cache is read once, as far as it goes, wherever its slot is."""

    any_reach = True

    @staticmethod
    def serves(slots: Slots) -> bool:
        """Return whether it can be compiled for the caches' device, type and head size."""
        return compiles(slots) and slots.keys[0].shape[-1] in HEAD_SIZES

    def __init__(self, slots: Slots) -> None:
        self.slots = slots

    def begin(self, layout: Layout) -> None:
        """Find where each request's keys begin, and how many it has; the unused slot has one."""
        self.rows = layout.rows
        self.begins = self.slots.begins[layout.slots]
        self.used = layout.positions[: self.rows] + 1

    def __call__(self, heads: Heads) -> Tensor:
        """Return [rows, heads, head size]."""
        import torch

        from orsched.runner.worker.triton_kernels import decode

        query = heads.query[: self.rows]
        keys, values = self.slots.rows[heads.layer]
        found = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        group = query.shape[1] // keys.shape[1]
        decode[(self.rows, keys.shape[1])](
            query,
            keys,
            values,
            found,
            self.begins,
            self.used,
            heads.scale,
            heads.window or 0,
            query.stride(0),
            query.stride(1),
            GROUP=group,
            PADDED=max(LEAST_ROWS, 1 << (group - 1).bit_length()),
            SIZE=query.shape[2],
            BLOCK=BLOCK,
            PRECISION="ieee" if query.dtype == torch.float32 else "tf32",
            WIDE=not query.is_cuda,
            num_warps=4,
            num_stages=3,
        )
        return found
