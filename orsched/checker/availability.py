"""Checks of workers that come and go: starts, failures, repairs, and the rule of autoscaling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.checker.violations import STRUCTURE
from orsched.checker.violations import ViolationKind as Kind
from orsched.common.errors import InputError
from orsched.common.units import NEVER
from orsched.data.autoscaling import MOST_LOOKS
from orsched.metrics.token_times import finishes_ns

if TYPE_CHECKING:
    from orsched.checker.violations import Findings
    from orsched.common.columns import IntColumn
    from orsched.data.autoscaling import Autoscaling, OnTime
    from orsched.data.workers import Interval
    from orsched.metrics.timeline import Timeline
    from orsched.metrics.timeline_rows import Mask


def check_autoscaling(line: Timeline, findings: Findings) -> None:
    """Workers are on when the rule says so, as far as it does; their times are possible.

    When a worker that drains is off is its own affair: not before it is empty. With the rule
    ``policy`` the numbers are free between the least and the most.
    """
    rule, rows = line.instance.autoscaling, line.schedule.on_times
    if rule is None:
        if rows:
            _report(findings, "workers are on and off without autoscaling")
        return
    try:
        rule.limits(line.instance.workers)
    except InputError as error:
        _report(findings, f"the instance has too few workers: {error.problem}")
        return
    if not _possible(line, rule, findings):
        return
    _check_draining(line, findings)
    if findings.any_of(*STRUCTURE):
        return
    makespan = int(line.end_ns.max(initial=0))
    if makespan // rule.interval_ns > MOST_LOOKS:
        _report(findings, f"more than {MOST_LOOKS} looks at the load")
    elif rule.rule != "policy":
        expected = _Replay(line, rule).rows(makespan)
        found = [(row.worker, row.ordered_ns, row.drained_ns) for row in rows]
        if expected != found:
            pairs = enumerate(zip(expected, found, strict=False))
            wrong = next((place for place, (one, other) in pairs if one != other), -1)
            said = "more or fewer times" if wrong < 0 else f"time {wrong} as {found[wrong]}"
            _report(findings, f"has {said}, where the rule says {expected[wrong]}")


def _report(findings: Findings, message: str, **where: Any) -> None:
    findings.add(Kind.AVAILABILITY, message, field="on_times", **where)


def _possible(line: Timeline, rule: Autoscaling, findings: Findings) -> bool:
    """Whether each time is one that can be, whatever the load was."""
    least, most = rule.limits(line.instance.workers)
    rows, many = line.schedule.on_times, len(line.instance.workers)
    problems = []
    first = {row.worker for row in rows if row.ordered_ns == 0}
    if first != set(range(rule.first)) or [row[:2] for row in rows] != sorted(
        row[:2] for row in rows
    ):
        problems.append("the times are out of order, or not those of the workers at first")
    before: dict[int, OnTime] = {}
    decided = []
    for row in rows:
        last, moments = before.get(row.worker), [row.ordered_ns]
        start = row.ordered_ns + (rule.startup_ns if row.ordered_ns else 0)
        if row.worker >= many or row.start_ns != start:
            problems.append(f"worker {row.worker} is on at {row.start_ns}, not at {start} ns")
        if last is not None and (last.end_ns is None or last.end_ns > row.ordered_ns):
            problems.append(f"worker {row.worker} is ordered before it is off")
        if row.drained_ns is not None:
            moments.append(row.drained_ns)
            decided.append(row.drained_ns)
        if row.end_ns is not None and not (
            row.drained_ns is not None and row.end_ns >= max(row.start_ns, row.drained_ns)
        ):
            problems.append(f"worker {row.worker} is off without having drained")
        if moments != sorted(moments) or any(moment % rule.interval_ns for moment in moments):
            problems.append(f"a decision about worker {row.worker} is not at a look")
        before[row.worker] = row
    problems += _counts(rule, rows, least, most)
    for problem in dict.fromkeys(problems):
        _report(findings, problem)
    return not problems


def _counts(rule: Autoscaling, rows: tuple[OnTime, ...], least: int, most: int) -> list[str]:
    """Return what is wrong with the numbers of workers, and with the times between decisions."""
    ordered = np.array(sorted(row.ordered_ns for row in rows), np.int64)
    drained = np.array(sorted(r.drained_ns for r in rows if r.drained_ns is not None), np.int64)
    moments = np.unique(np.concatenate([ordered, drained]))
    kept = np.searchsorted(ordered, moments, "right") - np.searchsorted(drained, moments, "right")
    wrong = moments[(kept < least) | (kept > most)].tolist()
    found = [f"not {least} to {most} workers are kept at {moment} ns" for moment in wrong]
    last = np.maximum(np.searchsorted(moments, drained) - 1, 0)
    early = drained[(drained - moments[last] < rule.cooldown_ns) & (moments[last] > 0)].tolist()
    return found + [f"a worker drains at {moment} ns, soon after a change" for moment in early]


def _check_draining(line: Timeline, findings: Findings) -> None:
    """No request begins a stay on a worker that came after the worker began to drain."""
    arrival = line.instance.requests.arrival_ns[line.stay_request]
    start = line.start_ns[line.stay_first]
    wrong = np.zeros(len(arrival), bool)
    by_worker: dict[int, list[OnTime]] = {}
    for row in line.schedule.on_times:
        by_worker.setdefault(row.worker, []).append(row)
    for worker, own in by_worker.items():
        stays = np.flatnonzero(line.stay_worker == worker)
        starts = np.array([row.start_ns for row in own], np.int64)
        drained = [NEVER if row.drained_ns is None else row.drained_ns for row in own]
        number = np.searchsorted(starts, start[stays], side="right") - 1
        since = np.array(drained, np.int64)[np.maximum(number, 0)]
        wrong[stays] = (number >= 0) & (start[stays] >= since) & (arrival[stays] >= since)
    findings.add_rows(
        Kind.AVAILABILITY,
        wrong,
        lambda i: {
            "message": f"request {line.stay_request[i]} begins on a worker that drains",
            "request": int(line.stay_request[i]),
            "worker": int(line.stay_worker[i]),
        },
    )


class _Replay:
    """The reactive rule, look by look: requests are open that came before and are not done."""

    def __init__(self, line: Timeline, rule: Autoscaling) -> None:
        self.rule, self.workers = rule, line.instance.workers
        self.least, self.most = rule.limits(self.workers)
        self.arrivals = np.sort(line.instance.requests.arrival_ns)
        self.finishes = np.sort(finishes_ns(line))
        self.ends = {(row.worker, row.ordered_ns): row.end_ns for row in line.schedule.on_times}
        self.on: dict[int, tuple[int, int | None]] = dict.fromkeys(range(rule.first), (0, None))
        self.over: list[tuple[int, int, int | None]] = []

    def rows(self, makespan: int) -> list[tuple[int, int, int | None]]:
        """Return worker, order and drain of all times."""
        changed = 0
        for now in range(self.rule.interval_ns, makespan + 1, self.rule.interval_ns):
            self._switch_off(now)
            came, done = (int(np.searchsorted(x, now)) for x in (self.arrivals, self.finishes))
            if self._decide(now, came - done, now - changed >= self.rule.cooldown_ns):
                changed = now
        still = [(worker, *times) for worker, times in self.on.items()]
        return sorted([*self.over, *still], key=lambda row: row[:2])

    def _switch_off(self, now: int) -> None:
        for worker, (ordered, drained) in list(self.on.items()):
            end = self.ends.get((worker, ordered))
            if end is not None and end < now:
                self.over.append((worker, ordered, drained))
                del self.on[worker]

    def _decide(self, now: int, open_requests: int, cool: bool) -> bool:
        """Follow the rule at one look; say if anything changes."""
        kept = sorted(worker for worker, (_, drained) in self.on.items() if drained is None)
        others = sorted(
            set(range(len(self.workers))) - set(kept), key=lambda w: (w not in self.on, w)
        )
        wanted = self.least
        enough = [max(1, int(self.rule.target * self.workers[w].clients)) for w in [*kept, *others]]
        while wanted < self.most and sum(enough[:wanted]) < open_requests:
            wanted += 1
        if self.rule.schedule:
            wanted = self.rule.schedule[: now // self.rule.interval_ns + 1][-1]
        for worker in others[: max(0, wanted - len(kept))]:
            ordered = self.on[worker][0] if worker in self.on else now
            self.on[worker] = (ordered, None)
        drained = kept[wanted:] if cool else []
        for worker in drained:
            self.on[worker] = (self.on[worker][0], now)
        return bool(drained) or wanted > len(kept)


def check_availability(line: Timeline, findings: Findings) -> None:
    """No step runs and no cache lives while its worker is away; lost steps end with a failure.

    A step or a stay lies within one interval of its worker's availability. A lost step begins at
    the end of the last step of its interval or later and ends with the interval, whose only one it
    is; it is not among the steps, so that nothing comes of it.
    """
    intervals = line.presence
    for index, own in intervals.items():
        here = np.flatnonzero(line.worker == index)
        _check_steps(line, findings, here, own)
        _check_stays(line, findings, index, own)
    _check_lost(line, findings, intervals)


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
    begins = _beginnings(line, intervals)
    seen: set[tuple[int, int]] = set()
    last_end = _LastEnds(line)
    for worker, start, end in rows:
        problem = None
        begin = begins.get((worker, end))
        if begin is None:
            problem = "ends with no failure"
        elif not begin <= start < end:
            problem = "does not begin while its worker is available"
        elif (worker, end) in seen:
            problem = "is the second that one failure cuts"
        elif last_end.before(worker, end) > start:
            problem = "begins before its worker's last step has ended"
        seen.add((worker, end))
        if problem is not None:
            where: dict[str, Any] = {"worker": worker, "field": "lost_steps"}
            message = f"the lost step from {start} to {end} ns {problem}"
            findings.add(Kind.AVAILABILITY, message, **where)


def _beginnings(
    line: Timeline, intervals: dict[int, tuple[Interval, ...]]
) -> dict[tuple[int, int], int]:
    """Return when an interval that a failure ends began, by worker and end."""
    failures = {
        (index, end)
        for index, worker in enumerate(line.instance.workers)
        for _, end in worker.available_ns
    }
    return {
        (index, end): start
        for index, own in intervals.items()
        for start, end in own
        if end is not None and (index, end) in failures
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
