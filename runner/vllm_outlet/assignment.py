"""The order of a plan: over all requests, and worker by worker as JSON lines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Self

import numpy as np

from orsched.common.columns import int_column, whole_number
from orsched.common.errors import InputError, did_you_mean
from orsched.common.scalars import printed, require_suffix
from orsched.common.units import NEVER
from orsched.data.schedule import Scheduled, as_schedule
from orsched.files.document import write_text
from orsched.files.tables import read_objects
from orsched.files.text import locating

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance

LEFT_OUT = -1
"""The worker of requests that an assignment of fewer workers leaves out."""


@dataclass(frozen=True, eq=False)
class Assignment:
    """Which worker serves each request, and in which order it admits its requests.

    Attributes:
        workers: by request, the place of its worker in the fleet; ``LEFT_OUT`` of one left out.
        ranks: by request, its place in its worker's order; stored without gaps, from 0.

    Raises ``InputError``: the columns differ in length, or two requests of a worker share a rank.

    >>> Assignment([0, 1, 0], [7, 0, 3]).ranks.tolist()
    [1, 0, 0]
    """

    workers: IntColumn
    ranks: IntColumn

    def __post_init__(self) -> None:
        workers = int_column(self.workers, "workers", minimum=LEFT_OUT)
        ranks = int_column(self.ranks, "ranks", length=len(workers))
        ranks = np.where(workers == LEFT_OUT, np.arange(len(workers)), ranks)
        rows, start = np.lexsort((ranks, workers)), np.ones(len(workers), bool)
        start[1:] = np.diff(workers[rows]) != 0
        twice = ~start[1:] & (np.diff(ranks[rows]) == 0)
        if twice.any():
            row = int(rows[1:][twice][0])
            said = f"rank {ranks[row]} appears twice on one worker"
            raise InputError(said, row=row, field="rank", remedy="change one of them")
        place = np.arange(len(rows))
        ranks[rows] = place - np.maximum.accumulate(np.where(start, place, 0))
        object.__setattr__(self, "workers", workers)
        object.__setattr__(self, "ranks", int_column(ranks, "ranks"))

    @classmethod
    def from_schedule(cls, instance: Instance, schedule: Scheduled) -> Self:
        """Return the assignment of a schedule; ranks are in the order of ``in_order``.

        Raises ``InputError``: the schedule is not one of this instance or does not admit all of its
        requests, or workers have roles.
        """
        worker_names(instance)
        schedule, step = as_schedule(schedule), admission_steps(instance, schedule)
        if (step < 0).any():
            said = f"no worker admits request {instance.requests.id_of(int(np.argmin(step)))}"
            raise InputError(said, field="schedule", remedy="give one that serves all requests")
        ranks = np.empty(len(instance), np.int64)
        ranks[in_order(instance, schedule)] = np.arange(len(instance))
        return cls(schedule.steps.worker[step], ranks)

    @classmethod
    def read(cls, instance: Instance, path: str | os.PathLike[str]) -> Self:
        """Return the assignment in a file as ``write`` makes it, by orsched or by others.

        Lines may be in any order, ranks may have gaps, and further fields do not count. Raises
        ``InputError`` with the line, from 1: it is not such an object, a request, a worker or a
        rank is not known, is missing or appears twice, or workers have roles.
        """
        n = len(instance)
        rows = {instance.requests.id_of(row): row for row in range(n)}
        places = {name: place for place, name in enumerate(worker_names(instance))}
        workers, ranks, lines = np.zeros((3, n), np.int64)
        with locating(path):
            for line, item in read_objects(path, exact=False):
                try:
                    row = _known(item.get("request"), "request", rows)
                    if lines[row]:
                        said = f"{printed(item['request'])} is also in row {lines[row]}"
                        raise InputError(said, field="request", remedy="keep one of the lines")
                    workers[row] = _known(item.get("worker"), "worker", places)
                    ranks[row], lines[row] = whole_number(item.get("rank"), "rank"), line
                except InputError as error:
                    raise error.located(row=line) from None
            if not lines.all():
                first = printed(instance.requests.id_of(int(np.argmin(lines))))
                said = f"{n - np.count_nonzero(lines):,} of {n:,} have no line, {first} first"
                raise InputError(said, field="request", remedy="give one line for each request")
            try:
                return cls(workers, ranks)
            except InputError as error:  # two of one rank: by the lines in place of the rows
                row = int(lines[error.row or 0])
                said, remedy = error.problem, error.remedy
                raise InputError(said, row=row, field="rank", remedy=remedy) from None

    def only(self, instance: Instance, worker: str) -> Self:
        """Return the assignment without the requests of other workers, which it leaves out."""
        places = {name: place for place, name in enumerate(worker_names(instance))}
        kept = self.workers == _known(worker, "worker", places)
        return type(self)(np.where(kept, self.workers, LEFT_OUT), self.ranks)

    def order(self, instance: Instance) -> list[int]:
        """Return the rows that are not left out: by rank, of one rank by arrival, then row."""
        n, last = len(instance), len(instance.workers) - 1
        if len(self.workers) != n or self.workers.max(initial=0) > last:
            raise _of_another("assignment")
        order = np.lexsort((instance.requests.arrival_ns, self.ranks))
        rows: list[int] = order[self.workers[order] != LEFT_OUT].tolist()
        return rows

    def write(self, instance: Instance, path: str | os.PathLike[str]) -> None:
        """Write JSON lines with ``request``, ``worker`` and ``rank``, worker by worker.

        Raises ``InputError``: the suffix is not ``.jsonl``, or the instance is another one.
        """
        require_suffix(path, (".jsonl",))
        names, id_of = worker_names(instance), instance.requests.id_of
        rows = sorted(self.order(instance), key=lambda row: int(self.workers[row]))
        items = (
            {"request": id_of(row), "worker": names[self.workers[row]], "rank": int(rank)}
            for row, rank in zip(rows, self.ranks[rows], strict=True)
        )
        write_text(path, (json.dumps(item, ensure_ascii=False) + "\n" for item in items))


Plan = Scheduled | Assignment
"""What functions that want the order of a plan take."""


def worker_names(instance: Instance) -> tuple[str, ...]:
    """Return the names of the workers, each another: ``worker-0`` and so on where two share one.

    Raises ``InputError`` for workers with roles: two of them serve a request.
    """
    if any(worker.role != "both" for worker in instance.workers):
        said = "a request has two workers where workers have roles"
        raise InputError(said, field="workers", remedy="export one order over all of them")
    names = tuple(worker.name for worker in instance.workers)
    unique = len(set(names)) == len(names)
    return names if unique else tuple(f"worker-{place}" for place in range(len(names)))


def in_order(instance: Instance, plan: Plan) -> list[int]:
    """Return the rows of all requests in the order in which a plan admits them to stay.

    A request that is evicted counts from its last admission: the plan would have done without the
    ones before. Ties, requests of one step, go by arrival, then row. Requests that a partial
    schedule does not serve come last. The order of an assignment is by rank, without the requests
    that it leaves out. Raises ``InputError``: the plan names requests, workers or steps that do not
    exist.
    """
    if isinstance(plan, Assignment):
        return plan.order(instance)
    schedule = as_schedule(plan)
    step = admission_steps(instance, schedule)
    start = np.append(schedule.steps.start_ns, NEVER)[step]  # -1, not admitted, is the last
    order: list[int] = np.lexsort((instance.requests.arrival_ns, start)).tolist()
    return order


def admission_steps(instance: Instance, schedule: Scheduled) -> IntColumn:
    """Return the step in which each request is admitted to stay, -1 where it never is."""
    schedule = as_schedule(schedule)
    work, steps, n = schedule.work, schedule.steps, len(instance)
    if (
        work.request.max(initial=-1) >= n
        or work.first_step.max(initial=-1) >= len(steps)
        or steps.worker.max(initial=-1) >= len(instance.workers)
    ):
        raise _of_another("schedule")
    head = np.ones(len(work), bool)
    head[1:] = (work.request[1:] != work.request[:-1]) | (work.stay[1:] != work.stay[:-1])
    found = np.full(n, -1, np.int64)
    np.maximum.at(found, work.request[head], work.first_step[head])
    return found


def _known(value: object, field: str, known: Mapping[str, int]) -> int:
    """Return what a name stands for; a whole number is the name in its digits."""
    name = str(value) if type(value) is int else value
    if isinstance(name, str) and name in known:
        return known[name]
    near = did_you_mean(name, islice(known, 20_000))  # among more it would take seconds
    some = ", ".join(islice(known, 8)) + (", ..." if len(known) > 8 else "")
    said = f"{printed(value)} is not a {field} of the instance"
    raise InputError(said, field=field, remedy=f"{near} known: {some}".strip())


def _of_another(what: str) -> InputError:
    remedy = "give the instance that it was made for"
    return InputError(f"the {what} is not one of this instance", field=what, remedy=remedy)
