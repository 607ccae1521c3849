"""Proofs for tiny fleets: all ways to share requests out, each share solved by ``best_first``.

A worker's least makespan never falls with a further request: leave that one out of its schedule.
So a share whose lower bound is not below the best plan ends all ways that contain it.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.certificates.context import Context
from orsched.common.errors import InputError
from orsched.common.registry import resolve
from orsched.common.stop import Clock, FirstOf, MaxIterations, OnlyTime, gap_met
from orsched.common.units import NS_PER_S, seconds_text
from orsched.data.feasibility import fits_worker
from orsched.data.schedule_classes import PLAIN_SCHEDULES
from orsched.models.best_first.solve import refusal, solve_best_first
from orsched.models.bounds.bounds import improving_bounds
from orsched.models.fleet.planned_for import plannable
from orsched.models.fleet.shares import alone, joined
from orsched.solving.methods import Outcome, Progress
from orsched.solving.result import Termination

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.solving.methods import Run

MOST_REQUESTS = 16
START_ITERATIONS = 4


class _Solved(NamedTuple):
    """The best schedule of a share, and what it takes at least."""

    schedule: Schedule | None
    bound_ns: int


class _Ended(Exception):
    """The search ends before it is through, for a reason."""

    def __init__(self, why: Termination) -> None:
        super().__init__(why)
        self.why = why


def solve_shares(instance: Instance, run: Run, seconds: float) -> Outcome:
    """Return the best plan of a fleet among plain schedules, proven where time suffices.

    Raises ``InputError`` for workers that ``best_first`` does not take alone, requests that arrive
    over time, and more than 16 requests.
    """
    if len(instance) > MOST_REQUESTS:
        raise InputError(
            f"exact proves fleets of at most {MOST_REQUESTS} requests, the instance has "
            f"{len(instance)}",
            field="workers",
            remedy="choose fleet, which plans several workers",
        )
    search = _Search(instance, run, Clock(seconds))
    start = replace(
        run,
        parameters={"below": "hybrid"},
        callback=None,
        stop=FirstOf((OnlyTime(run.stop), MaxIterations(START_ITERATIONS))),
    )
    first: Outcome = resolve("methods", "fleet")(instance, start)
    search.best, search.best_ns = first.schedule, first.schedule.makespan_ns
    termination = Termination.FINISHED
    try:
        if first.termination is Termination.INTERRUPTED:
            raise KeyboardInterrupt
        search.end_within_gap()
        search.visit(0, (0,) * len(instance.workers))
        if search.unproven:
            search.require_time()
    except _Ended as ended:
        termination = ended.why
    except KeyboardInterrupt:
        termination = Termination.INTERRUPTED
    proven = termination is Termination.FINISHED and not search.unproven
    notes: tuple[str, ...] = ()
    if proven and search.best_ns > (run.bound_ns or 0):
        notes = (
            f"the search over all shares proved that {PLAIN_SCHEDULES} take at least "
            f"{seconds_text(search.best_ns / NS_PER_S, 6)} s; this proof is a search without a "
            "certificate, and bound_s stays the certified bound",
        )
    schedule = search.best.replace(method="exact", information="clairvoyant")
    scope = PLAIN_SCHEDULES if proven else None
    return Outcome(schedule, termination, array("q"), dict(run.parameters), scope, notes)


class _Search:
    best: Schedule
    best_ns: int

    def __init__(self, instance: Instance, run: Run, clock: Clock) -> None:
        self.instance, self.run, self.clock = instance, run, clock
        self.kinds, workers = Context(instance).kinds, instance.workers
        self.fits = [fits_worker(instance, worker, False).tolist() for worker in workers]
        self.order = np.argsort(-instance.rounds_needed, kind="stable").tolist()
        for worker in dict.fromkeys(self.kinds):
            rows = [row for row in range(len(instance)) if self.fits[worker][row]]
            try:
                why = refusal(alone(instance, worker, np.array(rows))) if rows else ""
            except InputError as error:
                why = error.problem
            if why:
                raise InputError(
                    f"exact cannot prove this fleet: {why}",
                    field="workers",
                    remedy=f"choose {'fleet' if plannable(instance) else 'vllm'}, which serves "
                    "several workers",
                )
        self.bounds: dict[tuple[int, int], int] = {}
        self.solved: dict[tuple[int, int], _Solved] = {}
        self.leaves, self.unproven = 0, False

    def visit(self, at: int, shares: tuple[int, ...]) -> None:
        """Try each worker for the next request, longest first; of equal idle workers the first."""
        if at == len(self.order):
            self._solve(shares)
            return
        row, tried, open_to = self.order[at], set[tuple[int, int]](), []
        for worker, kind in enumerate(self.kinds):
            if self.fits[worker][row] and (kind, shares[worker]) not in tried:
                tried.add((kind, shares[worker]))
                open_to.append((self._bound(kind, shares[worker] | 1 << row), worker))
        for bound, worker in sorted(open_to):
            if bound < self.best_ns:
                share = shares[worker] | 1 << row
                self.visit(at + 1, (*shares[:worker], share, *shares[worker + 1 :]))

    def require_time(self) -> None:
        """End the search where no time is left."""
        if self.clock.out():
            raise _Ended(Termination.TIME_LIMIT)

    def end_within_gap(self) -> None:
        """End the search where the best plan is within the gap that was asked for."""
        if gap_met(self.run.stop, self.best_ns):
            raise _Ended(Termination.TARGET_GAP)

    def _alone(self, kind: int, share: int) -> Instance:
        return alone(self.instance, kind, self._rows(share))

    def _rows(self, share: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([row for row in range(len(self.instance)) if share >> row & 1], np.int64)

    def _bound(self, kind: int, share: int) -> int:
        """Return what a share takes at least on a worker of a kind."""
        self.require_time()
        key = (kind, share)
        if key in self.solved:
            return self.solved[key].bound_ns
        if key not in self.bounds:
            first = next(improving_bounds(self._alone(kind, share), lambda: True))
            self.bounds[key] = first.value_ns
        return self.bounds[key]

    def _solve(self, shares: tuple[int, ...]) -> None:
        """Solve the shares, the one with the largest bound first, and keep a better plan. They are
        proven to be no better where one share takes at least as long as the best plan."""
        used = [(self._bound(self.kinds[w], share), w) for w, share in enumerate(shares) if share]
        found: list[tuple[int, np.ndarray[tuple[int], np.dtype[np.int64]], Schedule]] = []
        least = 0
        for _, worker in sorted(used, reverse=True):
            solved = self._solved(self.kinds[worker], shares[worker])
            least = max(least, solved.bound_ns)
            end = math.inf if solved.schedule is None else solved.schedule.makespan_ns
            if end >= self.best_ns:
                self.unproven |= least < self.best_ns
                return
            assert solved.schedule is not None
            found.append((worker, self._rows(shares[worker]), solved.schedule))
        self.best = joined(self.instance, found, "exact")
        self.best_ns = self.best.makespan_ns
        self.unproven |= least < self.best_ns
        self.leaves += 1
        self.run.report(Progress("exact", self.leaves, self.best_ns, True))
        self.end_within_gap()

    def _solved(self, kind: int, share: int) -> _Solved:
        key = (kind, share)
        if key not in self.solved:
            self.require_time()
            left = max(1e-3, self.clock.left())
            found = solve_best_first(self._alone(kind, share), left)
            if str(found.termination) == "interrupted":
                raise KeyboardInterrupt
            self.solved[key] = _Solved(found.schedule, found.bound_ns or 0)
        return self.solved[key]
