"""The state of an exact search: incumbent and bound, and what they prove."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError, OrschedError
from orsched.data.schedule_classes import ALL_SCHEDULES, PLAIN_SCHEDULES, WITHOUT_PAUSES
from orsched.models.full_mip.aim import Aim, MakespanAim, MissesAim
from orsched.models.full_mip.pauses import pauses_cannot_help
from orsched.models.full_mip.plan import plan_of, schedule_of
from orsched.models.full_mip.result import FullMipProgress

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.schedule_classes import ScheduleClass
    from orsched.models.full_mip.plan import Plan
    from orsched.models.full_mip.problem import Problem
    from orsched.models.full_mip.result import Status, Termination


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
        aim: Aim | None = None,
    ) -> None:
        self.instance, self.problem = instance, problem
        self.callback, self.begin = callback, begin
        self.aim: Aim = MakespanAim(problem) if aim is None else aim
        self.value: int | None = None  # of the incumbent
        self.history: list[FullMipProgress] = []
        self.schedule: Schedule | None = None
        self.plan: Plan | None = None
        self.lower_ns: int | None = None  # whatever K is
        self.certificate: dict[str, Any] = {}  # of that bound
        self.solver_ns: int | None = None  # of the model with K bins
        self.objective_ns: int | None = None  # of the solver's best solution
        self.own_ns: int | None = None  # value of the schedule in it
        self.start_ns: int | None = None  # value of the warm start
        self.start_accepted: bool | None = None
        self.proven = True
        self.done = False
        self.interrupted = False
        self.notes: list[str] = []

    def forget(self) -> None:
        """Drop the incumbent: it has more stages than the model."""
        self.schedule = self.plan = self.value = None

    @property
    def bound_ns(self) -> int | None:
        """The best bound that holds for every number of stages."""
        known = [self.lower_ns, self.solver_ns if self.proven else None]
        return max((value for value in known if value is not None), default=None)

    def begin_with(self, initial: Schedule) -> bool:
        """Take a given schedule as the start; False, with a note, where it is no solution.

        What is no solution of the model may even be better than its optimum (steps that prefill and
        decode at once), and so would contradict its bound as an incumbent.

        Raises ``InvalidScheduleError`` when the checker rejects it.
        """
        bare = initial.bare()
        try:
            plan = plan_of(self.instance, bare)
        except InputError as error:
            self.notes.append(f"the search does not go on from the given schedule: {error.problem}")
            return False
        self.offer(bare, plan)
        return True

    def offer(self, schedule: Schedule, plan: Plan) -> bool:
        """Take a schedule if it is better than the incumbent."""
        value = self.aim.of(schedule)
        if self.value is not None and value >= self.value:
            return False
        self.schedule, self.plan, self.value = schedule, plan, value
        return True

    def on_message(self, message: tuple[str, Any]) -> bool:
        """Take in what the solver found; True ends the search."""
        kind, value = message
        if kind == "bound":
            better = self._on_bound(self.aim.of_units(value))
        else:
            better = self._on_solution(*value)
        if not better:
            return False
        wanted = self.report()
        self.done = self.value is not None and self.value == self.lower_ns
        return wanted or self.done

    def _on_bound(self, bound: int) -> bool:
        """Take a bound of the solver; True if it improves on what is known."""
        known = self.bound_ns
        self.solver_ns = bound if self.solver_ns is None else max(bound, self.solver_ns)
        return self.bound_ns != known

    def _on_solution(self, objective: int, plan: Plan, exact: bool) -> bool:
        """Read a solution back, through the checker; its makespan must be what the model says."""
        schedule = schedule_of(self.instance, plan, problem=self.problem)
        said, found = self.aim.of_units(objective), self.aim.of(schedule)
        if exact and found > said:
            raise OrschedError(f"a schedule of {found} from a solution of {said}: a bug")
        if self.start_accepted is None and self.start_ns is not None:
            self.start_accepted = said <= self.start_ns  # the first solution is the start
        self.objective_ns, self.own_ns = said, found
        return self.offer(schedule, plan)

    def report(self) -> bool:
        """Keep what is known and call the callback; True if it wants the end."""
        makespan = None if self.schedule is None else self.schedule.makespan_ns
        elapsed = perf_counter() - self.begin
        known = self.bound_ns if self.proven else None
        shown = None if known is None else self.aim.shown_ns(known)
        value = None if self.value is None else self.aim.shown_ns(self.value)
        seen = FullMipProgress(makespan, shown, elapsed, value)
        self.history.append(seen)
        return self.callback is not None and self.callback(seen) is True

    def proven_bound(self, answer: Answer) -> int | None:
        """Return the bound to report: none for a K that is not proven to suffice."""
        if self.status(answer) == "optimal":
            return self.value
        return self.bound_ns if self.proven else None

    def schedules(self, answer: Answer) -> ScheduleClass:
        """Return the class of schedules for which bound and status hold."""
        bound = self.proven_bound(answer)
        if bound == 0 and bound == self.value and isinstance(self.aim, MissesAim):
            return ALL_SCHEDULES  # every request meets its limits
        certified = bound is None or (self.lower_ns is not None and bound <= self.lower_ns)
        if certified or pauses_cannot_help(self.problem, self.aim):
            return PLAIN_SCHEDULES
        return WITHOUT_PAUSES

    def status(self, answer: Answer) -> Status:
        """Return what is proven."""
        if self.schedule is None:
            return "infeasible" if answer.solved == "infeasible" else "unknown"
        value, bound = self.value, self.bound_ns
        assert value is not None
        if bound is not None and value < bound:
            raise OrschedError(f"a schedule of {value} is below the bound {bound}: a bug")
        if value == bound:
            return "optimal"
        if not self.proven and self.solver_ns is not None and value <= self.solver_ns:
            return "optimal_for_K"
        return "feasible"
