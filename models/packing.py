"""Makespan packing (Pang (26)-(30), P||Cmax): lengths onto identical clients, with a proof.

Bounds by formula, longest processing time first and a local search of pairs; for what is left,
column generation, whose duals prove bounds in integers, and dives (``orsched.models.pcmax``).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import frame, int_column, whole_number
from orsched.common.errors import InputError, MissingDependencyError
from orsched.common.registry import attached
from orsched.common.stop import Clock, most_within, require_gap
from orsched.models.pcmax.local_search import Groups, exchange, longest_first, repartition
from orsched.models.pcmax.packing_search import Effort, Search, compiled_exchanges
from orsched.models.pcmax.patterns import LARGEST_TABLE, Problem, table_cells
from orsched.models.pcmax.rooms import Rooms, prove_by_rooms

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes

MAX_MOVES = 150_000
FIRST_MOVES = 2_000
ROOM_MOVES = 1_000
"""For each client left when the rooms are filled: hundreds are needed where nothing is wasted."""
LARGE = 1 << 16
"""Makespan from which pairs of clients seldom have a split that meets the bound to the unit."""
_LARGEST_TOTAL = 2**62


@dataclass(frozen=True)
class PackingResult:
    """A packing and what is proven of it.

    Attributes:
        makespan: largest load of a client.
        bound: proven lower bound on the makespan.
        optimal: whether the two are equal.
        assignment: client of each job.
        certificate: ``{"bound": kind, "value": bound, ...}`` with the integers that re-derive
            the bound; ``orsched.checker.certificates`` verifies it. Kinds: ``volume``, ``longest``,
            ``lifted`` (k, l), ``dual`` and ``cover`` (an integer for each size) and ``tree``
            (such integers, and more of them at each node).
        runtime: seconds spent.
        interrupted: whether Ctrl-C ended it; the rest holds nevertheless.
        sizes, clients: what was packed, and onto how many.
    """

    makespan: int
    bound: int
    optimal: bool
    assignment: list[int] = field(repr=False)
    certificate: dict[str, Any] = field(repr=False)
    runtime: float = field(compare=False, repr=False)
    interrupted: bool = False
    sizes: list[int] = field(default_factory=list, repr=False)
    clients: int = 0

    def uninterrupted(self) -> PackingResult:
        """Return the result, for callers that have more to do than to pack.

        Raises:
            KeyboardInterrupt: Ctrl-C ended the packing.
        """
        if self.interrupted:
            raise KeyboardInterrupt
        return self

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame with a row for each job: its size and its client."""
        jobs = range(len(self.sizes))
        return frame({"job": jobs, "size": self.sizes, "client": self.assignment})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the load of each client, a bar for each job, and the bound; return the axes."""
        drawn: Axes = attached("loads_chart")(
            self.sizes, self.assignment, [0] * self.clients, self.bound, "client", ax
        )
        return drawn


def pack(
    processing_times: Sequence[int],
    clients: int,
    time_limit: float | None = None,
    seed: int = 0,
    moves: int = MAX_MOVES,
    gap: float = 0.0,
) -> PackingResult:
    """Assign jobs to clients so that the largest load is least, and prove it.

    >>> packed = pack([9, 7, 6, 5, 5, 4], clients=3)
    >>> packed.makespan, packed.bound, packed.optimal
    (13, 13, True)

    Ctrl-C ends it like a time limit: the result is the best so far, marked ``interrupted``. So it
    ends where column generation would begin and pyscipopt is missing.

    Args:
        processing_times: whole numbers, at least 0.
        clients: J, at least 1.
        time_limit: seconds from the call; None: a fixed amount of work (reproducible).
        seed: of everything drawn at random.
        moves: most repartitions of pairs before column generation; 0: only longest first.
        gap: end once (makespan - bound) / bound is at most this; 0.01 is 1 %.

    Raises:
        InputError: a time is negative or not whole, or the sum leaves 62 bits. ``clients`` is not
            at least 1, or ``seed`` or ``moves`` is not a whole number from 0. The time limit is
            not a positive number, or the gap is not a number from 0 to below 1.
    """
    begin, clock = perf_counter(), Clock(time_limit)
    jobs = int_column(processing_times, "processing_times", maximum=2**53).tolist()
    clients = whole_number(clients, "clients", minimum=1)
    seed, moves, gap = whole_number(seed, "seed"), whole_number(moves, "moves"), require_gap(gap)
    total = sum(jobs)
    if total > _LARGEST_TOTAL:
        raise InputError(
            f"the sum {total} exceeds {_LARGEST_TOTAL}",
            field="processing_times",
            remedy="use a coarser unit",
        )
    certificate = packing_bound(jobs, clients)
    groups = longest_first([job for job in jobs if job], min(clients, max(1, len(jobs))))
    best, interrupted = _Best(groups, certificate), False
    try:
        if total:
            _search(best, clients, clock, random.Random(seed), moves, gap)
    except KeyboardInterrupt:
        interrupted = True
    except MissingDependencyError:  # of column generation: what there is without it stands
        pass
    groups, certificate = best.found(jobs)
    makespan, bound = max(map(sum, groups)), certificate["value"]
    assignment, runtime = _assign(jobs, groups), perf_counter() - begin
    return PackingResult(
        makespan, bound, makespan == bound, assignment, certificate, runtime, interrupted, jobs,
        clients,
    )  # fmt: skip


def packing_bound(jobs: Sequence[int], clients: int) -> dict[str, Any]:
    """Return the best of volume, longest-job and lifted bounds, with what re-derives it.

    Lifted (Haouari, Gharbi and Jemmali 2006): of the k = q J + l longest jobs, 1 <= l <= J, the
    l fullest clients hold at least l (q + 1); the mean of that many shortest of them is due.
    """
    total = sum(jobs)
    if not jobs:
        return {"bound": "volume", "value": 0}
    best: dict[str, Any] = {"bound": "volume", "value": -(-total // clients)}
    longest = max(jobs)
    if longest > best["value"]:
        best = {"bound": "longest", "value": longest}
    ordered = np.sort(np.array(jobs, dtype=np.int64 if total < 2**62 else object))[::-1]
    prefix = np.concatenate([[0], np.cumsum(ordered)])
    k = np.arange(clients + 1, len(jobs) + 1)
    fullest = (k - 1) % clients + 1
    held = fullest * ((k - 1) // clients + 1)
    lifted = -(-(prefix[k] - prefix[k - held]) // fullest)
    if len(k) and int(lifted.max()) > best["value"]:
        at = int(np.argmax(lifted))
        best = {"bound": "lifted", "value": int(lifted[at]), "k": int(k[at]), "l": int(fullest[at])}
    return best


@dataclass
class _Best:
    """The packing and the bound so far; an interrupt finds here what there is."""

    groups: Groups  # lengths of the jobs of each client, worked on in place
    certificate: dict[str, Any]  # of the bound
    search: Search | None = None  # what goes on from there, with groups and certificate of its own

    def target(self, gap: float) -> int:
        """Return the largest makespan within a gap of the bound."""
        return most_within(gap, self.certificate["value"])

    def found(self, jobs: Sequence[int]) -> tuple[Groups, dict[str, Any]]:
        """Return groups and certificate; groups in the middle of a change are dealt out again."""
        best = self.search or self
        groups = best.groups
        if sorted(job for group in groups for job in group) != sorted(job for job in jobs if job):
            groups = longest_first([job for job in jobs if job], len(groups))
        return groups, best.certificate


def _search(
    best: _Best, clients: int, clock: Clock, rng: random.Random, moves: int, gap: float
) -> None:
    """Local search; then, unless the bound is met within the gap, what proves more."""
    jobs = [job for group in best.groups for job in group]
    problem, target = Problem.of(jobs, len(best.groups)), best.target(gap)
    few = len(jobs) < 4 * clients  # pairs have few splits: column generation is worth more
    steps = min(moves, (10 if few else 100) * len(jobs))
    large = not few and max(map(sum, best.groups)) > LARGE
    if large:
        compiled_exchanges()  # begins to load
    makespan = repartition(best.groups, target, rng, min(steps, FIRST_MOVES), clock)
    if makespan > target and moves and not few:
        best.certificate = _by_rooms(problem, best.certificate, makespan)
        target = best.target(gap)
    done = FIRST_MOVES
    if makespan > target and moves and large:
        _exchange(best, target, clock, rng)
    elif makespan > target and moves and not few:
        makespan = repartition(best.groups, target, rng, steps // 5, clock)
        makespan = _fill_rooms(best, problem, target, makespan, clock, rng)
        done += steps // 5
    makespan = repartition(best.groups, target, rng, steps - done, clock)
    if makespan <= target or not moves or clock.out():
        return
    if table_cells(problem.sizes, problem.counts, makespan - 1) > LARGEST_TABLE:
        if large:
            _exchange(best, target, clock, rng)
        more = 4 * moves if not clock.limited else 10**12
        repartition(best.groups, target, rng, more, clock)
        return
    best.search = Search(problem, best.groups, best.certificate, clock, rng, gap)
    best.search.run(Effort() if not clock.limited else Effort(dives=10**9))


def _exchange(best: _Best, target: int, clock: Clock, rng: random.Random) -> None:
    """Exchange jobs between clients, if the loops for that are compiled."""
    loops = compiled_exchanges().get(not clock.limited)
    if loops is not None:
        numbers = np.random.default_rng(rng.randrange(2**32))
        best.groups = exchange(best.groups, target, numbers, clock, loops)


def _by_rooms(problem: Problem, certificate: dict[str, Any], makespan: int) -> dict[str, Any]:
    """Raise a bound as far as the room beside the most frequent size proves."""
    for capacity in range(certificate["value"], makespan):
        try:
            duals = prove_by_rooms(problem, capacity)
        except MissingDependencyError:
            break
        if duals is None:
            break
        certificate = problem.certificate(capacity, duals, "dual")
    return certificate


def _fill_rooms(
    best: _Best, problem: Problem, target: int, makespan: int, clock: Clock, rng: random.Random
) -> int:
    """Fill the rooms beside the most frequent size first, the other clients after that. Pairs of
    clients seldom find contents of so small rooms that waste hardly more than may be wasted; a
    linear program does. Returns the makespan of the packing that is kept."""
    rooms = Rooms.of(problem, target) if makespan > target else None
    try:
        full = rooms.fill(problem.slack(target)) if rooms else None
    except MissingDependencyError:
        full = None
    if not full or len(full) >= problem.clients:
        return makespan
    groups = [np.repeat(problem.sizes, pattern).tolist() for pattern in full]
    left = np.repeat(problem.sizes, problem.counts - sum(full)).tolist()
    rest = longest_first(left, problem.clients - len(full))
    found = repartition(rest, target, rng, ROOM_MOVES * len(rest), clock)
    if found < makespan:
        best.groups, makespan = groups + rest, found
    return makespan


def _assign(jobs: Sequence[int], groups: Groups) -> list[int]:
    """Return a client for each job, given the lengths of each client's jobs; 0 for empty jobs."""
    of_length: dict[int, list[int]] = {}
    for job, length in enumerate(jobs):
        of_length.setdefault(length, []).append(job)
    assignment = [0] * len(jobs)
    for client, group in enumerate(groups):
        for length in group:
            assignment[of_length[length].pop()] = client
    return assignment
