"""Random streams: one for each purpose, derived from the seed and the stream's name."""

from __future__ import annotations

import hashlib

import numpy as np

from orsched.common.columns import whole_number


def stream(name: str, seed: int) -> np.random.Generator:
    """Return the random stream of a name under a seed.

    The generator is PCG64, seeded by the seed and the SHA-256 of the name, so a further stream
    shifts none of the others. Raises ``InputError`` unless the seed is a whole number >= 0.
    """
    number = whole_number(seed, "seed", remedy="give a whole number of at least 0")
    digest = hashlib.sha256(name.encode()).digest()
    words = np.frombuffer(digest[:16], dtype="<u4").tolist()
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([number, *words])))
