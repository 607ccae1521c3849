"""The best-first search on an instance: incumbent and bound, whatever ends it."""

from __future__ import annotations

import math
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING, Any

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, TimeLimitError
from orsched.common.registry import attached
from orsched.models.best_first.packed import Packed, engine, fits
from orsched.models.best_first.states import BestFirst, States
from orsched.models.exact_search.aims import Answer, ExactSearch, units_at_least
from orsched.models.exact_search.best_first import (
    MAX_FIRST_STAGES,
    MAX_STATES,
    BestFirstRun,
    first_values,
)
from orsched.models.exact_search.bounded import BestFirstResult
from orsched.models.exact_search.stage_plan import plan_of, read_problem
from orsched.models.exact_search.starts import prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.models.compiled_kernels import Kernels
    from orsched.models.exact_search.bounded import FullMipProgress

MAX_PACKED = 20_000_000  # states that the compiled search keeps at most: a hundred bytes each

_PLAIN_STATES = 1_000  # what plain Python expands before the compiled search takes over

_LOADED_AFTER = 100  # what it expands before that is loaded: many instances have ended by then


def refusal(instance: Instance) -> str:
    """Return why the best-first search does not take an instance, or ""."""
    problem = read_problem(instance)
    if problem.timed:
        return "requests arrive over time: a stage cannot be moved back before an arrival"
    count = States(problem).first_stages
    if count > MAX_FIRST_STAGES:
        return f"{count:,} first stages are possible, more than {MAX_FIRST_STAGES:,}"
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
    search = ExactSearch(instance, problem, callback, begin, time_limit=time_limit)
    prepare(search, initial_schedule, alone)
    started = perf_counter()
    second = SecondStart(search, seed, not alone)
    answer = search.answer_at_once() or _searched(search, max_states, second)
    return BestFirstResult(
        bound_ns=search.proven_bound(answer),
        expanded=answer.solver.get("expanded", 0),
        left_out=answer.solver.get("left_out", 0),
        **search.outcome(answer, started),
    )


def _searched(search: ExactSearch, max_states: int | None, second: SecondStart) -> Answer:
    states = States(search.problem)
    if states.first_stages > MAX_FIRST_STAGES:
        return Answer("too_large", "", {}, (f"{states.first_stages:,} first stages are possible",))
    return _Phases(search, states, max_states, second).answer()


class _Phases(BestFirstRun):
    """The plain search, and the compiled one where it is there and takes the states."""

    found: BestFirst | Packed

    def __init__(
        self, search: ExactSearch, states: States, max_states: int | None, second: SecondStart
    ) -> None:
        super().__init__(search, BestFirst(states, *first_values(search), max_states or MAX_STATES))
        self.states, self.max_states, self.second = states, max_states, second
        self.engine: Kernels | None = None
        self.packs, self.stopped = fits(states), False

    def _searched(self) -> str:
        """Search in one phase or two."""
        why = self._phase()
        if why == "time_limit" and not self.search.is_late() and self._is_ready():
            assert self.engine is not None
            self._close()
            best, bound, most = self.found.best, self.found.bound, self.max_states or MAX_PACKED
            weights = _weights(self.search.certificate)
            self.found = Packed(self.states, best, bound, most, weights, self.engine.module)
            why = self._phase()
        return why

    def _phase(self) -> str:
        why = super()._searched()
        return "stopped" if self.stopped else why

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
        return self.stopped or self.search.is_late()

    def _start_again(self) -> None:
        """Search for a better incumbent in another way, and go on below it."""
        self._take()
        if self.second.better():
            assert self.search.value is not None
            self.found.beat(units_at_least(self.search.aim, self.search.value))
            self.stopped = self.search.report()


def _weights(certificate: dict[str, Any]) -> list[dict[int, int]]:
    """Return the weights, by rounds, with which the analytic bound was proven."""
    duals = certificate.get("decode_rounds", {}).get("duals", ())
    return [{int(rounds): int(weight) for rounds, weight in duals}] if duals else []


AFTER_STATES = 50_000  # states that are expanded before it: most small instances have ended by then

AFTER_SHARE = 0.1  # or this share of the time limit, where states are slow

SHARE, MOST_S, LEAST_S = 0.05, 5.0, 0.25
"""Its share of the time limit, and seconds: at most, and with less it is left out."""

ITERATIONS = 20
"""Of ``windows`` without a time limit: reproducible, a second with 30 requests on 5 clients."""


class SecondStart:
    """A second start: a while of the method ``windows``, where best-first has not ended soon.
    Best-first search works on the bound: the incumbent is that of ``hybrid`` until a state is left
    whose bound is that of the optimum. Out of time it would be the answer, though a search for
    schedules often finds a shorter one in a second. This says when that is due, once, and then
    offers its schedule to the search (``wanted`` False: never)."""

    def __init__(self, search: ExactSearch, seed: int, wanted: bool) -> None:
        self.search, self.clock, self.seed = search, search.clock, seed
        limit = self.clock.seconds
        self.seconds = type(limit)(min(MOST_S, SHARE * limit)) if self.clock.limited else math.inf
        self.left = wanted and self.seconds >= LEAST_S and find_spec("numba") is not None

    def is_due(self, expanded: int) -> bool:
        """Whether to begin now, with so many states expanded."""
        if not self.left:
            return False
        if expanded >= AFTER_STATES or not self.clock.limited:
            return expanded >= AFTER_STATES
        return self.clock.left() <= (1 - AFTER_SHARE) * self.clock.seconds

    def better(self) -> bool:
        """Search, and return whether there is a better incumbent; Ctrl-C goes on to the caller."""
        self.left, search = False, self.search
        seconds = min(self.seconds, self.clock.left())
        if seconds <= 0:
            return False
        limited = self.clock.limited
        limits = {"time_limit": seconds} if limited else {"iterations": ITERATIONS}
        try:
            found = attached("solve")(
                search.instance, "windows", seed=self.seed, parameters={"threads": 1}, **limits
            )
            bare = found.schedule.bare()
            better = search.offer(bare, plan_of(search.instance, bare))
        except (InputError, TimeLimitError):  # what windows does not plan; no time to begin
            return False
        if found.termination == "interrupted":
            raise KeyboardInterrupt
        return better
