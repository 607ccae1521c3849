"""Input of attention in a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


class Heads(NamedTuple):
    """Queries, keys and values of a step's tokens in a layer.

    Attributes:
        layer: its number.
        query: [tokens, heads, head size].
        key, value: [tokens, heads of keys, head size].
        scale: of the scores.
        window: how many tokens each one sees, itself among them; None: all before it.
    """

    layer: int
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    scale: float
    window: int | None = None
