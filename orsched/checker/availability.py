"""Checks of workers that start, fail and are repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.checker.violations import ViolationKind as Kind
from orsched.common.units import NEVER

if TYPE_CHECKING:
    from orsched.checker.violations import Findings
    from orsched.common.columns import IntColumn
    from orsched.data.availability import Interval
    from orsched.metrics.timeline import Timeline
    from orsched.metrics.timeline_rows import Mask


def check_availability(line: Timeline, findings: Findings) -> None:
    """No step runs and no cache lives while its worker is away; lost steps end with a failure.

    A step or a stay lies within one interval of its worker's availability. A lost step begins at
    the end of the last step of its interval or later and ends with the interval, whose only one it
    is; it is not among the steps, so that nothing comes of it.
    """
    workers = line.instance.workers
    intervals = {i: worker.available_ns for i, worker in enumerate(workers) if worker.available_ns}
    if line.instance.autoscaling is not None:
        intervals = _on_times(line)
    for index, own in intervals.items():
        here = np.flatnonzero(line.worker == index)
        _check_steps(line, findings, here, own)
        _check_stays(line, findings, index, own)
    _check_lost(line, findings, intervals)


def _on_times(line: Timeline) -> dict[int, tuple[Interval, ...]]:
    """Return the times of each worker with autoscaling; a worker without any is never there."""
    never: Interval = (NEVER, None)
    found: dict[int, list[Interval]] = {}
    for row in line.schedule.on_times:
        found.setdefault(row.worker, []).append((row.start_ns, row.end_ns))
    return {i: tuple(found.get(i, [never])) for i in range(len(line.instance.workers))}


def _number(own: tuple[Interval, ...], moments: IntColumn) -> IntColumn:
    """Return the interval that begins last by each moment, -1 for none."""
    starts = np.array([start for start, _ in own], np.int64)
    return np.searchsorted(starts, moments, side="right") - 1


def _outside(own: tuple[Interval, ...], start: IntColumn, end: IntColumn) -> Mask:
    """Return which spans are within no interval."""
    number = _number(own, start)
    ends = np.array([NEVER if end is None else end for _, end in own], np.int64)
    wrong: Mask = (number < 0) | (end > ends[np.maximum(number, 0)])
    return wrong


def _check_steps(
    line: Timeline, findings: Findings, here: IntColumn, own: tuple[Interval, ...]
) -> None:
    wrong = _outside(own, line.start_ns[here], line.end_ns[here])
    findings.add_rows(
        Kind.AVAILABILITY,
        wrong,
        lambda i: {
            "message": f"step {line.order[here[i]]} runs while its worker is not there",
            "worker": int(line.worker[here[i]]),
            "step": int(line.order[here[i]]),
        },
    )


def _check_stays(line: Timeline, findings: Findings, index: int, own: tuple[Interval, ...]) -> None:
    stays = np.flatnonzero(line.stay_worker == index)
    start = line.start_ns[line.stay_first[stays]]
    end = line.start_ns[line.stay_last[stays]]
    findings.add_rows(
        Kind.AVAILABILITY,
        _number(own, start) != _number(own, end),
        lambda i: {
            "message": f"request {line.stay_request[stays[i]]} keeps its cache on a worker that "
            "was lost in between",
            "request": int(line.stay_request[stays[i]]),
            "worker": index,
            "step": int(line.order[line.stay_last[stays[i]]]),
        },
    )


def _check_lost(
    line: Timeline, findings: Findings, intervals: dict[int, tuple[Interval, ...]]
) -> None:
    rows = line.schedule.lost_steps
    if list(rows) != sorted(rows):
        findings.add(Kind.AVAILABILITY, "lost steps are out of order", field="lost_steps")
    begins = {} if line.instance.autoscaling is not None else _beginnings(intervals)
    seen: set[tuple[int, int]] = set()
    last_end = _LastEnds(line)
    for worker, start, end in rows:
        problem = None
        begin = begins.get((worker, end))
        if begin is None:
            problem = "ends with no failure"
        elif not begin <= start < end:
            problem = "does not begin while its worker is there"
        elif (worker, end) in seen:
            problem = "is the second that one failure cuts"
        elif last_end.before(worker, end) > start:
            problem = "begins before its worker's last step has ended"
        seen.add((worker, end))
        if problem is not None:
            where: dict[str, Any] = {"worker": worker, "field": "lost_steps"}
            message = f"the lost step from {start} to {end} ns {problem}"
            findings.add(Kind.AVAILABILITY, message, **where)


def _beginnings(intervals: dict[int, tuple[Interval, ...]]) -> dict[tuple[int, int], int]:
    """Return when the interval began that a failure ends, by worker and that end.

    Nothing fails under autoscaling, where workers go with their last step.
    """
    return {
        (index, end): start
        for index, own in intervals.items()
        for start, end in own
        if end is not None
    }


class _LastEnds:
    """When the steps of a worker that began before a moment have all ended."""

    def __init__(self, line: Timeline) -> None:
        self.line, self.heads = line, line.heads().tolist()
        self.found: dict[int, tuple[IntColumn, IntColumn]] = {}

    def before(self, worker: int, moment: int) -> int:
        """Return the latest end, in ns, of the worker's steps that began before a moment, or 0."""
        if worker not in self.found:
            own = slice(self.heads[worker], self.heads[worker + 1])
            order = np.argsort(self.line.start_ns[own], kind="stable")
            ends = np.maximum.accumulate(self.line.end_ns[own][order])
            self.found[worker] = self.line.start_ns[own][order], ends
        starts, ends = self.found[worker]
        count = int(np.searchsorted(starts, moment))
        return int(ends[count - 1]) if count else 0
