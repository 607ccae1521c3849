"""The hindsight optimum of the unit-round model, by a time-indexed integer program."""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from orsched.costs.unit_rounds import ROUND_NS
from orsched.models.unit_rounds_mip import UnitRoundsMip, require_unit_rounds
from orsched.models.unit_rounds_search import search
from orsched.request_times import request_times

if TYPE_CHECKING:
    from orsched.instance import Instance
    from orsched.schedule import Schedule


@dataclass(frozen=True)
class HindsightOptimum:
    """The least total latency of schedules without evictions, all arrivals known beforehand.

    Attributes:
        total: sum over requests of end less arrival of the best schedule found, in rounds.
        bound: no schedule without evictions has a smaller sum, by the solver's account.
        starts: the round in which each request starts.
    """

    total: int
    bound: int
    starts: tuple[int, ...]

    @property
    def optimal(self) -> bool:
        """Whether the schedule is proven to be the best."""
        return self.bound >= self.total


def total_latency(instance: Instance, schedule: Schedule) -> int:
    """Return the sum of end less arrival over the requests, in rounds."""
    finish = request_times(instance, schedule)["finish_ns"]
    return int((finish - instance.requests.arrival_ns).sum()) // ROUND_NS


def hindsight_optimum(
    instance: Instance, time_limit: float | None = None, seed: int = 0, iterations: int = 2000
) -> HindsightOptimum:
    """Solve the program of Jaillet et al. (arXiv 2502.07115), on one thread.

    A variable for each request and each round in which it may start; one start each; in every
    round the tokens held by those that run are within the memory. Rounds are those up to the last
    start of the schedule that a search finds from the better of ``mc_sf`` and ``svf``. Whoever
    starts later has a variable of its own, at the cost of the first round after these and without
    memory: a relaxation, so that the bound holds for all schedules. Where the solver uses it there
    are more rounds in the next program; where it does not, its schedule is feasible as it is.

    Args:
        instance: of the unit-round model (``unit_instance``).
        time_limit: seconds of all programs together, after the search; None: until one is solved.
        seed: of the search and the solver.
        iterations: moves of the search before the program.

    Raises:
        InputError: the instance is not one of this model.
        MissingDependencyError: OR-Tools is not installed.
    """
    require_unit_rounds(instance)
    requests = instance.requests
    if not len(requests):
        return HindsightOptimum(0, 0, ())
    best = min((_starts(instance, name) for name in ("mc_sf", "svf")), key=sum)
    best = search(instance, best, iterations, seed)
    end = None if time_limit is None else monotonic() + time_limit
    rounds, bound, found = max(best) + 1, 0, None
    while found is None:
        left = None if end is None else end - monotonic()
        if left is not None and left <= 0:
            break
        solved, found, least = _Program(instance, rounds).solve(best, left, seed)
        bound, rounds = max(bound, least), rounds + int(requests.output_tokens.max())
        if not solved:
            break
    best = min(best, found or best, key=sum)
    run = int(requests.output_tokens.sum()) - int(requests.arrival_ns.sum()) // ROUND_NS
    return HindsightOptimum(sum(best) + run, min(bound, sum(best)) + run, tuple(best))


def _starts(instance: Instance, method: str) -> list[int]:
    from orsched.solver import simulate

    schedule = simulate(instance, method).schedule
    starts: list[int] = (request_times(instance, schedule)["prefill_start_ns"] // ROUND_NS).tolist()
    return starts


class _Program:
    """The integer program in CP-SAT."""

    def __init__(self, instance: Instance, rounds: int) -> None:
        from orsched.models.full_mip.cpsat_backend import load

        self.mip = UnitRoundsMip(instance, rounds)
        self.model, self.variables = load(self.mip.model)

    def solve(
        self, known: list[int], time_limit: float | None, seed: int
    ) -> tuple[bool, list[int] | None, int]:
        """Return whether it is solved, starts (None where some are later), a bound on their sum."""
        from ortools.sat.python import cp_model

        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.catch_sigint_signal = False
        solver.parameters.random_seed = seed % 2**31
        if time_limit is not None:
            solver.parameters.max_time_in_seconds = time_limit
        for variable, value in zip(self.variables, self.mip.values_of(known), strict=True):
            self.model.add_hint(variable, value)
        status = solver.solve(self.model)
        bound = solver.best_objective_bound
        least = math.ceil(bound - 1e-6) if math.isfinite(bound) else 0
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return False, None, least
        found = self.mip.starts_of([solver.value(variable) for variable in self.variables])
        return status == cp_model.OPTIMAL, found, least
