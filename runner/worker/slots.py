"""The slots' caches: keys and values of every layer, and how far each slot has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from orsched.runner.worker.language_model import Shape


class Slots:
    """Caches of ``count`` slots for ``length`` tokens each, allocated once.

    What a slot holds beyond its length is garbage: it is written over before it is read. A round
    may run over slots that yield nothing in it: they write into one row that is never read.

    Attributes:
        keys, values: for each layer, [slots, tokens, heads, head size].
        rows: for each layer, both as [slots * tokens + 1, heads, head size]; the last is the one
            that nobody reads.
        begins: first of these rows of each slot, int64, on the device.
        lengths: tokens in the cache of each slot, int64, on the device.
        tokens: the token that a slot processes next, int64, on the device.
        active: 1 for each slot that yields a token in a round, else 0, int64, on the device.
    """

    def __init__(self, shape: Shape, count: int, length: int, like: torch.Tensor) -> None:
        import torch

        size = (count, length, shape.kv_heads, shape.head_dim)
        self.count, self.length, self.unread = count, length, count * length
        # zeros, since a masked weight of 0 times garbage is NaN where the garbage is
        self.rows = [
            (like.new_zeros(self.unread + 1, *size[2:]), like.new_zeros(self.unread + 1, *size[2:]))
            for _ in range(shape.layers)
        ]
        self.keys = [keys[: self.unread].view(size) for keys, _ in self.rows]
        self.values = [values[: self.unread].view(size) for _, values in self.rows]
        self.begins = torch.arange(count, device=like.device) * length
        self.lengths = torch.zeros(count, dtype=torch.int64, device=like.device)
        self.tokens = torch.zeros(count, dtype=torch.int64, device=like.device)
        self.active = torch.zeros(count, dtype=torch.int64, device=like.device)

    def bytes(self) -> int:
        """Return the memory that the caches take."""
        return sum(keys.nbytes + values.nbytes for keys, values in self.rows)
