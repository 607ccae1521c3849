"""The search for sums of times on an instance: incumbent and bound, whatever ends it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, OrschedError
from orsched.common.stop import MaxRuntime
from orsched.data.schedule_classes import PLAIN_SCHEDULES
from orsched.models.best_first_times.cases import read_case
from orsched.models.best_first_times.epochs import Epochs
from orsched.models.best_first_times.search import NO_COST, TimesSearch
from orsched.models.full_mip.aim import TimesAim
from orsched.models.full_mip.objectives import lower_bound, offer_starts
from orsched.models.full_mip.plan import schedule_of
from orsched.models.full_mip.problem import read_problem
from orsched.models.full_mip.result import Bounded
from orsched.models.full_mip.search import Answer, Search
from orsched.solving.objectives import Objective, minimised

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.schedule_classes import ScheduleClass
    from orsched.models.full_mip.result import FullMipProgress, Status, Termination

MAX_STATES = 2_000_000
"""States that are kept at most: about a kilobyte each, with the way to them."""

MAX_FIRST_STAGES = 100_000
"""With more first stages to choose from the search would not get beyond them."""


@dataclass(frozen=True)
class BestFirstTimesResult(Bounded):
    """The answer of the search for a sum of times.

    Attributes:
        schedule: the best schedule, accepted by the independent checker, or None.
        bound_ns: a proven lower bound on the objective, rounded up, or None.
        status: ``optimal``, ``feasible``, or ``unknown``: no schedule yet.
        termination: ``finished``; ``time_limit``; ``too_large``: as many states as are kept;
            ``stopped`` by the callback; ``interrupted`` by Ctrl-C.
        objective: what was minimised.
        value, value_bound: exactly, times in nanoseconds.
        expanded, left_out: states whose successors were looked at; those of which another is known
            to lead to no worse an end.
        runtimes: seconds, ``start`` (bound and heuristics), ``solve`` and ``total``.
        notes: remarks.
        history: each better value and bound in time, as a callback sees it.
        schedules: the class of schedules for which bound and status hold.
    """

    schedule: Schedule | None
    bound_ns: int | None
    status: Status
    termination: Termination
    objective: str
    value: Fraction | None
    value_bound: Fraction | None
    expanded: int
    left_out: int
    runtimes: dict[str, float] = field(default_factory=dict, compare=False)
    notes: tuple[str, ...] = ()
    history: tuple[FullMipProgress, ...] = field(default=(), repr=False, compare=False)
    schedules: ScheduleClass = PLAIN_SCHEDULES

    @property
    def gap(self) -> float | None:
        """How far the objective is from its bound, by the bound, or None."""
        if self.value is None or not self.value_bound:
            return None
        return float((self.value - self.value_bound) / self.value_bound)


def refusal_for_times(instance: Instance, objective: Objective) -> str:
    """Return why this search does not take an instance and an objective, or ""."""
    if not objective.is_linear:
        return f"{objective.name} is no sum of times"
    if len(instance) == 0:
        return "there are no requests"
    problem = read_problem(instance, exact=True)
    terms = TimesAim(instance, problem, objective).terms
    count = read_case(problem, terms, instance.first_token != "prefill").first_stages
    if count > MAX_FIRST_STAGES:
        return f"there are up to {count:,} first stages, more than {MAX_FIRST_STAGES:,}"
    return ""


def solve_best_first_times(
    instance: Instance,
    objective: str | Objective = "jct_mean",
    time_limit: float | None = None,
    initial_schedule: Schedule | None = None,
    callback: Callable[[FullMipProgress], object] | None = None,
    *,
    max_states: int = MAX_STATES,
    alone: bool = False,
) -> BestFirstTimesResult:
    """Minimise a sum of times over schedules without pauses, the state of the least bound first.

    Which schedules are enumerated, and why no other is better: ``epochs``. Reproducible but for the
    clock. Arrivals, memory, prefill caps, levels and weights are as they are.

    Args:
        instance: one worker, at least one request; a cost model that the full MIP takes.
        objective: means of completion times or first tokens, weighted ones, the makespan, or
            weighted sums of these.
        time_limit: seconds from this call to its return.
        initial_schedule: any valid schedule; policies are run beside.
        callback: called with ``FullMipProgress`` after each better incumbent or bound; returning
            True ends the search.
        max_states: with more states the search ends and says what it has proven.
        alone: search without heuristics and certified bounds: the reference for tests.

    Raises:
        InputError: an argument is wrong, or the instance or objective is not taken.
        InfeasibleError: no schedule exists; names the request and the limit.
        InvalidScheduleError: the initial schedule is not valid.
    """
    begin = perf_counter()
    if time_limit is not None:
        MaxRuntime(time_limit)  # validates
    max_states = whole_number(max_states, "max_states", minimum=1)
    wanted = minimised(objective)
    why_not = refusal_for_times(instance, wanted)
    if why_not:
        raise InputError(
            f"the best-first search does not take this: {why_not}",
            field="objective",
            remedy="use exact with search=mip, or latency_search",
        )
    problem = read_problem(instance, exact=True)
    aim = TimesAim(instance, problem, wanted)
    search = Search(instance, problem, callback, begin, aim)
    end = None if time_limit is None else begin + time_limit
    if not alone:
        search.lower_ns = lower_bound(instance, problem, aim, end)
    offer_starts(search, initial_schedule, alone, end)
    if search.schedule is not None and search.report():
        search.done = True
    started = perf_counter()
    answer = _run(search, aim, end, max_states)
    runtimes = {"start": started - begin, "solve": perf_counter() - started}
    runtimes["total"] = perf_counter() - begin
    bound = search.proven_bound(answer)
    return BestFirstTimesResult(
        search.schedule,
        None if bound is None else aim.shown_ns(bound),
        search.status(answer),
        answer.termination,
        wanted.name,
        None if search.value is None else aim.fraction(search.value),
        None if bound is None else aim.fraction(bound),
        answer.solver.get("expanded", 0),
        answer.solver.get("left_out", 0),
        runtimes,
        (*search.notes, *answer.notes),
        tuple(search.history),
        search.schedules(answer),
    )


def _run(search: Search, aim: TimesAim, end: float | None, max_states: int) -> Answer:
    """Search, unless there is nothing left to search for."""
    if search.value is not None and search.value == search.lower_ns:
        return Answer("finished", "", {}, ("the first schedule meets the bound",))
    if search.interrupted or search.done:
        return Answer("interrupted" if search.interrupted else "stopped", "", {})
    in_round = search.instance.first_token != "prefill"
    epochs = Epochs(read_case(search.problem, aim.terms, in_round))
    best = NO_COST if search.value is None else _units(aim, search.value)
    lower = 0 if search.lower_ns is None else max(0, _units(aim, search.lower_ns))
    found = TimesSearch(epochs, best, lower, max_states)

    def improved() -> bool:
        _take(search, aim, found)
        return search.report()

    termination: Any = "interrupted"
    with suppress(KeyboardInterrupt):
        termination = found.run(lambda: end is not None and perf_counter() >= end, improved)
    if termination == "finished" and found.best == NO_COST:
        raise OrschedError("the search found no schedule where there must be one: a bug")
    _take(search, aim, found)
    if termination == "finished":
        search.report()  # the last bound, when it is too late to end anything
    notes = (f"more than {max_states:,} states",) if termination == "too_large" else ()
    counted = {"expanded": found.expanded, "left_out": found.left_out}
    return Answer(termination, "", counted, notes)


def _take(search: Search, aim: TimesAim, found: TimesSearch) -> None:
    """Take over bound and incumbent; the incumbent becomes a schedule, through the checker."""
    if found.bound < NO_COST:
        search.solver_ns = max(aim.of_units(found.bound), search.solver_ns or 0)
    said, plan = aim.of_units(found.best), found.plan()
    if plan is None or (search.value is not None and search.value <= said):
        return
    schedule = schedule_of(search.instance, plan, "best-first", search.problem)
    value = aim.of(schedule)
    if value != said:
        raise OrschedError(f"a schedule of {value} from {said}: a bug")
    search.offer(schedule, plan)


def _units(aim: TimesAim, value: int) -> int:
    """Return the least cost, in units, that is no less than a value."""
    zero = aim.of_units(0)
    return -((zero - value) // (aim.of_units(1) - zero))
