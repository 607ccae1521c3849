"""Exhaustive search where few patterns are left: a packing, or the proof that there is none.

With integer duals under which no pattern is worth more than v, J clients fall short of J v by the
gap J v minus the worth of all jobs. A pattern that falls short of v by more than the gap is in no
packing; what remains is searched to the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from orsched.models.pcmax.knapsack import Ints
    from orsched.models.pcmax.problem import Clock

NODES = 20_000
PATTERNS = 3_000


class Cover:
    """Depth first over the exact covers of the jobs by patterns.

    Attributes:
        found: the patterns of a packing, if there is one.
        complete: whether the search came to its end.
    """

    def __init__(self, patterns: Ints, worth: Ints, most: int, clock: Clock) -> None:
        self.patterns = patterns
        self.worth = worth
        self.most = most
        self.clock = clock
        self.nodes = 0
        self.found: list[Ints] | None = None
        self._seen: set[bytes] = set()

    def run(self, counts: Ints, clients: int, nodes: int = NODES) -> bool:
        """Search; return whether every possibility was tried (or a packing found)."""
        stack: list[tuple[Ints, int, list[Ints]]] = [(counts, clients, [])]
        while stack:
            left, free, chosen = stack.pop()
            if not left.any():
                self.found = chosen
                return True
            key = left.tobytes()
            if key in self._seen or int(self.worth @ left) > free * self.most:
                continue
            self._seen.add(key)
            self.nodes += 1
            if self.nodes > nodes or self.clock.out():
                return False
            options = self._options(left)
            stack += [(left - p, free - 1, [*chosen, p]) for p in options]
        return True

    def _options(self, left: Ints) -> Ints:
        """Return the patterns that fit and hold the size that fewest of them hold."""
        fitting = self.patterns[(self.patterns <= left).all(axis=1)]
        holding = (fitting > 0).sum(axis=0)
        size = int(np.where(left > 0, holding, len(self.patterns) + 1).argmin())
        return fitting[fitting[:, size] > 0]
