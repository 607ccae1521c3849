"""The packing problem by distinct sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.models.pcmax.knapsack import Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.models.pcmax.knapsack import Ints


@dataclass(frozen=True, eq=False)
class Problem:
    """Sizes (falling, positive) with their counts, onto a number of identical clients.

    Clients of different speed would turn the window of a capacity into one window a client.
    """

    sizes: Ints
    counts: Ints
    clients: int

    @classmethod
    def of(cls, jobs: Sequence[int], clients: int) -> Problem:
        """Return the problem of some positive jobs."""
        sizes, counts = np.unique(np.array(jobs, dtype=np.int64), return_counts=True)
        return cls(sizes[::-1].copy(), counts[::-1].astype(np.int64), clients)

    @cached_property
    def total(self) -> int:
        """All the work."""
        return int(self.sizes @ self.counts)

    def slack(self, capacity: int) -> int:
        """Return what all clients together may waste at a capacity."""
        return self.clients * capacity - self.total

    def window(self, capacity: int) -> Window:
        """Return the loads that a client can have in a packing within a capacity."""
        return Window(capacity - self.slack(capacity), capacity)

    def certificate(self, capacity: int, duals: Ints, kind: str) -> dict[str, Any]:
        """Return the certificate that a capacity is too small: ``dual`` or ``cover``."""
        pairs = [[int(s), int(d)] for s, d in zip(self.sizes, duals, strict=True) if d]
        return {"bound": kind, "value": capacity + 1, "duals": pairs}

    def less(self, pattern: Ints, times: int) -> Problem:
        """Return what is left when some clients hold a pattern (as far as there are jobs)."""
        return Problem(
            self.sizes, np.maximum(self.counts - times * pattern, 0), self.clients - times
        )
