"""Times of each request in a schedule, by prefix sums over its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.schedule import DECODE, PREFILL

if TYPE_CHECKING:
    from orsched.columns import IntColumn
    from orsched.instance import Instance
    from orsched.schedule import Schedule, Work


def rows_of_phase(work: Work, phase: int) -> IntColumn:
    """Return the indices of the work rows of one phase."""
    return np.flatnonzero(work.phase == phase)


def request_times(instance: Instance, schedule: Schedule) -> dict[str, IntColumn]:
    """Return client, prefill start and end, first token and finish of every request, in ns.

    Columns ``client, prefill_start_ns, prefill_end_ns, first_token_ns, finish_ns``, one row a
    request; -1 where the schedule does not serve a request.
    """
    n = len(instance)
    steps, work = schedule.steps, schedule.work
    times = {
        name: np.full(n, -1, np.int64)
        for name in ("client", "prefill_start_ns", "prefill_end_ns", "first_token_ns", "finish_ns")
    }
    prefill, decode = rows_of_phase(work, PREFILL), rows_of_phase(work, DECODE)
    # Rows are in order of request, then step: reversed, the first write of a request wins.
    times["client"][work.request[::-1]] = work.client[::-1]
    back = prefill[::-1]
    times["prefill_start_ns"][work.request[back]] = steps.start_ns[work.first_step[back]]
    times["prefill_end_ns"][work.request[prefill]] = steps.end_ns[work.last_step[prefill]]
    times["finish_ns"][work.request] = steps.end_ns[work.last_step]
    if instance.first_token == "prefill":
        times["first_token_ns"][:] = times["prefill_end_ns"]
    else:
        back = decode[::-1]
        times["first_token_ns"][work.request[back]] = _first_round_ends(instance, schedule)[
            work.first_step[back]
        ]
    return times


def _first_round_ends(instance: Instance, schedule: Schedule) -> IntColumn:
    """End of the first round of each step; only decode steps are meaningful.

    Exact where all rounds of a step last equally long; where contexts matter, the cost model is
    asked for the first round, unless the run was measured (its steps then have equal rounds).
    """
    steps = schedule.steps
    duration = (steps.end_ns - steps.start_ns) // steps.rounds
    matters = any(w.cost.context_matters for w in instance.workers)
    if matters and not schedule.is_measured:
        several = np.flatnonzero((steps.phase == DECODE) & (steps.rounds > 1))
        active, total, longest = contexts(instance, schedule)
        for k in several.tolist():
            cost = instance.workers[int(steps.worker[k])].cost
            duration[k] = cost.round_ns(int(active[k]), int(total[k]), int(longest[k]))
    return steps.start_ns + duration


def contexts(instance: Instance, schedule: Schedule) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Return active requests, sum and maximum of contexts in the first round of each decode step.

    Contexts count as in ``orsched.costs.protocol``; prefill steps have 0 everywhere. Schedules
    with one decode row a request only.
    """
    steps, work = schedule.steps, schedule.work
    decode = rows_of_phase(work, DECODE)
    n_steps = len(steps)
    active, total = np.zeros(n_steps + 1, np.int64), np.zeros(n_steps + 1, np.int64)
    rounds_before = _rounds_before(schedule)
    first, last = work.first_step[decode], work.last_step[decode]
    base = instance.requests.prompt_tokens[work.request[decode]] - rounds_before[first]
    np.add.at(active, first, 1)
    np.add.at(active, last + 1, -1)
    np.add.at(total, first, base)
    np.add.at(total, last + 1, -base)
    longest = _running_maximum(n_steps, first, last, base)
    active, total = np.cumsum(active)[:-1], np.cumsum(total)[:-1]
    is_decode = steps.phase == DECODE
    total = (total + active * (rounds_before + 1)) * is_decode
    return active * is_decode, total, (longest + rounds_before + 1) * is_decode


def _rounds_before(schedule: Schedule) -> IntColumn:
    """Decode rounds before each step (one worker)."""
    rounds: IntColumn = schedule.steps.rounds * (schedule.steps.phase == DECODE)
    before: IntColumn = np.cumsum(rounds) - rounds
    return before


def _running_maximum(n: int, first: IntColumn, last: IntColumn, value: IntColumn) -> IntColumn:
    """Maximum of the values whose interval [first, last] covers each position."""
    from heapq import heappop, heappush

    result = np.zeros(n, np.int64)
    order = np.argsort(first, kind="stable")
    heap: list[tuple[int, int]] = []
    starts = zip(first[order].tolist(), value[order].tolist(), last[order].tolist(), strict=True)
    upcoming = next(starts, None)
    for k in range(n):
        while upcoming is not None and upcoming[0] == k:
            heappush(heap, (-upcoming[1], upcoming[2]))
            upcoming = next(starts, None)
        while heap and heap[0][1] < k:
            heappop(heap)
        if heap:
            result[k] = -heap[0][0]
    return result
