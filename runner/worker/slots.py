"""The slots' caches: keys and values of every layer, and how far each slot has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from orsched.runner.worker.language_model import Shape


class Slots:
    """Caches of ``count`` slots for ``length`` tokens each, allocated once.

    What a slot holds beyond its length is garbage: it is written over before it is read. One more
    slot stands for nobody: it has one row in the caches, which is never read, and takes what rows
    without a request write.

    Attributes:
        nobody: the number of that slot, ``count``.
        keys, values: for each layer, [slots, tokens, heads, head size].
        rows: for each layer, both as [slots * tokens + 1, heads, head size]; the last is nobody's.
        begins: first of these rows of each slot, int64, on the device; nobody's is the last.
        lengths: tokens in the cache of each slot, int64, on the device; nobody has none.
        tokens: the token that a slot processes next, int64, on the device.
        one: 1 for each slot, 0 for nobody, int64, on the device.
        order: the slots of a round's rows, int64, on the device: those that yield a token, then
            nobody.
    """

    def __init__(self, shape: Shape, count: int, length: int, like: torch.Tensor) -> None:
        import torch

        size = (count, length, shape.kv_heads, shape.head_dim)
        self.count, self.length, self.unread = count, length, count * length
        self.nobody = count
        # zeros, since a masked weight of 0 times garbage is NaN where the garbage is
        self.rows = [
            (like.new_zeros(self.unread + 1, *size[2:]), like.new_zeros(self.unread + 1, *size[2:]))
            for _ in range(shape.layers)
        ]
        self.keys = [keys[: self.unread].view(size) for keys, _ in self.rows]
        self.values = [values[: self.unread].view(size) for _, values in self.rows]
        numbers = torch.arange(count + 1, device=like.device)
        self.begins = numbers * length
        self.lengths = torch.zeros_like(numbers)
        self.tokens = torch.zeros_like(numbers)
        self.one = (numbers < count).long()
        self.order = torch.full_like(numbers[:count], self.nobody)

    def bytes(self) -> int:
        """Return the memory that the caches take."""
        return sum(keys.nbytes + values.nbytes for keys, values in self.rows)
