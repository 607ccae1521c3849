"""The least sum of JCTs of a few requests on one worker, by best-first search."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.instance import Instance

State = tuple[frozenset[int], tuple[tuple[int, int], ...]]
"""Requests that are not prefilled, and those that decode with their rounds left."""


def least_jct_sum(instance: Instance, most: int) -> int | None:
    """Return the least sum of JCTs of all schedules of whole prefills, full rounds and waits.

    A stage prefills any of those that have arrived; all decode in a round; the worker may wait.
    With costs by counts (``affine``), without cap and memory. None after ``most`` states.
    """
    search = _Search(instance)
    start: State = (frozenset(range(len(instance))), ())
    heap: list[tuple[int, int, int, int, State]] = [(search.ahead(0, start), 0, 0, 0, start)]
    seen: dict[State, list[tuple[int, int]]] = {}
    serial = 0
    while heap and serial < most:
        _, _, now, cost, state = heappop(heap)
        waiting, running = state
        if not waiting and not running:
            return cost - sum(search.arrivals)
        left = len(waiting) + len(running)
        known = seen.setdefault(state, [])
        # Who is there earlier may wait until then.
        if any(t <= now and c + (now - t) * left <= cost for t, c in known):
            continue
        known.append((now, cost))
        for then, following in search.moves(now, state):
            serial += 1
            spent = cost + (then - now) * left
            key = spent + search.ahead(then, following)
            heappush(heap, (key, serial, then, spent, following))
    return None


class _Search:
    """The moves of one worker, and what is still to come at least."""

    def __init__(self, instance: Instance) -> None:
        self.cost, self.arrivals = instance.worker.cost, instance.requests.arrival_ns.tolist()
        self.prompts = instance.requests.prompt_tokens.tolist()
        self.rounds = instance.rounds_needed.tolist()
        self.round_ns = self.cost.round_ns(1, 1, 1)
        self.stages = [self.cost.prefill_ns([p]) for p in self.prompts]

    def ahead(self, now: int, state: State) -> int:
        """Return the least sum of the times from now to the ends."""
        waiting, running = state
        total = sum(left for _, left in running) * self.round_ns
        for row in waiting:
            own = self.stages[row] + self.rounds[row] * self.round_ns
            total += max(0, self.arrivals[row] - now) + own
        return total

    def moves(self, now: int, state: State) -> Iterator[tuple[int, State]]:
        """Yield a round, and each stage, now or when somebody has arrived."""
        waiting, running = state
        if running:
            then = now + self.cost.round_ns(len(running), 1, 1)
            yield then, (waiting, tuple((i, left - 1) for i, left in running if left > 1))
        later = {self.arrivals[i] for i in waiting if self.arrivals[i] > now}
        for moment in sorted({now, *later}):
            here = sorted(i for i in waiting if self.arrivals[i] <= moment)
            for size in range(1, len(here) + 1):
                for stage in combinations(here, size):
                    then = moment + self.cost.prefill_ns([self.prompts[i] for i in stage])
                    new = [(i, self.rounds[i]) for i in stage if self.rounds[i]]
                    yield then, (waiting - set(stage), tuple(sorted([*running, *new])))
