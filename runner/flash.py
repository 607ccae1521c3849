"""Attention by torch's FlashAttention kernel: one call for all requests of a step, on a GPU.

Each request's queries lie in the step's row of tokens, its keys in the rows of the caches that
begin where its slot does, as many as it has. So nothing is padded, masked or repeated, and a short
request beside a long one costs what it costs alone. ``scaled_dot_product_attention`` does not reach
these arguments; the operator is the one behind it, and behind torch's attention for sequences of
several lengths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from orsched.runner.layout import Layout
    from orsched.runner.slots import Slots

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


class FlashAttention:
    """Serves bfloat16 and float16 on a GPU."""

    any_reach = True

    def __init__(self, slots: Slots) -> None:
        import torch

        device = slots.lengths.device
        self.slots = slots
        self.operator: Any = torch.ops.aten._flash_attention_forward
        self.numbers = torch.arange(slots.count + 1, dtype=torch.int32, device=device)
        self.begins = self.numbers * slots.length
        self.queries, self.keys, self.used = self.numbers, self.begins, self.numbers
        self.longest = 1

    def begin(self, layout: Layout) -> None:
        """Find where each request's queries and keys begin, and how many keys it has."""
        import torch

        rows = layout.rows
        self.queries, self.keys = self.numbers[: rows + 1], self.begins[: rows + 1]
        # a row that yields nothing reads one key
        self.used = (layout.positions[:rows] * self.slots.active[:rows] + 1).int()
        self.longest = 1
        if layout.spans:
            slots, starts, sizes = zip(*layout.spans, strict=True)
            at, ends = [rows], []
            for start, size in zip(starts, sizes, strict=True):
                at.append(at[-1] + size)
                ends.append(start + size)
            # the last number says where the last request's keys end, which ``used`` does better
            host = torch.tensor([*at, *(s * self.slots.length for s in slots), 0, *ends])
            moved = self._to_device(host.int())
            count = len(slots)
            queries, keys, used = moved.split([count + 1, count + 1, count])
            self.queries = torch.cat([self.queries[:rows], queries])
            self.keys = torch.cat([self.keys[:rows], keys])
            self.used = torch.cat([self.used, used])
            self.longest = max(sizes)

    def _to_device(self, host: torch.Tensor) -> torch.Tensor:
        device = self.begins.device
        return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host

    def __call__(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float,
        window: int | None,
    ) -> torch.Tensor:
        """Return [tokens, heads, head size] from [tokens, heads, head size] of each."""
        keys, values = self.slots.rows[layer]
        found: torch.Tensor = self.operator(
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
            scale=scale,
            window_size_left=None if window is None else window - 1,
            window_size_right=None if window is None else 0,
            seqused_k=self.used,
        )[0]
        return found
