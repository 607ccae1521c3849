"""The state of an exact search: incumbent and bound, and what they prove."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.errors import OrschedError
from orsched.models.full_mip.plan import schedule_of
from orsched.models.full_mip.result import FullMipProgress

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.instance import Instance
    from orsched.models.full_mip.plan import Plan
    from orsched.models.full_mip.problem import Problem
    from orsched.models.full_mip.result import Status, Termination
    from orsched.schedule import Schedule


class Answer(NamedTuple):
    """How the search ended: ``solved`` is the solver's own status, or "" without one."""

    termination: Termination
    solved: str
    solver: dict[str, Any]
    notes: tuple[str, ...] = ()


class Search:
    """The incumbent and the bound, as they come in."""

    def __init__(
        self,
        instance: Instance,
        problem: Problem,
        callback: Callable[[FullMipProgress], object] | None,
        begin: float,
    ) -> None:
        self.instance, self.problem = instance, problem
        self.callback, self.begin = callback, begin
        self.schedule: Schedule | None = None
        self.plan: Plan | None = None
        self.lower_ns: int | None = None  # whatever K is
        self.solver_ns: int | None = None  # of the model with K bins
        self.objective_ns: int | None = None  # of the solver's best solution
        self.own_ns: int | None = None  # makespan of the schedule in it
        self.start_ns: int | None = None  # makespan of the warm start
        self.start_accepted: bool | None = None
        self.proven = True
        self.done = False
        self.interrupted = False

    def forget(self) -> None:
        """Drop the incumbent: it has more stages than the model."""
        self.schedule = self.plan = None

    @property
    def bound_ns(self) -> int | None:
        """The best bound that holds for every number of stages."""
        known = [self.lower_ns, self.solver_ns if self.proven else None]
        return max((value for value in known if value is not None), default=None)

    def offer(self, schedule: Schedule, plan: Plan) -> bool:
        """Take a schedule if it is better than the incumbent."""
        if self.schedule is not None and schedule.makespan_ns >= self.schedule.makespan_ns:
            return False
        self.schedule, self.plan = schedule, plan
        return True

    def on_message(self, message: tuple[str, Any]) -> bool:
        """Take in what the solver found; True ends the search."""
        kind, value = message
        if kind == "bound":
            better = self._on_bound(self.problem.to_ns(value))
        else:
            better = self._on_solution(*value)
        if not better:
            return False
        wanted = self.report()
        self.done = self.schedule is not None and self.schedule.makespan_ns == self.lower_ns
        return wanted or self.done

    def _on_bound(self, bound: int) -> bool:
        """Take a bound of the solver; True if it improves on what is known."""
        known = self.bound_ns
        self.solver_ns = bound if self.solver_ns is None else max(bound, self.solver_ns)
        return self.bound_ns != known

    def _on_solution(self, objective: int, plan: Plan, exact: bool) -> bool:
        """Read a solution back, through the checker; its makespan must be what the model says."""
        schedule = schedule_of(self.instance, plan)
        said, found = self.problem.to_ns(objective), schedule.makespan_ns
        if exact and found > said:
            raise OrschedError(f"a schedule of {found} ns from a solution of {said} ns: a bug")
        if self.start_accepted is None and self.start_ns is not None:
            self.start_accepted = said <= self.start_ns  # the first solution is the start
        self.objective_ns, self.own_ns = said, found
        return self.offer(schedule, plan)

    def report(self) -> bool:
        """Call the callback; True if it wants the end."""
        if self.callback is None:
            return False
        makespan = None if self.schedule is None else self.schedule.makespan_ns
        elapsed = perf_counter() - self.begin
        shown = self.bound_ns if self.proven else None
        return self.callback(FullMipProgress(makespan, shown, elapsed)) is True

    def proven_bound(self, answer: Answer) -> int | None:
        """Return the bound to report: none for a K that is not proven to suffice."""
        if self.status(answer) == "optimal":
            assert self.schedule is not None
            return self.schedule.makespan_ns
        return self.bound_ns if self.proven else None

    def status(self, answer: Answer) -> Status:
        """Return what is proven."""
        if self.schedule is None:
            return "infeasible" if answer.solved == "infeasible" else "unknown"
        makespan, bound = self.schedule.makespan_ns, self.bound_ns
        if bound is not None and makespan < bound:
            raise OrschedError(f"a schedule of {makespan} ns is below the bound {bound} ns: a bug")
        if makespan == bound:
            return "optimal"
        if not self.proven and self.solver_ns is not None and makespan <= self.solver_ns:
            return "optimal_for_K"
        return "feasible"
