"""Attention of a round by our own decode kernel, on a GPU (``triton_decode``)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from orsched.runner.worker.heads import Heads
    from orsched.runner.worker.layout import Layout
    from orsched.runner.worker.slots import Slots

HEAD_SIZES = (16, 32, 64, 128, 256)
LEAST_ROWS = 16
"""Of a matrix in the hardware's products: fewer query heads are padded."""

BLOCK = 64
"""Keys at a time: with 4 warps and 3 stages the best of those tried on an H100."""


def serves(slots: Slots) -> bool:
    """Return whether the kernel can be compiled for the caches' device, type and head size."""
    import torch

    cache = slots.keys[0]
    return (
        cache.is_cuda
        and find_spec("triton") is not None
        and cache.dtype in (torch.bfloat16, torch.float16)
        and cache.shape[-1] in HEAD_SIZES
    )


class DecodeRounds:
    """Serves rounds; each request's cache is read once, as far as it goes, wherever its slot is."""

    any_reach = True

    def __init__(self, slots: Slots) -> None:
        self.slots = slots

    def begin(self, layout: Layout) -> None:
        """Find where each request's keys begin, and how many it has; nobody has one."""
        self.rows = layout.rows
        self.begins = self.slots.begins[layout.slots]
        self.used = layout.positions[: self.rows] + 1

    def __call__(self, heads: Heads) -> Tensor:
        """Return [rows, heads, head size]."""
        import torch

        from orsched.runner.worker.triton_decode import decode

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
