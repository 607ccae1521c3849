"""The search for shares: which worker serves which request, by a surrogate of when it ends.

A worker that serves some requests takes R steps that yield tokens, at least the most tokens of one
of them, their sum over the clients and their block rounds over the memory. It ends about when the
largest line of its floor does: R rounds, a first prefill, and what each request adds. The surrogate
is what ``orsched.certificates.fleet_prices`` charges for a worker; ``factors`` correct it by what
simulations took.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.context import Context
from orsched.certificates.fleet_prices import needs_by_kind
from orsched.data.feasibility import fits_worker
from orsched.data.schedule import Schedule, Steps, Work
from orsched.models.compiled_kernels import Kernels, compiled_copies
from orsched.models.fleet import annealing_loops as plain
from orsched.models.fleet.annealing_loops import Loads, Tables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from orsched.certificates.fleet_prices import Kind
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance

    Floats = NDArray[np.float64]

ALLOWS = ("chunks", "mixed", "restarts")
MOMENTS = 4
"""Most moments from which on the requests that are still to arrive are summed up."""

MOVES_EACH, FEWEST_MOVES, MOST_MOVES = 10_000, 200_000, 20_000_000
"""Moves of a search: for each request, and within these limits."""

COOLINGS = 100
PLAIN = 50
"""So many times fewer moves are tried without numba."""
COLDEST = 1e-5


class Shares:
    """The surrogate of a fleet, and the annealing over its assignments."""

    def __init__(self, instance: Instance, chunks: bool = True) -> None:
        """Sum up what requests need; without ``chunks`` prompts are prefilled whole."""
        first = int(instance.requests.arrival_ns.min())
        kinds = needs_by_kind(Context.allowing(instance, ALLOWS), first)
        context_kinds = Context(instance).kinds
        self.order = np.argsort(-instance.rounds_needed, kind="stable")
        rounds = instance.rounds_needed.astype(float)
        self._sums = rounds * (instance.requests.prompt_tokens + (rounds + 1) / 2)
        self.tables = _tables(instance, kinds, context_kinds, self.order, first, chunks)

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return len(self.tables.kind)

    def takes(self, where: IntColumn) -> bool:
        """Return whether each request fits onto its worker."""
        return bool(self.tables.fits[self.tables.kind[where[self.order]], range(len(where))].all())

    def corrected(self, factors: Floats) -> None:
        """Take by how much longer than the surrogate each worker takes."""
        self.tables = self.tables._replace(factor=factors)

    def ends(self, where: IntColumn) -> Floats:
        """Return when each worker ends by an assignment of the requests, a worker for each row."""
        loads = self._loads(where[self.order])
        return loads.ends

    def blocks(self) -> IntColumn:
        """Return an assignment of blocks of requests of like length, the longest first.

        The blocks of all workers but the last end as late as they may by a moment, and the moment
        is the least by which all requests are served. Where workers differ, the better of two
        orders of workers, by their clients.
        """
        clients = self.tables.clients[self.tables.kind]
        rising = np.argsort(clients, kind="stable").tolist()
        found = [self._blocks(rising)]
        if clients.min() < clients.max():
            found.append(self._blocks(rising[::-1]))
        return min(found, key=lambda where: float(self.ends(where).max()))

    def _blocks(self, workers: list[int]) -> IntColumn:
        low, high = 0.0, 1.0
        while self._filled(workers, high) is None:
            low, high = high, 2 * high
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self._filled(workers, middle) is None else (low, middle)
        where = self._filled(workers, high)
        assert where is not None
        return self._by_row(where)

    def _filled(self, workers: list[int], end: float) -> IntColumn | None:
        """Return an assignment that ends by a moment, or None where this one does not."""
        t = self.tables
        where = np.full(len(self.order), -1)
        for worker in workers:
            kind = t.kind[worker]
            rows = np.flatnonzero((where < 0) & t.fits[kind])
            if not len(rows):
                continue
            steps = np.maximum(t.tokens[rows[0]], np.cumsum(t.tokens[rows]) / t.clients[kind])
            if t.blocks[kind]:
                steps = np.maximum(steps, np.cumsum(t.held[kind, rows]) / t.blocks[kind])
            lines = np.cumsum(t.own[kind][:, rows], axis=1) + t.fixed[kind][:, None]
            ends = (lines + t.round[kind][:, None] * steps).max(axis=0) * t.factor[worker]
            where[rows[: np.searchsorted(ends, end, side="right")]] = worker
        return None if (where < 0).any() else where

    def annealed(
        self,
        where: IntColumn,
        heat: float,
        seed: int,
        out_of_time: Callable[[], bool],
        patient: bool,
    ) -> IntColumn:
        """Return the best assignment that annealing finds from one; ``patient``: compiled, which is
        reproducible."""
        if self.workers == 1:
            return where
        kernels = engine()
        if patient:
            kernels.wait()
        loads = self._loads(where[self.order])
        best, base = loads.where.copy(), float(loads.ends.max())
        moves = min(max(MOVES_EACH * len(self.order), FEWEST_MOVES), MOST_MOVES) // COOLINGS
        rng, found = np.random.default_rng(seed), base
        for step in range(COOLINGS):
            part = moves if kernels.is_compiled else moves // PLAIN
            hot = heat * (COLDEST / heat) ** (step / COOLINGS)
            draws = rng.random((part, 4))
            found = kernels.module.anneal(self.tables, loads, best, draws, hot, base, found)
            if out_of_time():
                break
        return self._by_row(best)

    def volumes(self) -> Floats:
        """Return the tokens that each request's cache holds, summed over its rounds."""
        return self._sums

    def _loads(self, where: IntColumn) -> Loads:
        """Return the loads of an assignment in the order of lengths."""
        workers, moments = self.workers, len(self.tables.moments)
        lines = self.tables.round.shape[1]
        loads = Loads(
            np.array(where, np.int64),
            np.zeros(workers, np.int64),
            np.zeros((workers, moments)),
            np.zeros((workers, moments)),
            np.zeros((workers, moments, lines)),
            np.zeros(workers),
        )
        plain.load(self.tables, loads)
        return loads

    def _by_row(self, where: IntColumn) -> IntColumn:
        found = np.empty(len(where), np.int64)
        found[self.order] = where
        return found


def _tables(
    instance: Instance,
    kinds: dict[int, Kind],
    of: list[int],
    order: IntColumn,
    first: int,
    chunks: bool,
) -> Tables:
    """Return what requests need, by falling length, and what workers have, as floating numbers."""
    numbers, n = list(kinds), len(order)
    lines = max(1, *(len(kind.lines) for kind in kinds.values()))
    released = instance.requests.arrival_ns[order] - first
    later = np.unique(released)
    at = np.linspace(0, len(later), MOMENTS, endpoint=False).astype(int)
    moments = np.unique(later[at])
    tables = Tables(
        tokens=instance.rounds_needed[order].astype(float),
        held=np.zeros((len(numbers), n)),
        own=np.zeros((len(numbers), lines, n)),
        fits=np.zeros((len(numbers), n), np.bool_),
        suffix=np.searchsorted(moments, released, side="right") - 1,
        moments=moments.astype(float),
        kind=np.array([numbers.index(number) for number in of]),
        round=np.zeros((len(numbers), lines)),
        fixed=np.zeros((len(numbers), lines)),
        clients=np.ones(len(numbers)),
        blocks=np.zeros(len(numbers)),
        factor=np.ones(len(of)),
    )
    for at_kind, (number, kind) in enumerate(kinds.items()):
        tables.fits[at_kind] = fits_worker(instance, instance.workers[number], chunks)[order]
        tables.clients[at_kind], tables.blocks[at_kind] = kind.clients, kind.blocks
        held = np.zeros(n)
        held[kind.rows] = kind.block_rounds
        tables.held[at_kind] = held[order]
        for line, own, fixed in zip(kind.lines, kind.own, kind.fixed, strict=True):
            unit, each = kind.times / line.unit, np.zeros(n)
            each[kind.rows] = own
            index = kind.lines.index(line)
            tables.own[at_kind, index] = each[order] * unit
            tables.round[at_kind, index] = line.round * unit
            tables.fixed[at_kind, index] = fixed * unit
    return tables


@cache
def engine() -> Kernels:
    """Return the moves of this process; the first call starts to compile them."""
    return Kernels(_compiled, "the moves, fleet runs slower", plain)


def _compiled() -> Any:
    module: Any = compiled_copies(plain)
    one, table = np.ones(1), np.ones((1, 1))
    whole, cube = np.zeros(1, np.int64), np.ones((1, 1, 1))
    tables = Tables(
        one, table, cube, np.ones((1, 1), np.bool_), whole, one, whole, table, table, one, one, one
    )
    loads = Loads(whole.copy(), whole.copy(), table.copy(), table.copy(), cube.copy(), one.copy())
    module.load(tables, loads)
    module.anneal(tables, loads, whole.copy(), np.zeros((1, 4)), 1.0, 1.0, 1.0)
    return module


def alone(instance: Instance, worker: int, rows: IntColumn) -> Instance:
    """Return the problem of one worker that serves some requests, in the order of their rows."""
    return instance.replace(
        requests=instance.requests.take(rows), workers=(instance.workers[worker],)
    )


def joined(
    instance: Instance, parts: Sequence[tuple[int, IntColumn, Schedule]], name: str
) -> Schedule:
    """Return the schedule of a fleet from workers, the rows that each serves and its schedule.

    A part is a schedule of ``alone``; workers without requests have none. Steps are in order of
    start, then worker; work in order of request, stay, then step.
    """
    steps: dict[str, list[IntColumn]] = {each.name: [] for each in fields(Steps)}
    work: dict[str, list[IntColumn]] = {each.name: [] for each in fields(Work)}
    before = 0
    for worker, rows, part in parts:
        for name_of, found in steps.items():
            column = getattr(part.steps, name_of)
            found.append(np.full(len(column), worker) if name_of == "worker" else column)
        for name_of, found in work.items():
            column = getattr(part.work, name_of)
            if name_of == "request":
                column = np.asarray(rows)[column]
            elif name_of in ("first_step", "last_step"):
                column = column + before
            found.append(column)
        before += len(part.steps)
    timeline = {each: _chained(columns) for each, columns in steps.items()}
    done = {each: _chained(columns) for each, columns in work.items()}
    order = np.lexsort((timeline["worker"], timeline["start_ns"]))
    place = np.empty(before, np.int64)
    place[order] = np.arange(before)
    for each in ("first_step", "last_step"):
        done[each] = place[done[each]]
    sort = np.lexsort((done["first_step"], done["stay"], done["request"]))
    return Schedule(
        instance_sha256=instance.sha256,
        steps=Steps(**{each: column[order] for each, column in timeline.items()}),
        work=Work(**{each: column[sort] for each, column in done.items()}),
        method=name,
        information="clairvoyant",
        instance_name=instance.name,
        eviction=next((part.eviction for _, _, part in parts if part.eviction is not None), None),
    )


def _chained(columns: list[IntColumn]) -> IntColumn:
    found: IntColumn = np.concatenate(columns) if columns else np.zeros(0, np.int64)
    return found
