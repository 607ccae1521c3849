"""What an exact search minimises, as whole numbers, and its incumbent and bound as they come in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.errors import InputError, OrschedError
from orsched.common.stop import Clock
from orsched.data.schedule_classes import ALL_SCHEDULES, PLAIN_SCHEDULES, WITHOUT_PAUSES
from orsched.metrics.class_metrics import request_limits
from orsched.metrics.objective_values import WEIGHTED_TARDINESS, required_due_dates, weighted_times
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import finishes_ns, first_tokens_ns
from orsched.models.exact_search.bounded import FullMipProgress
from orsched.models.exact_search.stage_plan import plan_of, schedule_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.schedule_classes import ScheduleClass
    from orsched.data.service_classes import SLO
    from orsched.metrics.class_metrics import RequestLimits
    from orsched.metrics.objective_values import WeightedTimes
    from orsched.models.exact_search.bounded import Status, Termination
    from orsched.models.exact_search.stage_plan import Plan, Problem
    from orsched.solving.objectives import Objective


class MakespanAim:
    """The makespan in nanoseconds."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def of(self, schedule: Schedule) -> int:
        """Return the value of a schedule."""
        return schedule.makespan_ns

    def of_units(self, units: int) -> int:
        """Return the value that an objective of the model stands for."""
        return self._problem.to_ns(units)

    def shown_ns(self, value: int) -> int:
        """Return a value as callbacks see it, in whole nanoseconds."""
        return value


@dataclass(frozen=True)
class Terms:
    """What the model of an objective needs to know, in units of time. ``makespan``, ``finish``,
    ``first``: coefficients of the end, of last tokens and of first tokens; ``limits``: by request
    the limits on the first token and from there to the last one, -1 for none, or None where the
    request is not judged; None for a sum of times. ``due``: when requests are due, None for those
    that are not judged, in units of which ``fine`` are one of the others; ``late``: how much each
    one's tardiness counts, or None for the largest lateness, to which ``shift`` is added."""

    makespan: int
    finish: tuple[int, ...]
    first: tuple[int, ...]
    limits: tuple[tuple[int, int] | None, ...] | None = None
    due: tuple[int | None, ...] | None = None
    fine: int = 1
    late: tuple[int, ...] | None = None
    shift: int = 0


class TimesAim:
    """A sum of weighted times in nanoseconds: the numerator of the objective."""

    def __init__(self, instance: Instance, problem: Problem, objective: Objective) -> None:
        self._instance, self._problem = instance, problem
        self.times: WeightedTimes = weighted_times(instance, objective)
        times = self.times
        several = times.makespan + sum(times.finish) + sum(times.first)
        self._constant = several * problem.first_ns - times.constant
        self.terms = Terms(times.makespan, times.finish, times.first)

    def of(self, schedule: Schedule) -> int:
        """Return the value of a schedule."""
        return self.times.of(self._instance, schedule)

    def of_units(self, units: int) -> int:
        """Return the value that an objective of the model stands for."""
        return units * self._problem.unit_ns + self._constant

    def shown_ns(self, value: int) -> int:
        """Return a value as callbacks see it, in whole nanoseconds, rounded up."""
        return math.ceil(self.fraction(value))

    def fraction(self, value: int) -> Fraction:
        """Return the objective that a value stands for, in nanoseconds."""
        return self.times.value_ns(value)

    def lower(self, makespan_ns: int, sums_ns: dict[str, int], alone: Alone) -> int:
        """Return a bound on the value: from the makespan, sums over requests and each one alone. A
        sum with unequal coefficients is at least the least of them times the bound on the plain
        sum, and what each has above it times the request alone."""
        total = self.times.makespan * makespan_ns
        arrivals = self._instance.requests.arrival_ns.tolist()
        for name, coefficients, least in (
            ("mean_jct", self.times.finish, alone.finish_ns),
            ("mean_ttft", self.times.first, alone.first_ns),
        ):
            common = min(coefficients)
            plain = max(sums_ns.get(name, 0), sum(least))
            above = zip(coefficients, least, strict=True)
            total += common * plain + sum((each - common) * time for each, time in above)
            total += sum(a * t for a, t in zip(coefficients, arrivals, strict=True))
        return total - self.times.constant


@dataclass(frozen=True)
class Alone:
    """How long each request takes from its arrival to its first and last token, served alone."""

    first_ns: tuple[int, ...]
    finish_ns: tuple[int, ...]


class MissesAim:
    """How many of the judged requests are beyond their limits."""

    def __init__(self, instance: Instance, problem: Problem, slo: SLO | None) -> None:
        self._instance = instance
        self.limits: RequestLimits = request_limits(instance, slo)
        self.judged = len(self.limits.judged)
        n, unit = len(instance), problem.unit_ns
        inside = set(self.limits.judged.tolist())
        pairs = zip(self.limits.ttft_ns.tolist(), self.limits.decode_ns.tolist(), strict=True)
        limits = tuple(
            (_units(ttft, unit), _units(decode, unit)) if row in inside else None
            for row, (ttft, decode) in enumerate(pairs)
        )
        self.terms = Terms(0, (0,) * n, (0,) * n, limits)

    def of(self, schedule: Schedule) -> int:
        """Return the value of a schedule."""
        line = Timeline(self._instance, schedule)
        met = self.limits.attained(self._instance, first_tokens_ns(line), finishes_ns(line))
        return self.judged - met

    def of_units(self, units: int) -> int:
        """Return the value that an objective of the model stands for."""
        return units

    def shown_ns(self, value: int) -> int:
        """Return a value as callbacks see it: requests, not times."""
        return value

    def fraction(self, value: int) -> Fraction | None:
        """Return the attainment that a value stands for; None where no request is judged."""
        return Fraction(self.judged - value, self.judged) if self.judged else None

    def lower(self, alone: Alone) -> int:
        """Return how many requests would miss their limits even if they were served alone."""
        requests = self._instance.requests
        first = np.array(alone.first_ns, np.int64) + requests.arrival_ns
        finish = np.array(alone.finish_ns, np.int64) + requests.arrival_ns
        return self.judged - self.limits.attained(self._instance, first, finish)


class DueAim:
    """Weighted tardiness, summed up, or the largest lateness, in nanoseconds.

    A due date need not be a whole number of the model's units of time. So lateness is counted in
    the largest unit in which both are whole.
    """

    def __init__(self, instance: Instance, problem: Problem, objective: Objective) -> None:
        self._instance, self.objective = instance, objective
        self.dates = required_due_dates(instance, objective.name)
        due_ns = (self.dates.due_ns - problem.first_ns).tolist()
        self._unit_ns = math.gcd(problem.unit_ns, *due_ns)
        due: list[int | None] = [None] * len(instance)
        late = [0] * len(instance)
        for row, at, weight in zip(self.dates.rows, due_ns, self.dates.weights, strict=True):
            due[row], late[row] = at // self._unit_ns, int(weight)
        self.weighted = objective.name == WEIGHTED_TARDINESS
        self._shift = 0 if self.weighted else max(0, *(each or 0 for each in due))
        n, fine = len(instance), problem.unit_ns // self._unit_ns
        counts = tuple(late) if self.weighted else None
        self.terms = Terms(0, (0,) * n, (0,) * n, None, tuple(due), fine, counts, self._shift)

    def of(self, schedule: Schedule) -> int:
        """Return the value of a schedule."""
        return self._of(finishes_ns(Timeline(self._instance, schedule)))

    def _of(self, finish_ns: IntColumn) -> int:
        dates = self.dates
        return (dates.weighted_tardiness if self.weighted else dates.max_lateness)(finish_ns)

    def of_units(self, units: int) -> int:
        """Return the value that an objective of the model stands for."""
        return (units - self._shift) * self._unit_ns

    def shown_ns(self, value: int) -> int:
        """Return a value as callbacks see it, in whole nanoseconds, rounded up."""
        return math.ceil(self.fraction(value))

    def fraction(self, value: int) -> Fraction:
        """Return the objective that a value stands for, in nanoseconds."""
        return Fraction(value, self.dates.weight if self.weighted else 1)

    def lower(self, alone: Alone) -> int:
        """Return the value if each request were served alone: none ends sooner."""
        return self._of(np.array(alone.finish_ns, np.int64) + self._instance.requests.arrival_ns)


def _units(ns: int, unit: int) -> int:
    """Return a limit in units: times are whole units, so what is left over says nothing."""
    return -1 if ns < 0 else ns // unit


Aim = MakespanAim | TimesAim | MissesAim | DueAim


def units_at_least(aim: Aim, value: int) -> int:
    """Return the least objective of a model, in its units, that stands for no less than a value."""
    zero = aim.of_units(0)
    return -((zero - value) // (aim.of_units(1) - zero))


def pauses_cannot_help(problem: Problem, aim: Aim) -> bool:
    """Return whether the least value without pauses is the least with them, too.

    The exact searches enumerate whole prefills, waits, and rounds in which every request
    takes part that is prefilled and not done (``WITHOUT_PAUSES``). A schedule with pauses may still
    be no better than all of these. Let a round take a + b y with y requests in it.

    **The makespan.** Let each request take part in the first rounds behind its prefill, as many as
    it needs. Each stage and round stays in its place, and those from any moment on serve no more
    than before, so that what follows an arrival takes no longer. No request ends later. So the
    makespan has an optimal schedule without pauses, whatever a and b.

    **Sums of times.** Take a round q that leaves out a request s which is on a client, and let s be
    in q in place of its last round e. What comes between q and e comes b later at most, since every
    step begins as early as the one before it and the arrivals let it; from the end of e on nothing
    is late. The last token of s is yielded in a round before e, so it comes a earlier at least: the
    time of e, less b. Its first token comes no later. So nothing is lost where, with the
    coefficients f of last tokens and g of first ones,

        a f_s >= b sum of (f_i + g_i) over all i other than s, for each s that has rounds.

    Each such move lowers the sum of the numbers of the rounds in which requests are, so they end.
    With b = 0 the condition always holds. For the mean JCT of n requests it is a >= b (n - 1). For
    the mean TTFT alone it holds with b = 0 only: who has a first token may pause at no cost, and
    then slows no one. Where it does not hold a pause may help, and the search says nothing of
    schedules with pauses.

    **Attainment.** A pause can make rounds short enough for a limit on TPOT. Only where every
    request meets its limits no other schedule can be better.
    """
    if not isinstance(aim, TimesAim):
        return isinstance(aim, MakespanAim)
    both = [f + g for f, g in zip(aim.terms.finish, aim.terms.first, strict=True)]
    total = sum(both)
    return all(
        problem.round_fixed * f >= problem.round_client * (total - own)
        for f, own, needed in zip(aim.terms.finish, both, problem.needed, strict=True)
        if needed
    )


_FOREVER_S = 1e9  # longer time limits are none: not every solver and clock takes them


class Answer(NamedTuple):
    """How the search ended: ``solved`` is the solver's own status, or "" without one."""

    termination: Termination
    solved: str
    solver: dict[str, Any]
    notes: tuple[str, ...] = ()


class ExactSearch:
    """The incumbent and the bound, as they come in."""

    def __init__(
        self,
        instance: Instance,
        problem: Problem,
        callback: Callable[[FullMipProgress], object] | None,
        begin: float,
        aim: Aim | None = None,
        time_limit: float | None = None,
    ) -> None:
        """Take ``begin``, when the call began on the clock ``perf_counter``, and its limit."""
        self.clock = Clock(time_limit)
        if self.clock.seconds > _FOREVER_S:
            self.clock = Clock(None)
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
        """Take a given schedule as the start; False, with a note, where it is no solution of the
        model: it may even be better than its optimum (steps that prefill and decode at once), and
        would contradict its bound as an incumbent. Raises ``InvalidScheduleError`` when the checker
        rejects it."""
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

    def is_late(self) -> bool:
        """Return whether the time is over."""
        return self.clock.out()

    def part_of_time(self, parts: int) -> float | None:
        """Return one part in so many of the seconds that are left, or None without a limit."""
        return max(1e-3, self.clock.left() / parts) if self.clock.limited else None

    def report_start(self) -> None:
        """Report the first schedule, if there is one."""
        if self.schedule is not None and self.report():
            self.done = True

    def answer_at_once(self) -> Answer | None:
        """Return the answer where there is nothing left to search for, else None."""
        if self.value is not None and self.value == self.lower_ns:
            return Answer("finished", "", {}, ("the first schedule meets the bound",))
        if self.interrupted or self.done:
            return Answer("interrupted" if self.interrupted else "stopped", "", {})
        return None

    def outcome(self, answer: Answer, started: float) -> dict[str, Any]:
        """Return what each result has; ``started``: when the search began, behind its start."""
        now = perf_counter()
        seconds = {"start": started - self.begin, "solve": now - started, "total": now - self.begin}
        return {
            "schedule": self.schedule,
            "status": self.status(answer),
            "termination": answer.termination,
            "runtimes": seconds,
            "notes": (*self.notes, *answer.notes),
            "history": tuple(self.history),
            "schedules": self.schedules(answer),
        }

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
