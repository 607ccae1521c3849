"""Input of attention in a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


class Heads(NamedTuple):
    """Queries of a step's tokens in a layer; the keys and values are in the caches already.

    Attributes:
        layer: its number.
        query: [tokens, heads, head size].
        scale: of the scores.
        window: how many tokens each one sees, itself among them; None: all before it.
    """

    layer: int
    query: torch.Tensor
    scale: float
    window: int | None = None
