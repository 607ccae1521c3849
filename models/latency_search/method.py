"""The method ``latency_search``: anytime search for means of times, mixtures and tardiness."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from orsched.common.errors import OrschedError, TimeLimitError
from orsched.common.parameters import read_params
from orsched.common.registry import resolve
from orsched.common.scalars import require_bool
from orsched.common.stop import FirstOf, MaxIterations, OnlyTime
from orsched.data.schedule_classes import allowances_of
from orsched.metrics.objective_values import WEIGHTED_TARDINESS
from orsched.models.compiled_kernels import suggest_numba
from orsched.models.latency_search import decoding, plan_moves
from orsched.models.latency_search.latency_plans import (
    FollowSteps,
    PlannedStep,
    Problem,
    Tables,
    engine,
    plans_of,
    problem_of,
    require_searchable,
    steps_of,
    tables_of,
)
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information
from orsched.solving.methods import Outcome, Progress, Run
from orsched.solving.objectives import LINEAR
from orsched.solving.result import Termination

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orsched.common.stop import Stop
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.models.compiled_kernels import Kernels
    from orsched.models.latency_search.latency_plans import Plan
    from orsched.simulator.loop import Simulated


SHARES = (5.0, 4.0, 2.0, 2.0, 1.5, 1.5, 0.5)
"""How often each kind of move is tried: shift, swap, move, trade, gates, sizes, stages."""

PART = 50
"""Moves at one temperature."""

PLAIN_PART = 1_000
"""Requests that are decoded without numba, at most, from one look at the clock to the next."""


class Search:
    """A plan that is annealed, and the best one: decoded objectives ``value`` and ``best``."""

    def __init__(
        self, problem: Problem, engine: Kernels, rng: np.random.Generator, *, mixed: bool
    ) -> None:
        self.problem = problem
        self.engine = engine
        self.rng = rng
        shares = list(SHARES)
        if not problem.limits[:, decoding.CHUNKS].any():
            shares[plan_moves.SIZES] *= 0.3
        if len(problem.times) == 1:
            shares[plan_moves.MOVE] = shares[plan_moves.TRADE] = 0.0
        if not mixed:
            shares[plan_moves.STAGES] = 0.0
            shares[plan_moves.GATES] *= 4.0  # a stage has a fixed time: requests join together
        self.shares = shares
        self.tables: Tables | None = None
        self.value = self.best = decoding.INFINITE

    def start(self, plans: Iterable[Plan], is_over: Callable[[], bool] = lambda: False) -> bool:
        """Begin with the best of some plans, until ``is_over``, if it is better than what there is;
        say if so."""
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
        """Try some moves at a temperature, in nanoseconds of the decoded objective; the plain ones,
        which are slow, look at the clock more often the more requests there are."""
        tables = self.tables
        assert tables is not None
        draws = self.rng.random((count, plan_moves.DRAWS + 1))
        thresholds = -temperature * np.log1p(-draws[:, -1])
        flat = np.ascontiguousarray(draws[:, :-1]).ravel()
        size = count if self.engine.is_compiled else max(1, PLAIN_PART // len(tables.whole))
        for first in range(0, count, size):
            part = flat[first * plan_moves.DRAWS : (first + size) * plan_moves.DRAWS]
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


MOVES = 2_000
"""Moves of an iteration."""
PLAIN_REQUESTS = 40_000
"""Without numba: requests that the moves of an iteration, and the first plans of a policy, decode
at most, where each decodes all. So they are fewer from 21 and from 223 requests on."""
STARTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gittins", {}),
    ("sjf", {}),
    ("gittins", {"gate": 1e9}),
    ("gittins", {"max_num_batched_tokens": 512}),
    ("gittins", {"max_num_batched_tokens": 1024}),
    ("gittins", {"gate": 1.0, "max_num_batched_tokens": 1024}),
)
"""Policies whose schedules are started from, all clairvoyant; the first always."""
BY_DUE_DATE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("fcfs", {"order": "due"}),
    ("vllm", {"order": "due"}),
)
"""Those that are started from as well where tardiness counts."""
START_SHARE = 0.2
"""No further policy is run once this share of the time is spent."""
HOT, COLD = 2e-3, 1e-5
"""First and last temperature, as shares of the objective by the number of requests."""
CYCLE = 60
"""Iterations from hot to cold where neither time nor iterations are limited."""
KEPT = 3.0
"""Time kept back to carry out the last plan, by that of the first."""
BOUNDS = 2.0
"""Time kept back for bounds after the search, by that of those before it."""


@dataclass(frozen=True)
class LatencySearchParams:
    """Parameters of ``latency_search``.

    Attributes:
        mixed: whether prompts may be prefilled beside a round.
        chunks: whether prompts may be divided among steps.
    """

    mixed: bool = True
    chunks: bool = True

    def __post_init__(self) -> None:
        require_bool(self.mixed, "mixed")
        require_bool(self.chunks, "chunks")


class _Best(NamedTuple):
    """The incumbent: its numerator (``WeightedTimes``) and its schedule."""

    total: int
    outcome: Outcome


@dataclass(frozen=True)
class LatencySearchMethod:
    """Schedules of policies, then annealing of the order, the workers and the sizes of prefills."""

    name: str = "latency_search"
    information: tuple[Information, ...] = (Information.CLAIRVOYANT,)
    summary: str = "search for means of JCT, TTFT, tardiness, any workers and arrivals, anytime"
    params: ClassVar[type] = LatencySearchParams
    several_workers: ClassVar[bool] = True
    objectives: ClassVar[tuple[str, ...]] = (*LINEAR, WEIGHTED_TARDINESS)

    def check_parameters(self, parameters: dict[str, Any]) -> None:
        """Raise ``InputError`` for parameters that are wrong on whatever instance."""
        read_params(LatencySearchParams, parameters)

    def require_fit(
        self, instance: Instance, information: Information, parameters: dict[str, Any]
    ) -> None:
        """Refuse workers that it does not plan for."""
        require_searchable(instance)

    def __call__(self, instance: Instance, run: Run) -> Outcome:
        """Search until ``run.stop``; an iteration is some 2,000 moves, fewer without numba. Raises
        ``InputError`` for workers that it does not plan for, and ``TimeLimitError`` when not even
        the first policy was ready in time."""
        params: LatencySearchParams = read_params(LatencySearchParams, run.parameters)
        require_searchable(instance)
        if len(instance) == 0:  # nothing to search for
            empty: Outcome = resolve("methods", "gittins")(instance, replace(run, parameters={}))
            schedule = empty.schedule.replace(method=self.name)
            return empty._replace(schedule=schedule, parameters=asdict(params))
        return _Running(self.name, instance, run, params).result()


class _Running:
    """One search of one instance."""

    def __init__(
        self, name: str, instance: Instance, run: Run, params: LatencySearchParams
    ) -> None:
        self.name, self.instance, self.run, self.params = name, instance, run, params
        chunks = params.chunks or instance.needs_chunks
        self.allowed = {"restarts"}
        self.allowed |= {"mixed"} if params.mixed else set()
        self.allowed |= {"chunks"} if chunks else set()
        self.problem: Problem = problem_of(
            instance, run.objective, mixed=params.mixed, chunks=chunks
        )
        rng = np.random.default_rng(run.seed)
        suggest_numba("latency_search is 10 to 70 times faster")
        self.search = Search(self.problem, engine(), rng, mixed=params.mixed)
        self.best: _Best | None = None
        self.seconds = run.stop.seconds_left
        # the bounds are sought once more after the search, for what the schedule does
        self.bounds_s = min(BOUNDS * (perf_counter() - run.begin), 0.1 * self.seconds)
        self.reserve = self.bounds_s
        self.iteration = 0

    def result(self) -> Outcome:
        """Return the best schedule and why the search ended."""
        try:
            if self.seconds == math.inf:  # reproducible: compiled from the first plan on
                engine().wait()
            self._begin()
            why = self._continue()
        except KeyboardInterrupt:
            why = Termination.INTERRUPTED
        if self.best is None:
            raise TimeLimitError("time ended before there was a schedule")
        schedule = self.best.outcome.schedule.replace(
            method=self.name, information=Information.CLAIRVOYANT.value
        )
        return self.best.outcome._replace(
            schedule=schedule, termination=why, parameters=asdict(self.params), counted={}
        )

    def _begin(self) -> None:
        """Start from the schedule that is given and from policies' ones."""
        if self.run.initial_schedule is not None:
            self._take(self.run.initial_schedule)
        starts = (BY_DUE_DATE if self.run.objective.of_due_dates else ()) + STARTS
        for number, (name, parameters) in enumerate(starts):
            if number and self._start_is_over():
                break
            outcome = self._policy(name, parameters)
            if outcome is not None:
                self._take(outcome.schedule, outcome)

    def _policy(self, name: str, parameters: dict[str, Any]) -> Outcome | None:
        """Return what a clairvoyant policy makes of the instance; None where it does not suit."""
        method = resolve("methods", name)
        run = replace(
            self.run,
            parameters=parameters,
            callback=None,
            observer=None,
            initial_schedule=None,
            stop=FirstOf((OnlyTime(self.run.stop), MaxIterations(1))),
        )
        try:
            outcome: Outcome = method(self.instance, run)
        except OrschedError:  # it does not suit, or time is up: others may
            return None
        return outcome

    def _take(self, schedule: Schedule, outcome: Outcome | None = None) -> None:
        """Keep a schedule if it is allowed and the best, and start from it if its plan is."""
        if outcome is None:
            outcome = Outcome(schedule, Termination.ITERATIONS, _none(), {})
        if allowances_of(self.instance, schedule) <= self.allowed:
            self._keep(outcome)
        plans = plans_of(self.instance, schedule, self.problem, mixed=self.params.mixed)
        if not engine().is_compiled:
            plans = islice(plans, self._plain_count(MOVES))
        self.search.start(plans, self._start_is_over)

    def _plain_count(self, most: int) -> int:
        """Return how many plans are decoded without numba in the place of so many."""
        return min(most, max(PART, PLAIN_REQUESTS // len(self.instance)))

    def _start_is_over(self) -> bool:
        """Whether first plans have taken their share of the time."""
        spent = self.seconds - self.run.stop.seconds_left if self.seconds < math.inf else 0.0
        return self._out_of_time() or spent > START_SHARE * self.seconds

    def _keep(self, outcome: Outcome) -> None:
        total = self.problem.coefficients.of(self.instance, outcome.schedule)
        if self.best is None or total < self.best.total:
            self.best = _Best(total, outcome)

    def _continue(self) -> Termination:
        """Anneal until the end; return why it came."""
        if self.best is not None and self._out_of_time():
            return Termination.TIME_LIMIT
        self._carry_out()
        self._report(True)
        why = self.run.why_ended(0, self._value_ns)
        while why is None:
            before = self.search.best
            self._iterate()
            self.iteration += 1
            improved = self.search.best < before
            if improved and not self.problem.exact:
                self._carry_out()
            self._report(improved)
            why = self.run.why_ended(self.iteration, self._value_ns)
            if why is None and self._out_of_time():
                why = Termination.TIME_LIMIT
        self._carry_out()
        return why

    def _iterate(self) -> None:
        search = self.search
        count = MOVES if engine().is_compiled else self._plain_count(MOVES)
        for _ in range(0, count, PART):
            if self._out_of_time():
                return
            search.anneal(PART, self._temperature(), self._out_of_time)
        if not self.problem.exact or self._heat() > 0.9:
            search.back_to_best()

    def _out_of_time(self) -> bool:
        return self.run.stop.seconds_left <= self.reserve

    def _heat(self) -> float:
        """Return how far the search is from hot (0) to cold (1)."""
        limit = _limit(self.run.stop)
        part = (self.iteration % CYCLE) / CYCLE
        if limit is not None:
            part = self.iteration / limit
        if self.seconds < math.inf:
            left = self.run.stop.seconds_left - self.reserve
            timed = 1.0 - left / max(self.seconds, 1e-9)
            part = timed if limit is None else max(part, timed)
        return min(max(part, 0.0), 1.0)

    def _temperature(self) -> float:
        unit = self.search.best / len(self.instance)
        return float(unit * HOT * (COLD / HOT) ** self._heat())

    def _carry_out(self) -> None:
        """Make the schedule of the best plan, and keep it if it is the best."""
        if self.search.tables is None:
            return
        begin = perf_counter()
        done = self.search.carry_out(self.instance, self.name)
        self._keep(Outcome(done.schedule, Termination.ITERATIONS, done.decision_ns, {}))
        self.reserve = max(self.reserve, self.bounds_s + KEPT * (perf_counter() - begin))

    @property
    def _total(self) -> int:
        best = None if self.best is None else self.best.total
        if not self.problem.exact and best is not None:
            return best
        decoded = math.ceil(self.search.best) - self.problem.coefficients.constant
        return decoded if best is None else min(best, decoded)

    @property
    def _value_ns(self) -> int:
        return math.ceil(self.problem.coefficients.value_ns(self._total))

    def _report(self, improved: bool) -> None:
        makespan = self.search.makespan_ns if self.search.tables is not None else None
        value = float(Fraction(self.problem.coefficients.value_ns(self._total)))
        self.run.report(Progress(self.name, self.iteration, makespan, improved, value=value))


def _limit(stop: Stop) -> int | None:
    """Return after how many iterations a criterion ends a search, or None."""
    if isinstance(stop, MaxIterations):
        return stop.iterations
    parts: tuple[Any, ...] = stop.criteria if isinstance(stop, FirstOf) else ()
    known = [limit for part in parts if (limit := _limit(part)) is not None]
    return min(known, default=None)


def _none() -> Any:
    from array import array

    return array("q")


LATENCY_SEARCH = LatencySearchMethod()
