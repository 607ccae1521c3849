"""The search: plans decoded and annealed, the best one carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.models.latency_search import decoding, moves
from orsched.models.latency_search.following import FollowSteps, PlannedStep, steps_of
from orsched.models.latency_search.tables import Tables, tables_of
from orsched.simulator import simulate_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orsched.data.instance import Instance
    from orsched.models.latency_search.compiled import Engine
    from orsched.models.latency_search.problem import Problem
    from orsched.models.latency_search.starting import Plan
    from orsched.simulator.loop import Simulated

SHARES = (5.0, 4.0, 2.0, 2.0, 1.5, 1.5, 0.5)
"""How often each kind of move is tried: shift, swap, move, trade, gates, sizes, stages."""

PART = 50
"""Moves at one temperature."""

PLAIN_REQUESTS = 1_000
"""Requests that are decoded without numba, at most, from one look at the clock to the next."""


class Search:
    """A plan that is annealed, and the best one that was met.

    Attributes:
        value: objective of the plan, as decoded; ``best`` of the best one.
    """

    def __init__(
        self, problem: Problem, engine: Engine, rng: np.random.Generator, *, mixed: bool
    ) -> None:
        self.problem = problem
        self.engine = engine
        self.rng = rng
        shares = list(SHARES)
        if not problem.limits[:, decoding.CHUNKS].any():
            shares[moves.SIZES] *= 0.3
        if len(problem.times) == 1:
            shares[moves.MOVE] = shares[moves.TRADE] = 0.0
        if not mixed:
            shares[moves.STAGES] = 0.0
            shares[moves.GATES] *= 4.0  # a stage has a fixed time: requests join together
        self.shares = shares
        self.tables: Tables | None = None
        self.value = self.best = decoding.INFINITE

    def start(self, plans: Iterable[Plan], is_over: Callable[[], bool] = lambda: False) -> bool:
        """Begin with the best of some plans, if it is better than what there is; say if so.

        ``is_over`` says after each whether to leave out the others.
        """
        better = False
        for plan in plans:
            tables = self._tables(plan)
            value = self.engine.module.evaluate_all(tables)
            if value < self.best:
                self.tables, self.value, self.best = tables, value, value
                better = True
            if is_over():
                break
        return better

    def _tables(self, plan: Plan, rows: int = 0) -> Tables:
        problem = self.problem
        whole = problem.whole.copy()
        whole[:, decoding.GATE] = plan.gates
        whole[:, decoding.BUDGET] = plan.budgets
        whole[:, decoding.ALONE] = plan.alone
        makespan = float(problem.coefficients.makespan)
        return tables_of(
            whole, problem.real, problem.times, problem.limits, makespan,
            plan.orders, self.shares, rows,
        )  # fmt: skip

    def anneal(
        self, count: int, temperature: float, out_of_time: Callable[[], bool] = lambda: False
    ) -> None:
        """Try some moves at a temperature, in nanoseconds of the decoded objective.

        The plain moves, which are slow, look at the clock more often the more requests there are.
        """
        tables = self.tables
        assert tables is not None
        draws = self.rng.random((count, moves.DRAWS + 1))
        thresholds = -temperature * np.log1p(-draws[:, -1])
        flat = np.ascontiguousarray(draws[:, :-1]).ravel()
        size = count if self.engine.is_compiled else max(1, PLAIN_REQUESTS // len(tables.whole))
        for first in range(0, count, size):
            part = flat[first * moves.DRAWS : (first + size) * moves.DRAWS]
            self.value, self.best = self.engine.module.run_moves(
                tables, self.value, self.best, part, thresholds[first : first + size]
            )
            if size < count and out_of_time():
                return

    def back_to_best(self) -> None:
        """Go on from the best plan."""
        tables = self.tables
        assert tables is not None
        if self.value > self.best:
            tables.sequences[:] = tables.best_sequences
            tables.lengths[:] = tables.best_lengths
            tables.whole[:] = tables.best_whole
            self.value = self.engine.module.evaluate_all(tables)

    @property
    def makespan_ns(self) -> int:
        """End of the plan's last step, as decoded."""
        assert self.tables is not None
        return int(self.tables.finals.max())

    def steps(self) -> list[list[PlannedStep]]:
        """Return the steps of each worker in the best plan."""
        tables = self.tables
        assert tables is not None
        rows = 16 * len(tables.whole) + 64
        while True:
            script = np.zeros((rows, 4), np.int64)
            t = tables._replace(
                sequences=tables.best_sequences.copy(),
                lengths=tables.best_lengths.copy(),
                whole=tables.best_whole.copy(),
                script=script,
            )
            found = []
            for j in range(len(t.lengths)):
                script[0] = 0
                self.engine.module.evaluate(t, j, 0, 0.0, decoding.INFINITE, False)
                if script[0, 1]:
                    break
                found.append(steps_of(script[1 : script[0, 0] + 1].tolist()))
            else:
                return found
            rows *= 4

    def carry_out(self, instance: Instance, name: str) -> Simulated:
        """Return the schedule of the best plan."""
        return simulate_policy(instance, FollowSteps(self.steps(), name))
