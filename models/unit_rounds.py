"""The hindsight optimum of the unit-round model: prices of rounds, then all that they leave."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from orsched.certificates.unit_rounds import Prices, UnitRounds, bound
from orsched.costs.unit_rounds import ROUND_NS
from orsched.models.unit_rounds_mip import require_unit_rounds
from orsched.models.unit_rounds_prices import search_prices
from orsched.models.unit_rounds_search import search
from orsched.models.unit_rounds_states import MAX_MEMORY, MAX_REQUESTS, StateSearch
from orsched.request_times import request_times

if TYPE_CHECKING:
    from orsched.instance import Instance
    from orsched.schedule import Schedule

_WIDTH = 2000
"""States of a round in the search that looks for a good schedule before the proof."""


@dataclass(frozen=True)
class HindsightOptimum:
    """The least total latency of schedules without evictions, all arrivals known beforehand.

    Attributes:
        total: sum over requests of end less arrival of the best schedule found, in rounds.
        bound: no schedule without evictions has a smaller sum, by the search of all states.
        starts: the round in which each request starts.
        prices: of rounds; ``orsched.certificates.unit_rounds.bound`` says what they prove alone.
    """

    total: int
    bound: int
    starts: tuple[int, ...]
    prices: Prices | None = field(default=None, compare=False, repr=False)

    @property
    def optimal(self) -> bool:
        """Whether the schedule is proven to be the best."""
        return self.bound >= self.total


def problem_of(instance: Instance) -> UnitRounds:
    """Return the requests in rounds, and the memory.

    Raises:
        InputError: the instance is not one of this model.
    """
    require_unit_rounds(instance)
    requests, memory = instance.requests, instance.worker.memory
    assert memory is not None
    return UnitRounds(
        tuple(requests.prompt_tokens.tolist()),
        tuple(requests.output_tokens.tolist()),
        tuple((requests.arrival_ns // ROUND_NS).tolist()),
        memory.blocks,
    )


def total_latency(instance: Instance, schedule: Schedule) -> int:
    """Return the sum of end less arrival over the requests, in rounds."""
    finish = request_times(instance, schedule)["finish_ns"]
    return int((finish - instance.requests.arrival_ns).sum()) // ROUND_NS


def hindsight_optimum(
    instance: Instance, time_limit: float | None = None, seed: int = 0, iterations: int = 2000
) -> HindsightOptimum:
    """Find the best schedule of the model of Jaillet et al. (arXiv 2502.07115), on one thread.

    A search over orders begins, from the better of ``mc_sf`` and ``svf``. Prices of rounds, from
    the linear relaxation with rows for ends that exclude each other, prove a bound. They guide a
    search through all states of the rounds, first through the best of each round, then through all
    that can lead to a better schedule, up to ``MAX_STATES`` in a round and ``MAX_REQUESTS``.

    Args:
        instance: of the unit-round model (``unit_instance``).
        time_limit: seconds after the first search, a third of them for prices; None: as long as
            it takes to prove the optimum, or to have too many states.
        seed: of the first search.
        iterations: moves of the first search.

    Raises:
        InputError: the instance is not one of this model.
    """
    problem = problem_of(instance)
    if not len(problem):
        return HindsightOptimum(0, 0, ())
    best = min((_starts(instance, name) for name in ("mc_sf", "svf")), key=sum)
    best = search(instance, best, iterations, seed)
    end = None if time_limit is None else monotonic() + time_limit
    rounds = max(best) + max(problem.outputs) + 1
    prices = search_prices(problem, rounds, None if time_limit is None else time_limit / 3)
    least = bound(problem, prices)
    if len(problem) <= MAX_REQUESTS and problem.memory <= MAX_MEMORY:
        for width in (_WIDTH, None):
            left = None if end is None else end - monotonic()
            if least >= sum(best) or (left is not None and left <= 0):
                break
            states = StateSearch(problem, prices, best, width=width)
            states.run(left)
            best, least = states.starts, max(least, states.bound)
    run = sum(problem.outputs) - sum(problem.arrivals)
    return HindsightOptimum(sum(best) + run, min(least, sum(best)) + run, tuple(best), prices)


def _starts(instance: Instance, method: str) -> list[int]:
    from orsched.solver import simulate

    schedule = simulate(instance, method).schedule
    starts: list[int] = (request_times(instance, schedule)["prefill_start_ns"] // ROUND_NS).tolist()
    return starts
