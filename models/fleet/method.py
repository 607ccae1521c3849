"""The method ``fleet``: shares of the requests for several workers, each with a plan of its own."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from orsched.common.errors import InputError, TimeLimitError
from orsched.common.parameters import read_params
from orsched.common.registry import attached, resolve
from orsched.common.scalars import require_one_of
from orsched.common.stop import FirstOf, MaxIterations, MaxRuntime, OnlyTime
from orsched.costs.roofline import ridge_tokens
from orsched.models.compiled_kernels import suggest_numba
from orsched.models.fleet.planned_for import (
    chosen_below,
    has_ridge,
    predictions_as_lengths,
    require_planned,
)
from orsched.models.fleet.shares import ALLOWS, Shares, alone, joined
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information
from orsched.solving.methods import Outcome, Progress, Run
from orsched.solving.result import Termination

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.common.columns import IntColumn
    from orsched.common.stop import Stop
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.models.fleet.shares import Floats


WAYS = ("auto", "vllm", "hybrid", "windows")

HEATS = (0.01, 0.1)
COOL = 1e-3
HYBRID_ITERATIONS = 18
SHARED_ITERATIONS, WINDOW_ITERATIONS, WINDOW_SEARCHES = 12, 20, 2
"""Without a time limit: assignments before windows are sought, and targets of each search. A worker
that ends last is searched so often in vain."""

DEFAULT_BUDGET = 2048
"""Tokens of a step under cost models without a ridge, as in vLLM."""

SHARED = 0.4
"""Of a time limit, the part after which windows search where whole stages are the better way."""


@dataclass(frozen=True)
class FleetParams:
    """Parameters of ``fleet``.

    Attributes:
        below: how each worker serves its share: ``vllm`` (prompts beside rounds, up to the budget
            below which they cost little), ``hybrid``, ``windows`` (from what hybrid finds), or
            ``auto``: vllm where the cost model has such a budget, else windows where they suit.
    """

    below: str = "auto"

    def __post_init__(self) -> None:
        require_one_of(self.below, "below", WAYS)


class Way(NamedTuple):
    """How a worker serves its share: a method; for vllm the order of the requests, and the token
    budget as a share of the ridge. Smaller budgets begin prompts further apart: where memory binds,
    requests that grow at different times fill it better."""

    method: str
    order: str = ""
    budget: float = 1.0


BY_VLLM = tuple(Way("vllm", order) for order in ("tokens", "longest", "volume"))
LATE = tuple(Way("vllm", order) for order in ("longest", "volume", "arrival"))
"""Where requests arrive over time: orders of vllm's own."""

BUDGETS = (0.5, 0.25)
FACTORS = (0.7, 1.4, 0.85, 1.2, 0.93, 1.08)
"""Where pages bind: further budgets, and factors on the best one, of the worker that ends last."""

MOST_WAYS = 4

BY_HYBRID = (Way("hybrid"),)


class Served(NamedTuple):
    """A worker's share, in the order in which it takes requests, and the schedule of it alone."""

    rows: IntColumn
    way: Way
    schedule: Schedule
    decision_ns: array[int]

    @property
    def end_ns(self) -> int:
        """When the worker ends."""
        return self.schedule.makespan_ns


@dataclass(frozen=True)
class FleetMethod:
    """Requests shared out by annealing, and served by each worker as a method for one worker does.

    A surrogate says when a worker ends (``Shares``); simulations correct it, a factor for each
    worker, and the shares are sought again.
    """

    name: str = "fleet"
    information: tuple[Information, ...] = (Information.CLAIRVOYANT, Information.PREDICTED)
    summary: str = (
        "plans which of several workers serves which request, and in which order; anytime"
    )
    params: ClassVar[type] = FleetParams
    several_workers: ClassVar[bool] = True

    def allows(self, instance: Instance, parameters: dict[str, Any]) -> tuple[str, ...]:
        """Return what its schedules may do, for the bound that they are held against."""
        return () if chosen_below(instance, parameters.get("below", "auto")) != "vllm" else ALLOWS

    def check_parameters(self, parameters: dict[str, Any]) -> None:
        """Raise ``InputError`` for parameters that are wrong on whatever instance."""
        read_params(FleetParams, parameters)

    def require_fit(
        self, instance: Instance, information: Information, parameters: dict[str, Any]
    ) -> None:
        """Refuse workers that it does not plan for."""
        require_planned(instance)
        if information is Information.PREDICTED:
            predictions_as_lengths(instance)
            if parameters.get("below", "auto") not in ("auto", "vllm"):
                raise InputError(
                    "a plan on predicted lengths is carried out by vllm",
                    field="below",
                    remedy="leave below out, or plan with information clairvoyant",
                )

    def __call__(self, instance: Instance, run: Run) -> Outcome:
        """Search until ``run.stop``; an iteration is one assignment that is simulated.

        On predicted lengths the plan is made for these, and then carried out: each worker takes its
        share in the planned order, and one that is idle takes from another what waits there.

        Raises ``InputError`` for workers that it does not plan for, and ``TimeLimitError`` when not
        even the first assignment was simulated in time.
        """
        params: FleetParams = read_params(FleetParams, run.parameters)
        require_planned(instance)
        known, parameters = instance, asdict(params)
        if run.information is Information.PREDICTED:
            known = predictions_as_lengths(instance)
        if len(instance) == 0:
            found: Outcome = resolve("methods", "vllm")(instance, replace(run, parameters={}))
            return found._replace(parameters=parameters)
        suggest_numba("fleet is about 50 times faster")
        search = _Fleet(known, run, params)
        why = search.result()
        if run.information is Information.PREDICTED:
            done = search.carried_out(instance)
            notes = tuple(f"planned on predicted lengths: {note}" for note in search.notes())
            return done._replace(termination=why, parameters=parameters, notes=notes)
        schedule = search.joined().replace(method=self.name)
        return Outcome(schedule, why, search.decisions(), parameters, notes=search.notes())


class _Fleet:
    """One search of one instance."""

    def __init__(self, instance: Instance, run: Run, params: FleetParams) -> None:
        self.instance, self.run = instance, run
        below = chosen_below(instance, params.below, run.information)
        instance.require_feasible(chunks=below == "vllm")
        self.shares = Shares(instance, chunks=below == "vllm")
        requests = instance.requests
        self.keys = {
            "longest": requests.output_tokens.astype(float),
            "tokens": (requests.prompt_tokens + requests.output_tokens).astype(float),
            "volume": self.shares.volumes(),
        }
        arrivals = requests.arrival_ns
        self.late = int(arrivals.max()) > int(arrivals.min())
        self.ways: tuple[Way, ...] = BY_HYBRID
        if below == "vllm":
            self.ways = LATE if self.late else BY_VLLM
            if instance.pages_matter:
                self.ways += tuple(self.ways[0]._replace(budget=share) for share in BUDGETS)
        self.seeks_windows = below == "windows"
        self.best: list[Served | None] = []
        self.iteration, self.seconds = 0, run.stop.seconds_left
        self.reserve = 0.0
        """Seconds that it takes to simulate a plan on the true lengths, once more, at the end."""
        self.known: dict[tuple[int, bytes], Served] = {}
        ridge = has_ridge(instance)
        self.ridges = [
            ridge_tokens(worker.cost) if ridge else DEFAULT_BUDGET for worker in instance.workers
        ]

    @property
    def end_ns(self) -> int:
        """When the best plan ends."""
        return _end(self.best)

    def result(self) -> Termination:
        """Search; return why it ended. Ctrl-C keeps the best plan."""
        try:
            return self._search()
        except (KeyboardInterrupt, TimeLimitError) as error:
            if not self.best:
                raise
            stopped = isinstance(error, KeyboardInterrupt)
            return Termination.INTERRUPTED if stopped else Termination.TIME_LIMIT

    def _search(self) -> Termination:
        shares, run = self.shares, self.run
        where = start = shares.blocks()
        ended, heats = self._take(start, self.ways), list(HEATS)
        for schedule in self._others():
            before, other = self.end_ns, assigned_by(schedule, len(self.instance))
            if not shares.takes(other):
                continue
            if ended is None:
                ended = self._take(other, self.ways)
            if self.end_ns < before:
                where = start = other
        while ended is None:
            common = Counter(served.way for served in self.best if served is not None)
            self.ways = tuple(way for way, _ in common.most_common(MOST_WAYS))
            if not heats or shares.workers == 1:
                if self._windows_are_due():
                    return self._windows()
                ended = self._vary()
                if ended is not None:
                    break
            if not heats:
                factor, found = shares.tables.factor, self._factors()
                shares.corrected(found if (factor == 1).all() else (factor + found) / 2)
            heat = heats.pop(0) if heats else COOL
            seed = run.seed + self.iteration
            begin, patient = where if heat == COOL else start, self.seconds == math.inf
            where = shares.annealed(begin, heat, seed, self._out_of_time, patient)
            ended = self._take(where, self.ways)
        return ended

    def _take(self, where: IntColumn, ways: tuple[Way, ...]) -> Termination | None:
        """Serve an assignment, each worker by what ends first; say if the search ends."""
        self.run.require_time(2 * self.reserve)
        begin = perf_counter()
        self.tried = [self._served(worker, where, ways) for worker in range(self.shares.workers)]
        if self.run.information is Information.PREDICTED:
            self.reserve = max(self.reserve, perf_counter() - begin)
        return self._keep(self.tried)

    def _vary(self) -> Termination | None:
        """Try another budget on the worker that ends last; say if the search ends."""
        last = _last(self.best)
        served = self.best[last]
        if served is None or served.way.method != "vllm" or not self.instance.pages_matter:
            return None
        factor = FACTORS[self.iteration % len(FACTORS)]
        way = served.way._replace(budget=served.way.budget * factor)
        found, plan = self._by(last, served.rows, way), list(self.best)
        if found is not None and found.end_ns < served.end_ns:
            plan[last] = found
        return self._keep(plan)

    def _out_of_time(self) -> bool:
        return self.run.stop.seconds_left <= 2 * self.reserve

    def _windows_are_due(self) -> bool:
        """Whether shares have been sought for long enough, and windows may do better."""
        if not self.seeks_windows:
            return False
        if self.seconds == math.inf:
            return self.iteration >= SHARED_ITERATIONS
        return self.run.stop.seconds_left <= (1 - SHARED) * self.seconds

    def _windows(self) -> Termination:
        """Search windows on the worker that ends last, again until time or all searches end."""
        run, left = self.run, dict.fromkeys(range(self.shares.workers), WINDOW_SEARCHES)
        while True:
            last = _last(self.best)
            served = self.best[last]
            if served is None or not left[last]:
                return Termination.ITERATIONS
            waiting = sum(map(bool, left.values()))
            part: Stop = MaxIterations(WINDOW_ITERATIONS)
            if self.seconds != math.inf:
                part = MaxRuntime(max(0.1, run.stop.seconds_left / waiting))
                part.start()
            stop = FirstOf((OnlyTime(run.stop), part))
            made = self._made(last, served.rows, "windows", {}, stop, served.schedule)
            plan = list(self.best)
            left[last] = 0 if made is None else left[last] - 1
            if made is not None and made.schedule.makespan_ns < served.end_ns:
                plan[last] = served._replace(
                    way=Way("windows"), schedule=made.schedule, decision_ns=made.decision_ns
                )
                left[last] = WINDOW_SEARCHES
            ended = self._keep(plan)
            if ended is not None:
                return ended

    def _others(self) -> Iterator[Schedule]:
        """Yield schedules from whose assignments the search may start: the one that is given, and,
        where requests arrive over time, that of a dispatcher, which sees the workers as they are.
        """
        if self.run.initial_schedule is not None:
            yield self.run.initial_schedule
        if self.late:
            run = replace(self.run, parameters={}, callback=None, initial_schedule=None)
            run = replace(run, information=Information.NONE, has_schedule=True)
            made: Outcome = resolve("methods", "vllm")(self.instance, run)
            yield made.schedule

    def _keep(self, plan: list[Served | None]) -> Termination | None:
        """Keep a plan if it ends first; say if the search ends."""
        better = not self.best or _end(plan) < self.end_ns
        if better:
            self.best = plan
        self.iteration += 1
        self.run.report(Progress("fleet", self.iteration, self.end_ns, better))
        knows = self.run.information is Information.CLAIRVOYANT
        if knows and self.run.bound_ns is not None and self.end_ns <= self.run.bound_ns:
            return Termination.FINISHED
        if self._out_of_time():
            return Termination.TIME_LIMIT
        return self.run.why_ended(self.iteration, self.end_ns)

    def _served(self, worker: int, where: IntColumn, ways: tuple[Way, ...]) -> Served | None:
        rows = np.flatnonzero(where == worker)
        if not len(rows):
            return None
        kind = int(self.shares.tables.kind[worker])
        key = (kind, rows.tobytes() + repr(ways).encode())
        if key not in self.known:
            found = []
            for way in ways:
                ranked = rows
                if way.order and not self.late:
                    ranked = rows[np.argsort(-self.keys[way.order][rows], kind="stable")]
                if (each := self._by(worker, ranked, way)) is not None:
                    found.append(each)
            if not found:
                raise InputError(
                    f"no way to serve a share on worker {worker}",
                    field="below",
                    remedy="choose below=auto",
                )
            if len(self.known) > 1_000:
                self.known.clear()
            self.known[key] = min(found, key=lambda served: served.end_ns)
        return self.known[key]

    def _by(self, worker: int, rows: IntColumn, way: Way) -> Served | None:
        """Serve a share in one way, for vllm in this order; None where it does not suit."""
        parameters: dict[str, Any] = {}
        if way.method == "vllm":
            parameters["max_num_batched_tokens"] = self._budget(worker, way)
            parameters["order"] = way.order if self.late else "arrival"
        stop = FirstOf((OnlyTime(self.run.stop), MaxIterations(HYBRID_ITERATIONS)))
        made = self._made(worker, rows, way.method, parameters, stop)
        return None if made is None else Served(rows, way, made.schedule, made.decision_ns)

    def _made(
        self,
        worker: int,
        rows: IntColumn,
        method: str,
        parameters: dict[str, Any],
        stop: Stop,
        initial: Schedule | None = None,
    ) -> Outcome | None:
        """Return what a method makes of one worker's share; None where it does not suit."""
        run = replace(
            self.run,
            seed=self.run.seed + self.iteration,
            information=Information.CLAIRVOYANT,
            parameters=parameters,
            callback=None,
            initial_schedule=initial,
            bound_ns=None,
            stop=stop,
            has_schedule=bool(self.best),
        )
        try:
            made: Outcome = resolve("methods", method)(alone(self.instance, worker, rows), run)
        except InputError:
            return None
        if made.termination is Termination.INTERRUPTED:
            raise KeyboardInterrupt  # which the method has kept to itself
        return made

    def _budget(self, worker: int, way: Way) -> int:
        """Return the token budget of a worker's steps; up to its ridge prompts beside rounds only
        take their attention."""
        return max(1, round(way.budget * self.ridges[worker]))

    def _factors(self) -> Floats:
        """Return by how much longer each worker took than the surrogate says."""
        where = self._where(self.tried)
        ends = self.shares.ends(where) / self.shares.tables.factor
        first = int(self.instance.requests.arrival_ns.min())
        return np.array(
            [
                1.0 if served is None else max(1.0, (served.end_ns - first) / max(1.0, end))
                for served, end in zip(self.tried, ends.tolist(), strict=True)
            ]
        )

    def _where(self, plan: list[Served | None]) -> IntColumn:
        """Return the worker of each request."""
        found = np.zeros(len(self.instance), np.int64)
        for worker, served in enumerate(plan):
            if served is not None:
                found[served.rows] = worker
        return found

    def carried_out(self, instance: Instance) -> Outcome:
        """Return the plan carried out on the true lengths."""
        ranks = np.zeros(len(instance), np.int64)
        for served in self.best:
            if served is not None:
                ranks[served.rows] = np.arange(len(served.rows))
        budgets = [
            self._budget(worker, self.ways[0] if served is None else served.way)
            for worker, served in enumerate(self.best)
        ]
        where = self._where(self.best).tolist()
        policy = attached("planned_shares")("fleet", where, ranks.tolist(), budgets)
        done = simulate_policy(instance, policy)
        return Outcome(done.schedule, Termination.FINISHED, done.decision_ns, {})

    def joined(self) -> Schedule:
        """Return the best plan as one schedule."""
        parts = [
            (worker, served.rows, served.schedule)
            for worker, served in enumerate(self.best)
            if served is not None
        ]
        return joined(self.instance, parts, "fleet")

    def decisions(self) -> array[int]:
        """Return how long each decision took, worker by worker."""
        found = array("q")
        for served in self.best:
            if served is not None:
                found.extend(served.decision_ns)
        return found

    def notes(self) -> tuple[str, ...]:
        """Say how the workers serve their shares."""
        counts = Counter[str]()
        for served in self.best:
            if served is not None:
                way = served.way.method + (f" by {served.way.order}" if served.way.order else "")
                counts[way] += 1
        shares = (
            f"{many} worker{' serves' if many == 1 else 's serve'} as {way}"
            for way, many in counts.items()
        )
        return (", ".join(shares),)


def assigned_by(schedule: Schedule, requests: int) -> IntColumn:
    """Return the worker of each request's last stay in a schedule."""
    found, work = np.zeros(requests, np.int64), schedule.work
    found[work.request] = schedule.steps.worker[work.first_step]
    return found


def _end(plan: list[Served | None]) -> int:
    return max(served.end_ns for served in plan if served is not None)


def _last(plan: list[Served | None]) -> int:
    """Return the worker that ends last."""
    return max(range(len(plan)), key=lambda at: 0 if (own := plan[at]) is None else own.end_ns)


FLEET = FleetMethod()
