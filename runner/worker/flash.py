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

    from orsched.runner.worker.attention import Kernel
    from orsched.runner.worker.heads import Heads
    from orsched.runner.worker.layout import Layout
    from orsched.runner.worker.slots import Slots

LARGEST_HEAD = 256
TOLERANCE = 0.05
"""Of means of standard normal values: two units in the last place of bfloat16 between 2 and 4."""


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


def agrees(flash: Kernel, dense: Kernel, slots: Slots) -> bool:
    """Return whether two kernels attend alike, in a round and in a step with chunks beside one.

    Args:
        flash, dense: of the same slots.
        slots: three, of 32 tokens; what is in them is overwritten.
    """
    import torch

    from orsched.runner.worker.chunk import Chunk
    from orsched.runner.worker.heads import Heads
    from orsched.runner.worker.layout import place, round_layout

    cache = slots.keys[0]
    scale = cache.shape[3] ** -0.5
    numbers = torch.Generator().manual_seed(0)
    for each in slots.rows[0]:
        each.copy_(torch.randn(each.shape, generator=numbers))
    slots.lengths.copy_(torch.tensor([25, 13, 30]))
    slots.active.fill_(1)
    chunks = [Chunk(2, 0, [0] * 9, True), Chunk(1, 13, [0] * 6, True)]
    mixed = place(slots, chunks, 1, 32, lambda x: torch.from_numpy(x).to(cache.device)).layout
    found: list[list[torch.Tensor]] = [[], []]
    for layout in (round_layout(slots, 3, 32), mixed):
        size = (len(layout.places), 2 * cache.shape[2], cache.shape[3])
        query = torch.randn(size, generator=numbers).to(cache)
        key, value = (each[layout.places] for each in slots.rows[0])
        for kernel, outputs in zip((flash, dense), found, strict=True):
            kernel.begin(layout)
            for window in (None, 4):
                outputs.append(kernel(Heads(0, query, key, value, scale, window)))
    one, other = (torch.cat(outputs).float() for outputs in found)
    return bool((one - other).abs().max() <= TOLERANCE)


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

    def __call__(self, heads: Heads) -> torch.Tensor:
        """Return [tokens, heads, head size]."""
        keys, values = self.slots.rows[heads.layer]
        window = heads.window
        found: torch.Tensor = self.operator(
            heads.query,
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
