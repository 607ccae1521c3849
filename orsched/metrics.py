"""Metrics: the reported numbers of a schedule, exact in integers until the last division."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.columns import exact_sum, whole_number
from orsched.schedule import DECODE, PREFILL
from orsched.timeline import request_times
from orsched.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.columns import IntColumn
    from orsched.instance import Instance
    from orsched.schedule import Schedule

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True)
class SLO:
    """A service-level objective: limits on TTFT and TPOT, in nanoseconds."""

    ttft_ns: int
    tpot_ns: int

    def __post_init__(self) -> None:
        whole_number(self.ttft_ns, "slo.ttft_ns")
        whole_number(self.tpot_ns, "slo.tpot_ns")


def summarise(instance: Instance, schedule: Schedule, slo: SLO | None = None) -> dict[str, Any]:
    """Return all reported numbers of a schedule as plain JSON values.

    Times are integer nanoseconds, means and ratios floats (one correctly rounded division of
    integers), percentiles nearest rank. A number that is not defined is None.
    """
    steps = schedule.steps
    makespan = schedule.makespan_ns
    requests = instance.requests
    times = request_times(instance, schedule)
    busy, bubbles = client_time(instance, schedule, times)
    clients = sum(w.clients for w in instance.workers)
    output_tokens = int(requests.output_tokens.sum())
    ttft = times["first_token_ns"] - requests.arrival_ns
    several = requests.output_tokens >= 2
    tpot = (times["finish_ns"] - times["first_token_ns"])[several] // (
        requests.output_tokens[several] - 1
    )
    bound_ns = None if schedule.bound is None else int(schedule.bound["value_ns"])
    return {
        "makespan_ns": makespan,
        "busy_client_ns": busy,
        "slot_utilization": ratio(busy, clients * makespan),
        "bubble_ns": bubbles,
        "prefill_stages": int((steps.phase == PREFILL).sum()),
        "decode_rounds": int(steps.rounds[steps.phase == DECODE].sum()),
        "prompt_tokens": int(requests.prompt_tokens.sum()),
        "output_tokens": output_tokens,
        "tokens_per_s": ratio(output_tokens * NS_PER_S, makespan),
        "ttft_ns": distribution(ttft),
        "tpot_ns": distribution(tpot),
        "jct_ns": distribution(times["finish_ns"] - requests.arrival_ns),
        "slo": None if slo is None else _attainment(slo, ttft, tpot, several),
        "bound_ns": bound_ns,
        "gap": None if bound_ns is None else ratio(makespan - bound_ns, bound_ns),
    }


def ratio(numerator: int, denominator: int) -> float | None:
    """Return the quotient of two integers, correctly rounded; None for a denominator of 0."""
    return numerator / denominator if denominator else None


def distribution(values: IntColumn | Sequence[int]) -> dict[str, int | float] | None:
    """Return mean, nearest-rank percentiles and maximum of integers; None when there are none."""
    n = len(values)
    if n == 0:
        return None
    ordered = np.sort(np.asarray(values, np.int64))
    summary: dict[str, int | float] = {"mean": exact_sum(ordered) / n}
    for percent in PERCENTILES:
        summary[f"p{percent}"] = int(ordered[-(-percent * n // 100) - 1])
    summary["max"] = int(ordered[-1])
    return summary


def client_time(
    instance: Instance, schedule: Schedule, times: dict[str, IntColumn]
) -> tuple[int, dict[str, int]]:
    """Split clients x makespan into busy time and bubbles by cause, in client-nanoseconds.

    Returns (busy, {waiting_for_prefill, other_prefill, no_request, tail}); they add up to
    clients x makespan exactly. A client that holds a request is busy in that request's prefill
    and decode; other requests' prefill stages are ``other_prefill``. A free client waits for
    prefill while the worker is at work and has no request while it is not; after its last
    request it is in the tail.
    """
    makespan = schedule.makespan_ns
    busy = held = held_idle = tail = gaps = 0
    for index, worker in enumerate(instance.workers):
        mine = _WorkerClock(schedule, index)
        served = mine.requests
        start, finish = times["prefill_start_ns"][served], times["finish_ns"][served]
        busy += mine.busy()
        held += exact_sum(finish - start)
        held_idle += exact_sum(mine.idle_before(finish) - mine.idle_before(start))
        ends = np.zeros(worker.clients, np.int64)
        np.maximum.at(ends, times["client"][served], finish)
        tail += exact_sum(makespan - ends)
        # Before its last request ends, a client without a request and without a step to wait for.
        gaps += exact_sum(mine.idle_before(ends))
    free = sum(w.clients for w in instance.workers) * makespan - tail - held
    no_request = gaps - held_idle
    return busy, {
        "waiting_for_prefill": free - no_request,
        "other_prefill": held - busy - held_idle,
        "no_request": gaps,
        "tail": tail,
    }


class _WorkerClock:
    """Prefix sums over the steps of one worker."""

    def __init__(self, schedule: Schedule, worker: int) -> None:
        steps, work = schedule.steps, schedule.work
        self.chosen = np.flatnonzero(steps.worker == worker)
        self.start, self.end = steps.start_ns[self.chosen], steps.end_ns[self.chosen]
        rows = np.flatnonzero(steps.worker[work.first_step] == worker)
        self.work, self.rows = work, rows
        self.requests = np.unique(work.request[rows])
        duration = steps.end_ns - steps.start_ns
        self.by_phase = {
            phase: _before(np.where((steps.worker == worker) & (steps.phase == phase), duration, 0))
            for phase in (PREFILL, DECODE)
        }
        gap = (
            np.diff(self.start, append=0)
            if len(self.start) == 0
            else np.concatenate([[self.start[0]], self.start[1:] - self.end[:-1]])
        )
        self.idle_until_start = np.cumsum(gap)

    def busy(self) -> int:
        """Client-time in which a client's own request is in prefill or decode."""
        work, total = self.work, 0
        for phase, before in self.by_phase.items():
            rows = self.rows[work.phase[self.rows] == phase]
            total += exact_sum(before[work.last_step[rows] + 1] - before[work.first_step[rows]])
        return total

    def idle_before(self, moments: IntColumn) -> IntColumn:
        """Time without a step before each moment (moments are starts or ends of steps, or 0)."""
        if len(self.start) == 0:
            return np.zeros_like(moments)
        last = np.searchsorted(self.start, moments, side="right") - 1
        idle = self.idle_until_start[np.maximum(last, 0)]
        return np.where(last < 0, moments, idle + np.maximum(moments - self.end[last], 0))


def _before(durations: IntColumn) -> IntColumn:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(durations)])


def _attainment(
    slo: SLO, ttft: IntColumn, tpot: IntColumn, several: NDArray[np.bool_]
) -> dict[str, Any]:
    met = ttft <= slo.ttft_ns
    met[several] &= tpot <= slo.tpot_ns
    attained = int(met.sum())
    return {
        "ttft_ns": slo.ttft_ns,
        "tpot_ns": slo.tpot_ns,
        "attained": attained,
        "attainment": ratio(attained, len(ttft)),
    }
