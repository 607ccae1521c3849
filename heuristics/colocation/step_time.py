"""What a step is taken to last: the worker's own cost model, or an estimate of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from orsched.costs import mixed_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.costs import CostModel


class StepTime(Protocol):
    """Gives the time of a step."""

    def step_ns(
        self,
        chunks: Sequence[int],
        active: int,
        context_sum: int,
        context_max: int,
        cached: Sequence[int] = (),
    ) -> int:
        """Return the time of a step over prompt chunks beside a round, in nanoseconds.

        ``cached`` are the tokens in the cache before each chunk; empty: all 0.
        """


class MachineTime:
    """The cost model of the worker: exact in simulation."""

    def __init__(self, cost: CostModel) -> None:
        self.cost = cost

    def step_ns(
        self,
        chunks: Sequence[int],
        active: int,
        context_sum: int,
        context_max: int,
        cached: Sequence[int] = (),
    ) -> int:
        """Return the time of a step; 0 for one with nothing in it."""
        if not chunks and not active:
            return 0
        return mixed_ns(self.cost, chunks, active, context_sum, context_max, cached)
