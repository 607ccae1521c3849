"""Exhaustive search where few patterns are left: a packing, or the proof that there is none.

With integer duals under which no pattern is worth more than v, J clients fall short of J v by the
gap J v minus the worth of all jobs. A pattern that falls short of v by more than the gap is in no
packing; what remains is searched to the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from orsched.common.stop import Clock
    from orsched.models.pcmax.knapsack import Ints


class Cover:
    """Depth first over the exact covers of the jobs by patterns.

    Attributes:
        found: the patterns of a packing, if there is one.
        complete: whether the search came to its end.
    """

    def __init__(self, patterns: Ints, worth: Ints, most: int, clock: Clock) -> None:
        self.patterns = patterns
        self.holds = patterns > 0
        self.worth = worth
        self.most = most
        self.clock = clock
        self.nodes = 0
        self.found: list[Ints] | None = None
        self._seen: set[bytes] = set()

    def run(self, counts: Ints, clients: int, nodes: int) -> bool:
        """Search; return whether every possibility was tried (or a packing found)."""
        every = np.flatnonzero((self.patterns <= counts).all(axis=1))
        stack: list[tuple[Ints, int, list[int], Ints]] = [(counts, clients, [], every)]
        while stack:
            left, free, chosen, usable = stack.pop()
            if not left.any():
                self.found = [self.patterns[index] for index in chosen]
                return True
            key = left.tobytes()
            if key in self._seen or int(self.worth @ left) > free * self.most:
                continue
            self._seen.add(key)
            self.nodes += 1
            if self.nodes > nodes or self.clock.out():
                return False
            if chosen:  # what the parent could use, less what the last choice took
                took = np.flatnonzero(self.holds[chosen[-1]])
                fits = (self.patterns[usable[:, None], took] <= left[took]).all(axis=1)
                usable = usable[fits]
            stack += [
                (left - self.patterns[index], free - 1, [*chosen, index], usable)
                for index in self._options(left, usable).tolist()
            ]
        return True

    def _options(self, left: Ints, usable: Ints) -> Ints:
        """Return the usable patterns that hold the size that fewest of them hold."""
        holding = self.holds[usable].sum(axis=0)
        size = int(np.where(left > 0, holding, len(self.patterns) + 1).argmin())
        options: Ints = usable[self.holds[usable, size]]
        return options
