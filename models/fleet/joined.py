"""Schedules of single workers joined into one of the whole fleet."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from orsched.data.schedule import Schedule, Steps, Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance


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
