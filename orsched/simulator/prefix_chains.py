"""Keys of the full blocks of each request: what a prefix cache recognises them by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.common.columns import read_only

if TYPE_CHECKING:
    from orsched.data.instance import Instance

_PLACE_BITS = 32


class PrefixChains:
    """The hash chains of all requests, and keys for the blocks that no other request shares.

    A block has a key when it is full. It is the identifier of the prefix if the block is full of
    prompt tokens and has one, else a private one, below 0.

    Attributes:
        size: tokens a block.
        shared: how many blocks of each request have identifiers and are full of prompt tokens.
    """

    def __init__(self, instance: Instance, block_tokens: int) -> None:
        self.size = block_tokens
        requests, prefixes = instance.requests, instance.requests.prefixes
        if prefixes is None:
            counts = np.zeros(len(requests), np.int64)
            self.ids, self.offsets = memoryview(b""), read_only(counts)
        else:
            counts = np.minimum(prefixes.counts, requests.prompt_tokens // block_tokens)
            self.ids, self.offsets = read_only(prefixes.ids), read_only(prefixes.offsets)
        self.shared = read_only(counts)

    def keys(self, request: int, most: int) -> list[int]:
        """Return the identifiers of a request's first blocks, at most so many."""
        count, first = self.shared[request], self.offsets[request]
        return self.ids[first : first + (count if count < most else most)].tolist()


def private_key(request: int, place: int) -> int:
    """Return the key of a full block that one request alone can hit."""
    return ~(request << _PLACE_BITS | place)
