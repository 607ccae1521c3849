"""Attention by torch's FlashAttention kernel: one call for all requests of a round or of chunks.

Each request's queries lie in the step's row of tokens, its keys in the rows of the caches that
begin where its slot does, as many as it has. So nothing is padded, masked or repeated, and a short
request beside a long one costs what it costs alone. Rounds and chunks are calls of their own: with
queries of one token only, the heads that share keys read them once.

``scaled_dot_product_attention`` does not reach these arguments; the operator is the one behind it,
and behind torch's attention for sequences of several lengths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from orsched.runner.worker.heads import Heads
    from orsched.runner.worker.layout import Layout
    from orsched.runner.worker.slots import Slots

LARGEST_HEAD = 256


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


class _Flash:
    """The operator, with where queries and keys of each request begin."""

    any_reach = True

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
        """Find where each request's keys begin, and how many it has; nobody has one."""
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
    """Return begins with one number more, which says where the last one's keys end.

    ``seqused_k`` does that better.
    """
    from torch.nn.functional import pad

    return pad(begins, (0, 1)).int()
