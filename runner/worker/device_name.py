"""A device's name with its index, settled once."""

from __future__ import annotations


def settled(device: str) -> str:
    """Return a device's name with its index: ``cuda`` alone is the current GPU.

    Much of torch takes either, but some of its functions refuse a GPU without an index.
    """
    import torch

    chosen = torch.device(device)
    if chosen.type == "cuda" and chosen.index is None:
        return f"cuda:{torch.cuda.current_device()}"
    return device
