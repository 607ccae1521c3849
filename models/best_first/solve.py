"""The best-first search on an instance: incumbent and bound, whatever ends it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, OrschedError
from orsched.common.stop import MaxRuntime
from orsched.data.schedule_classes import PLAIN_SCHEDULES
from orsched.models.best_first.compiled import engine
from orsched.models.best_first.packed import Packed, fits
from orsched.models.best_first.search import BestFirst
from orsched.models.best_first.second_start import SecondStart
from orsched.models.best_first.states import States
from orsched.models.full_mip.plan import schedule_of
from orsched.models.full_mip.problem import read_problem
from orsched.models.full_mip.result import Bounded
from orsched.models.full_mip.search import Answer, Search
from orsched.models.full_mip.solve import prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.schedule_classes import ScheduleClass
    from orsched.models.best_first.compiled import Engine
    from orsched.models.full_mip.problem import Problem
    from orsched.models.full_mip.result import FullMipProgress, Status, Termination

MAX_STATES = 2_000_000
"""States that are kept at most: a bit over a kilobyte each, with the way to them."""

MAX_PACKED = 20_000_000
"""The same of the compiled search: a hundred bytes each."""

_PLAIN_STATES = 1_000
"""What plain Python expands before the compiled search takes over."""

_LOADED_AFTER = 100
"""What it expands before that is loaded: many instances have ended by then."""

MAX_FIRST_STAGES = 100_000
"""With more first stages to choose from the search would not get beyond them."""

_NO_TIME = 2**62


@dataclass(frozen=True)
class BestFirstResult(Bounded):
    """The answer of the best-first search.

    Attributes:
        schedule: the best schedule, accepted by the independent checker, or None.
        bound_ns: a proven lower bound on the makespan, or None.
        status: ``optimal``, ``feasible``, or ``unknown``: no schedule yet.
        termination: ``finished``; ``time_limit``; ``too_large``: as many states as are kept, or too
            many first stages; ``stopped`` by the callback; ``interrupted`` by Ctrl-C.
        expanded, left_out: states whose successors were looked at; those of which another is known
            to lead to no worse an end.
        runtimes: seconds, ``start`` (bound and heuristic), ``solve`` and ``total``.
        notes: remarks.
        history: each better makespan and bound in time, as a callback sees it.
        schedules: the class of schedules for which bound and status hold.
    """

    schedule: Schedule | None
    bound_ns: int | None
    status: Status
    termination: Termination
    expanded: int
    left_out: int
    runtimes: dict[str, float] = field(default_factory=dict, compare=False)
    notes: tuple[str, ...] = ()
    history: tuple[FullMipProgress, ...] = field(default=(), repr=False, compare=False)
    schedules: ScheduleClass = PLAIN_SCHEDULES


def refusal(instance: Instance) -> str:
    """Return why the best-first search does not take an instance, or ""."""
    problem = read_problem(instance)
    if problem.timed:
        return "requests arrive over time: a stage cannot be moved back before an arrival"
    count = States(problem).first_stages
    if count > MAX_FIRST_STAGES:
        return f"there are {count:,} first stages, more than {MAX_FIRST_STAGES:,}"
    return ""


def solve_best_first(
    instance: Instance,
    time_limit: float | None = None,
    initial_schedule: Schedule | None = None,
    callback: Callable[[FullMipProgress], object] | None = None,
    *,
    max_states: int | None = None,
    alone: bool = False,
    seed: int = 0,
) -> BestFirstResult:
    """Search over finish events, the state of the least bound first (``states``).

    It is reproducible but for the clock. Prefill caps, levels and memory are as they are; with
    them every stage that fits is tried, which takes much longer than where a stage takes a fixed
    time, however full it is. There numba (extra ``fast``), once it is loaded, takes over after the
    first thousand states, some twenty times as fast. Behind 50,000 states, or a tenth of the time
    limit, ``windows`` has a twentieth of it, at most 5 s, to find a shorter schedule (with numba,
    and from 5 s on); without a limit it has a few iterations.

    Args:
        instance: one worker, all requests there at once; levels, affine or another cost model that
            splits by counts.
        time_limit: seconds from this call to its return.
        initial_schedule: any valid schedule; default: that of ``hybrid``, also in the place of one
            that is no solution (mixed steps, chunks), which a note says.
        callback: called with ``FullMipProgress`` after each better incumbent or bound; returning
            True ends the search.
        max_states: with more states the search ends and says what it has proven; default: two
            million, and twenty million compiled.
        alone: search without heuristics and analytic bound: the reference for tests.
        seed: of ``windows``; the search itself draws nothing.

    Raises:
        InputError: an argument is wrong, or requests arrive over time.
        InfeasibleError: no schedule exists; names the request and the limit.
        InvalidScheduleError: the initial schedule is not valid.
    """
    begin = perf_counter()
    if time_limit is not None:
        MaxRuntime(time_limit)  # validates
    if max_states is not None:
        max_states = whole_number(max_states, "max_states", minimum=1)
    seed = whole_number(seed, "seed")
    problem = read_problem(instance)
    if problem.timed:
        raise InputError(
            "the best-first search takes no arrivals",
            field="requests.arrival_ns",
            remedy="let all requests arrive at once, or use exact with search=mip",
        )
    end = None if time_limit is None else begin + time_limit
    search = Search(instance, problem, callback, begin)
    prepare(search, initial_schedule, alone, end)
    started = perf_counter()
    answer = _run(search, end, max_states, SecondStart(search, end, seed, not alone))
    runtimes = {"start": started - begin, "solve": perf_counter() - started}
    runtimes["total"] = perf_counter() - begin
    counted = answer.solver
    return BestFirstResult(
        search.schedule,
        search.proven_bound(answer),
        search.status(answer),
        answer.termination,
        counted.get("expanded", 0),
        counted.get("left_out", 0),
        runtimes,
        (*search.notes, *answer.notes),
        tuple(search.history),
        search.schedules(answer),
    )


def _run(search: Search, end: float | None, max_states: int | None, second: SecondStart) -> Answer:
    """Search, unless there is nothing left to search for."""
    if search.schedule is not None and search.schedule.makespan_ns == search.lower_ns:
        return Answer("finished", "", {}, ("the first schedule meets the bound",))
    if search.interrupted or search.done:
        return Answer("interrupted" if search.interrupted else "stopped", "", {})
    states = States(search.problem)
    if states.first_stages > MAX_FIRST_STAGES:
        return Answer("too_large", "", {}, (f"there are {states.first_stages:,} first stages",))
    return _Phases(search, states, end, max_states, second).run()


class _Phases:
    """The plain search, and the compiled one where it is there and takes the states."""

    def __init__(
        self,
        search: Search,
        states: States,
        end: float | None,
        max_states: int | None,
        second: SecondStart,
    ) -> None:
        self.second, self.stopped = second, False
        self.search, self.states, self.end, self.max_states = search, states, end, max_states
        self.engine: Engine | None = None
        self.packs = fits(states)
        problem, known = search.problem, search.schedule
        best = _NO_TIME if known is None else _units(problem, known.makespan_ns)
        lower = 0 if search.lower_ns is None else max(0, _units(problem, search.lower_ns))
        self.most = max_states or MAX_STATES
        self.found: BestFirst | Packed = BestFirst(states, best, lower, self.most)
        self.counted = {"expanded": 0, "left_out": 0}

    def run(self) -> Answer:
        """Search in one phase or two."""
        termination: Any = "interrupted"
        with suppress(KeyboardInterrupt):
            termination = self._phase()
            if termination == "time_limit" and not self._is_late() and self._is_ready():
                _take(self.search, self.found)
                self._count()
                self.most = self.max_states or MAX_PACKED
                plain, module = self.found, getattr(self.engine, "module", None)
                weights = _weights(self.search.certificate)
                self.found = Packed(
                    self.states, plain.best, plain.bound, self.most, weights, module
                )
                termination = self._phase()
        if termination == "finished" and self.found.best == _NO_TIME:
            raise OrschedError("the search found no schedule where there must be one: a bug")
        _take(self.search, self.found)
        self._count()
        if termination == "finished":
            self.search.report()  # the last bound, when it is too late to end anything
        notes = (f"more than {self.most:,} states",) if termination == "too_large" else ()
        return Answer(termination, "", self.counted, notes)

    def _phase(self) -> Any:
        termination = self.found.run(self._is_over, self._improved)
        return "stopped" if self.stopped else termination

    def _is_late(self) -> bool:
        return self.end is not None and perf_counter() >= self.end

    def _is_ready(self) -> bool:
        """Whether the compiled search is there to take over."""
        expanded = self.found.expanded
        if self.packs and self.engine is None and expanded >= _LOADED_AFTER:
            self.engine = engine(self.states)
        ready = self.engine is not None and self.engine.module is not None
        return ready and expanded >= _PLAIN_STATES

    def _is_over(self) -> bool:
        if isinstance(self.found, BestFirst) and self._is_ready():
            return True
        if self.second.is_due(self.found.expanded):
            self._start_again()
        return self.stopped or self._is_late()

    def _start_again(self) -> None:
        """Search for a better incumbent in another way, and go on below it."""
        _take(self.search, self.found)
        if self.second.better():
            assert self.search.schedule is not None
            self.found.beat(_units(self.search.problem, self.search.schedule.makespan_ns))
            self.stopped = self.search.report()

    def _improved(self) -> bool:
        _take(self.search, self.found)
        return self.search.report()

    def _count(self) -> None:
        self.counted["expanded"] += self.found.expanded
        self.counted["left_out"] += self.found.left_out


def _weights(certificate: dict[str, Any]) -> list[dict[int, int]]:
    """Return the weights, by rounds, with which the analytic bound was proven."""
    duals = certificate.get("decode_rounds", {}).get("duals", ())
    return [{int(rounds): int(weight) for rounds, weight in duals}] if duals else []


def _take(search: Search, found: BestFirst | Packed) -> None:
    """Take over bound and incumbent; the incumbent becomes a schedule, through the checker."""
    problem, plan = search.problem, found.plan()
    if found.bound < _NO_TIME:
        search.solver_ns = max(problem.to_ns(found.bound), search.solver_ns or 0)
    said = problem.to_ns(found.best)
    if plan is None or (search.schedule is not None and search.schedule.makespan_ns <= said):
        return
    schedule = schedule_of(search.instance, plan, "best-first")
    if schedule.makespan_ns != said:
        raise OrschedError(f"a schedule of {schedule.makespan_ns} ns from {said} ns: a bug")
    search.offer(schedule, plan)


def _units(problem: Problem, time_ns: int) -> int:
    """Return the least objective, in units, that is no earlier than a moment."""
    return -(-(time_ns - problem.first_ns - problem.constant_ns) // problem.unit_ns)
