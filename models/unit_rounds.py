"""The hindsight optimum of the unit-round model, by a time-indexed integer program."""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from orsched.costs.unit_rounds import ROUND_NS, UNIT_COST
from orsched.errors import InputError, unavailable
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
    instance: Instance, time_limit: float | None = None, seed: int = 0
) -> HindsightOptimum:
    """Solve the program of Jaillet et al. (arXiv 2502.07115), on one thread.

    A variable for each request and each round in which it may start; one start each; in every
    round the tokens held by those that run are within the memory. Rounds are those up to the last
    start of the better of ``mc_sf`` and ``svf``. Whoever starts later has a variable of its own, at
    the cost of the first round after these and without memory: a relaxation, so that the bound
    holds for all schedules. Where the solver uses it there are more rounds in the next program;
    where it does not, its schedule is feasible as it is.

    Args:
        instance: of the unit-round model (``unit_instance``).
        time_limit: seconds of all programs together; None: until one is solved.
        seed: of the solver.

    Raises:
        InputError: the instance is not one of this model.
        MissingDependencyError: OR-Tools is not installed.
    """
    _require_unit_rounds(instance)
    requests = instance.requests
    if not len(requests):
        return HindsightOptimum(0, 0, ())
    best = min((_starts(instance, name) for name in ("mc_sf", "svf")), key=sum)
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


def _require_unit_rounds(instance: Instance) -> None:
    memory = instance.worker.memory if len(instance.workers) == 1 else None
    if (
        memory is None
        or (memory.block_tokens, memory.is_paged) != (1, True)
        or memory.prefix_cache is not None
        or instance.worker.cost != UNIT_COST
        or instance.worker.clients < len(instance)
        or instance.worker.prefill_limit is not None
        or instance.first_token != "decode"
        or (instance.requests.arrival_ns % ROUND_NS).any()
    ):
        raise InputError(
            "the instance is not one of unit rounds",
            field="instance",
            remedy="make one with orsched generate unit-rounds, or unit_instance",
        )


def _starts(instance: Instance, method: str) -> list[int]:
    from orsched.solver import simulate

    schedule = simulate(instance, method).schedule
    starts: list[int] = (request_times(instance, schedule)["prefill_start_ns"] // ROUND_NS).tolist()
    return starts


class _Program:
    """The integer program, and its variables by request and start."""

    def __init__(self, instance: Instance, rounds: int) -> None:
        try:
            from ortools.sat.python import cp_model
        except ImportError as error:
            raise unavailable(error, "CP-SAT is missing: pip install ortools") from None
        memory = instance.worker.memory
        assert memory is not None
        requests = instance.requests
        self.module, self.model, self.rounds = cp_model, cp_model.CpModel(), rounds
        self.starts: list[dict[int, Any]] = []
        held: list[list[tuple[Any, int]]] = [[] for _ in range(rounds + memory.blocks + 1)]
        rows = zip(requests.prompt_tokens, requests.output_tokens, requests.arrival_ns, strict=True)
        for prompt, output, arrival_ns in (tuple(map(int, row)) for row in rows):
            first = arrival_ns // ROUND_NS
            own = {k: self.model.new_bool_var("") for k in range(first, rounds)}
            for start, variable in own.items():
                for age in range(1, output + 1):
                    held[start + age].append((variable, prompt + age))
            own[rounds] = self.model.new_bool_var("")  # later than all these, in no memory
            self.model.add_exactly_one(own.values())
            self.starts.append(own)
        for terms in held:
            if terms:
                self._add_row(terms, memory.blocks)
        costs = [(variable, k) for own in self.starts for k, variable in own.items()]
        self.model.minimize(self._sum(costs))

    def _sum(self, terms: list[tuple[Any, int]]) -> Any:
        variables, values = zip(*terms, strict=True)
        return self.module.LinearExpr.weighted_sum(list(variables), list(values))

    def _add_row(self, terms: list[tuple[Any, int]], most: int) -> None:
        self.model.add(self._sum(terms) <= most)

    def solve(
        self, known: list[int], time_limit: float | None, seed: int
    ) -> tuple[bool, list[int] | None, int]:
        """Return whether it is solved, starts (None where some are later), a bound on their sum."""
        solver, module = self.module.CpSolver(), self.module
        solver.parameters.num_workers = 1
        solver.parameters.catch_sigint_signal = False
        solver.parameters.random_seed = seed % 2**31
        if time_limit is not None:
            solver.parameters.max_time_in_seconds = time_limit
        for own, start in zip(self.starts, known, strict=True):
            for k, variable in own.items():
                self.model.add_hint(variable, k == start)
        status = solver.solve(self.model)
        bound = solver.best_objective_bound
        least = math.ceil(bound - 1e-6) if math.isfinite(bound) else 0
        if status not in (module.OPTIMAL, module.FEASIBLE):
            return False, None, least
        found = [next(k for k, v in own.items() if solver.value(v)) for own in self.starts]
        late = max(found) == self.rounds
        return status == module.OPTIMAL, None if late else found, least
