"""A second start: a while of the method ``windows``, where best-first has not ended soon.

Best-first search works on the bound: the incumbent is that of ``hybrid`` until a state is left
whose bound is that of the optimum. Out of time it would be the answer, though a search for
schedules often finds a shorter one in a second.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING

from orsched.common.errors import InputError, TimeLimitError
from orsched.common.registry import attached
from orsched.models.full_mip.plan import plan_of

if TYPE_CHECKING:
    from orsched.models.full_mip.search import Search

AFTER_STATES = 50_000
"""States that are expanded before it: most small instances have ended by then."""

AFTER_SHARE = 0.1
"""Or this share of the time limit, where states are slow."""

SHARE, MOST_S, LEAST_S = 0.05, 5.0, 0.25
"""Its share of the time limit, and seconds: at most, and with less it is left out."""

ITERATIONS = 20
"""Of ``windows`` without a time limit: reproducible, a second with 30 requests on 5 clients."""


class SecondStart:
    """Says when it is due, once, and then offers its schedule to the search.

    Args:
        search: keeps the incumbent.
        end: of the whole search, on the clock ``perf_counter``; None: no time limit.
        seed: of ``windows``.
        wanted: False for a search alone.
    """

    def __init__(self, search: Search, end: float | None, seed: int, wanted: bool) -> None:
        self.search, self.end, self.seed = search, end, seed
        self.seconds = math.inf if end is None else min(MOST_S, SHARE * (end - search.begin))
        self.left = wanted and self.seconds >= LEAST_S and find_spec("numba") is not None

    def is_due(self, expanded: int) -> bool:
        """Whether to begin now, with so many states expanded."""
        if not self.left:
            return False
        if expanded >= AFTER_STATES or self.end is None:
            return expanded >= AFTER_STATES
        begin = self.search.begin
        return perf_counter() - begin >= AFTER_SHARE * (self.end - begin)

    def better(self) -> bool:
        """Search, and return whether there is a better incumbent; Ctrl-C goes on to the caller."""
        self.left, search = False, self.search
        seconds = self.seconds
        if self.end is not None:
            seconds = min(seconds, self.end - perf_counter())
        if seconds <= 0:
            return False
        limits = {"iterations": ITERATIONS} if self.end is None else {"time_limit": seconds}
        try:
            found = attached("solve")(
                search.instance, "windows", seed=self.seed, parameters={"threads": 1}, **limits
            )
            bare = found.schedule.bare()
            better = search.offer(bare, plan_of(search.instance, bare))
        except (InputError, TimeLimitError):  # what windows does not plan; no time to begin
            return False
        if found.termination == "interrupted":
            raise KeyboardInterrupt
        return better
