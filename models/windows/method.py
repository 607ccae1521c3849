"""The method ``windows``: near-optimal schedules at full scale, anytime, with the bound's proof."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from orsched.common.errors import InputError, PolicyError, TimeLimitError
from orsched.common.parameters import read_params
from orsched.common.registry import resolve
from orsched.common.scalars import set_whole
from orsched.common.stop import FirstOf, MaxIterations, MaxRuntime, OnlyTime, gap_met
from orsched.costs import splits
from orsched.models.bounds.bounds import makespan_bound
from orsched.models.compiled_kernels import suggest_numba
from orsched.models.exact_search.stage_plan import plan_of, schedule_of
from orsched.models.windows.stage_prices import affine_beside, smoothed, terms_of
from orsched.models.windows.window_requests import FollowPlan
from orsched.models.windows.window_search import Search
from orsched.models.windows.window_state import compiled
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information
from orsched.solving.methods import Outcome, Progress, Run
from orsched.solving.result import Termination

if TYPE_CHECKING:
    from collections.abc import Generator

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.models.compiled_kernels import Kernels
    from orsched.models.exact_search.stage_plan import Plan
    from orsched.models.windows.moment_search import MomentSearch
    from orsched.models.windows.window_requests import PlannedStage


NEAR_GAP = 0.005
"""A search that starts with a gap up to this goes on where another has ended: no first states."""


def given_start(instance: Instance, initial: Schedule, name: str) -> tuple[Outcome, Plan] | None:
    """Return a valid schedule as an outcome, and its plan; None with chunks, slices or steps that
    prefill and decode at once, which are no paths through stages. Raises ``InvalidScheduleError``
    when the checker rejects it."""
    try:
        plan = plan_of(instance, initial)
    except InputError:
        return None
    schedule = initial.replace(
        results={}, bound=None, run={}, method=name, information="clairvoyant"
    )
    return Outcome(schedule, Termination.ITERATIONS, array("q"), {}), plan


def carried_over(instance: Instance, plan: Plan, name: str) -> Outcome:
    """Return the outcome of a plan on an instance with another cost."""
    schedule = schedule_of(instance, plan, name).replace(information="clairvoyant")
    return Outcome(schedule, Termination.ITERATIONS, array("q"), {})


WARM_START_ITERATIONS = 18
THREADS = 2
MOST_THREADS = 64
SHORT_S = 60.0
"""Seconds of the search that comes first where there are more than twice as many: annealing is
slower the more time there is and ends elsewhere, but more time should not give a worse answer."""
STARTS, START_SHARE, MOST_TO_RESTART = 3, 0.2, 300
"""Searches from the start, the share of the time that each gets, and most requests for it, under a
time limit: how well a search ends is mostly decided early, and they differ. The last continues from
the best of them."""
SMOOTH_STARTS, SMOOTH_SHARE = 2, 0.85
"""Under levels this many of these starts are under the smoothed cost; above that many requests one
is, for this share of the time."""


@dataclass(frozen=True)
class WindowsParams:
    """Parameters of ``windows``.

    Attributes:
        threads: threads of the search; a fixed number makes a seed's schedule the same on every
            machine.
    """

    threads: int = THREADS

    def __post_init__(self) -> None:
        set_whole(self, "threads", minimum=1, maximum=MOST_THREADS)


@dataclass(frozen=True)
class WindowsMethod:
    """Warm start from ``hybrid`` or a given schedule, then the search over stage windows."""

    name: str = "windows"
    information: tuple[Information, ...] = (Information.CLAIRVOYANT,)
    summary: str = "search over stage times and windows, anytime; close to the bound at full scale"
    params: ClassVar[type] = WindowsParams

    def check_parameters(self, parameters: dict[str, Any]) -> None:
        """Raise ``InputError`` for parameters that are wrong on whatever instance."""
        read_params(WindowsParams, parameters)

    def require_fit(
        self, instance: Instance, information: Information, parameters: dict[str, Any]
    ) -> None:
        """Refuse instances that it does not plan."""
        require_plannable(instance)

    def __call__(self, instance: Instance, run: Run) -> Outcome:
        """Search until ``run.stop``; an iteration is one target of the search.

        Where time does not split into stages and rounds, the search is under an affine cost near to
        the real one, and each plan is carried out under the real one.

        ``run.initial_schedule`` is where the search starts, if it has whole stages and is no worse
        than the heuristic's; one that is close to the bound is where it goes on, without first
        states. Of any other valid schedule ``solve`` sees to it that the answer is no worse.

        Raises ``InputError`` for instances that it does not plan, ``InvalidScheduleError`` for an
        initial schedule that breaks a rule, and ``TimeLimitError`` when not even the warm start was
        ready in time.
        """
        threads: int = read_params(WindowsParams, run.parameters).threads
        require_plannable(instance)
        suggest_numba("windows is about 100 times faster")
        fast = compiled()
        lower = makespan_bound(instance).value_ns if run.bound_ns is None else run.bound_ns
        best, plan = self._start(instance, run, lower)
        best = best._replace(parameters={"threads": threads})
        if best.schedule.makespan_ns <= lower:
            return best._replace(termination=Termination.FINISHED)
        if run.stop.seconds_left == math.inf:
            fast.wait()
        if gap_met(run.stop, best.schedule.makespan_ns):
            return best._replace(termination=Termination.TARGET_GAP)
        follower = _Follower(instance, best, self.name)
        if plan is None:
            searches = self._searches(follower, run, threads, fast)
        else:
            searches = self._continued(follower, plan, run, threads, fast)
        iteration = 0
        try:
            for search, schedule in searches:
                for attempt in search.attempts(schedule):
                    iteration += 1
                    makespan = follower.best.schedule.makespan_ns
                    run.report(Progress(self.name, iteration, makespan, attempt.success))
                    if makespan <= lower or search.run.stop(iteration, makespan):
                        break
                makespan = follower.best.schedule.makespan_ns
                if makespan <= lower or run.stop(iteration, makespan):
                    break
            termination = self._why(run, follower.best.schedule.makespan_ns, lower)
        except KeyboardInterrupt:
            termination = Termination.INTERRUPTED
        searches.close()
        return follower.best._replace(termination=termination, parameters={"threads": threads})

    def _searches(
        self, follower: _Follower, run: Run, threads: int, fast: Kernels
    ) -> Generator[tuple[Search, Schedule]]:
        """Yield searches, each with the schedule that it starts from; the last takes all time."""
        n, first, seconds = len(follower.instance), follower.best.schedule, run.stop.seconds_left
        if 2 * SHORT_S < seconds < math.inf:
            yield from self._searches(follower, _part(run, SHORT_S), threads, fast)
        if not splits(follower.instance.worker.cost):
            yield from self._beside(follower, run, threads, fast)
            return
        timed, smooth = 0 < seconds < math.inf, smoothed(follower.instance)
        starts, share = (STARTS, START_SHARE) if n <= MOST_TO_RESTART else (1, SMOOTH_SHARE)
        if timed and (starts > 1 or smooth is not None):
            for start in range(1, starts + 1):
                part = replace(_part(run, share * seconds), seed=run.seed + (start << 32))
                if smooth is not None and start <= SMOOTH_STARTS:
                    yield from self._smoothly(smooth, follower, part, run, threads, fast)
                else:
                    yield follower.search(part, threads, fast), first
        begin = first if n > MOST_TO_RESTART else follower.best.schedule
        yield follower.search(run, threads, fast), begin

    def _smoothly(
        self,
        smooth: Instance,
        follower: _Follower,
        part: Run,
        run: Run,
        threads: int,
        fast: Kernels,
    ) -> Generator[tuple[Search, Schedule]]:
        """Yield a search under the smoothed cost; carry out under the levels what it found."""
        try:
            start = self._warm_start(smooth, replace(part, callback=None))
        except TimeLimitError:  # the other schedule stands
            return
        easier = _Follower(smooth, start, self.name, at_moments=False)
        search = easier.search(part, threads, fast)
        try:
            yield search, start.schedule
        finally:
            for state in reversed(search.last):
                follower.search(run, threads, fast).carry_out(state)

    def _beside(
        self, follower: _Follower, run: Run, threads: int, fast: Kernels
    ) -> Generator[tuple[Search, Schedule]]:
        """Yield a search under an affine cost near to the real one, whose plans are carried out."""
        line = affine_beside(follower.instance, follower.best.schedule)
        try:
            start = self._warm_start(line, replace(run, callback=None))
        except TimeLimitError:  # the other schedule stands
            return
        easier = _Beside(line, start, self.name, follower)
        yield easier.search(run, threads, fast), start.schedule

    def _start(self, instance: Instance, run: Run, lower_ns: int) -> tuple[Outcome, Plan | None]:
        """Return the shorter one of the given schedule and the heuristic's. With its plan if it is
        a given one that is so close to the bound that the search goes on."""
        initial = run.initial_schedule
        given = None if initial is None else given_start(instance, initial, self.name)
        if given is None:
            return self._warm_start(instance, run), None
        outcome, plan = given
        makespan = outcome.schedule.makespan_ns
        if makespan <= (1 + NEAR_GAP) * lower_ns:
            run.report(Progress(self.name, 0, makespan, True))
            return outcome, plan
        try:
            found = self._warm_start(instance, run)
        except TimeLimitError:
            return outcome, None
        return min(outcome, found, key=lambda each: each.schedule.makespan_ns), None

    def _continued(
        self, follower: _Follower, plan: Plan, run: Run, threads: int, fast: Kernels
    ) -> Generator[tuple[Search, Schedule]]:
        """Yield a search that goes on from a plan, where another has ended."""
        if not splits(follower.instance.worker.cost):
            line = affine_beside(follower.instance, follower.best.schedule)
            start = carried_over(line, plan, self.name)
            follower = _Beside(line, start, self.name, follower)
        search = follower.search(run, threads, fast)
        search.piloted = True
        yield search, follower.best.schedule

    def _warm_start(self, instance: Instance, run: Run) -> Outcome:
        hybrid = resolve("methods", "hybrid")
        stop = FirstOf((OnlyTime(run.stop), MaxIterations(WARM_START_ITERATIONS)))
        shorter = replace(run, parameters={}, callback=None, stop=stop)
        outcome: Outcome = hybrid(instance, shorter)
        run.report(Progress(self.name, 0, outcome.schedule.makespan_ns, True))
        schedule = outcome.schedule.replace(method=self.name)
        return outcome._replace(schedule=schedule)

    @staticmethod
    def _why(run: Run, makespan_ns: int, lower_ns: int) -> Termination:
        if makespan_ns <= lower_ns:
            return Termination.FINISHED
        if gap_met(run.stop, makespan_ns):
            return Termination.TARGET_GAP
        return Termination.TIME_LIMIT if run.out_of_time() else Termination.ITERATIONS


def _part(run: Run, seconds: float) -> Run:
    """Return a run that ends after a time of its own, too."""
    own = MaxRuntime(seconds)
    own.start()
    return replace(run, stop=FirstOf((run.stop, own)))


class _Follower:
    """Carries out plans and keeps the best schedule. ``at_moments``: whether prices may move stage
    times; under a cost that only stands for another one this has not been seen to help."""

    def __init__(
        self, instance: Instance, best: Outcome, name: str, at_moments: bool = True
    ) -> None:
        self.instance, self.best, self.name = instance, best, name
        self.at_moments = at_moments
        self.moments: MomentSearch | None = None

    def search(self, run: Run, threads: int, fast: Kernels) -> Search:
        """Return a search whose plans are carried out here."""
        terms = terms_of(self.instance)
        made = Search(self.instance, terms, run.seed, run, threads, fast, self.makespan)
        if not self.at_moments:
            made.moments = None
        elif self.moments is not None and made.moments is not None:
            made.moments = self.moments  # it goes on where it was
        self.moments = made.moments
        return made

    def makespan(self, plan: list[PlannedStage]) -> int | None:
        """Return the makespan of a plan, or None where memory does not hold it."""
        try:
            done = simulate_policy(self.instance, FollowPlan(plan, self.name))
        except PolicyError:
            return None
        if done.schedule.makespan_ns < self.best.schedule.makespan_ns:
            self.best = Outcome(done.schedule, Termination.ITERATIONS, done.decision_ns, {})
        return done.schedule.makespan_ns


class _Beside(_Follower):
    """Carries out plans under a cost beside the real one, and under the real one, too."""

    def __init__(self, instance: Instance, best: Outcome, name: str, real: _Follower) -> None:
        super().__init__(instance, best, name, at_moments=False)
        self.real = real

    def makespan(self, plan: list[PlannedStage]) -> int | None:
        """Return the makespan under the cost of the search; the real one keeps its best."""
        self.real.makespan(plan)
        return super().makespan(plan)


def require_plannable(instance: Instance) -> None:
    """Raise ``InputError`` unless there is one worker, and all requests are there at once."""
    instance.require_stages("windows")
    arrivals = instance.requests.arrival_ns
    if len(arrivals) and int(arrivals.max()) > int(arrivals.min()):
        raise InputError(
            "windows plans requests that all arrive at the same time",
            field="arrival_ns",
            remedy="set arrivals to 0, or choose another method",
        )


WINDOWS = WindowsMethod()
