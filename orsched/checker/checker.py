"""The one public function of the checker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.checker.availability import check_autoscaling, check_availability
from orsched.checker.caches import check_prefix_caches, check_transfers
from orsched.checker.durations import Durations, check_durations
from orsched.checker.results import check_bound, check_labels, check_no_results, check_results
from orsched.checker.structure import check_structure
from orsched.checker.violations import DEFAULT_LIMIT, STRUCTURE, Findings, Violation
from orsched.checker.violations import ViolationKind as Kind
from orsched.common.errors import InputError
from orsched.common.scalars import DEFAULT_BUDGET
from orsched.data.schedule import Schedule, Scheduled, as_schedule, served_instance
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance


_NO_LIMIT = 2**62


def check_limits(line: Timeline, findings: Findings) -> None:
    """Prefill caps, memory blocks and arrival times."""
    check_prefill_cap(line, findings)
    check_memory(line, findings)
    check_arrivals(line, findings)


def check_prefill_cap(line: Timeline, findings: Findings) -> None:
    """No step prefills more tokens, padded ones included, than its worker allows."""
    batches = line.batches
    limits = [worker.prefill_limit for worker in line.instance.workers]
    _at_most(line, findings, Kind.PREFILL_CAP, "prompt tokens in one prefill stage",
             batches.place, batches.padded, limits)  # fmt: skip


def check_memory(line: Timeline, findings: Findings) -> None:
    """Requests on clients hold no more blocks than the worker has.

    ``whole``: a stay holds ``ceil((N^p + N^d) / block_tokens)`` blocks from its first step to its
    last (Pang, section V-A). ``paged``: what its cache fills after each step, on a padding worker
    as many as the longest cache. Blocks that several share in a prefix cache count once; that is
    not looked at in a schedule that is wrong in its structure.
    """
    workers = line.instance.workers
    if line.instance.caches_prefixes and findings.any_of(*STRUCTURE):
        return
    if all(worker.memory is None for worker in workers):
        return
    limits = [None if w.memory is None else w.memory.blocks for w in workers]
    places = np.flatnonzero(line.known)
    _at_most(line, findings, Kind.MEMORY, "memory blocks held",
             places, line.caches.blocks[places], limits)  # fmt: skip


def _at_most(
    line: Timeline,
    findings: Findings,
    kind: Kind,
    what: str,
    places: IntColumn,
    amounts: IntColumn,
    limits: list[int | None],
) -> None:
    """Amounts at some places do not exceed the limits of their workers."""
    column = np.array([_NO_LIMIT if x is None else min(x, _NO_LIMIT) for x in limits], np.int64)
    limit = column[line.worker[places]]
    findings.add_rows(
        kind,
        amounts > limit,
        lambda i: {
            "message": f"step {line.order[places[i]]} has {amounts[i]} {what}, "
            f"more than {limit[i]}",
            "worker": int(line.worker[places[i]]),
            "step": int(line.order[places[i]]),
            "expected": int(limit[i]),
            "found": int(amounts[i]),
        },
    )


def check_arrivals(line: Timeline, findings: Findings) -> None:
    """No prefill starts before its request has arrived."""
    request, first = line.request[line.prefills], line.first[line.prefills]
    start = line.start_ns[first]
    arrival = line.instance.requests.arrival_ns[request]
    findings.add_rows(
        Kind.ARRIVAL,
        start < arrival,
        lambda i: {
            "message": f"request {request[i]} is prefilled at {start[i]} ns, before it arrives",
            "request": int(request[i]),
            "step": int(line.order[first[i]]),
            "expected": int(arrival[i]),
            "found": int(start[i]),
        },
    )


TIMES = ("model", "measured")


def check(
    instance: Instance,
    schedule: Scheduled,
    times: str = "model",
    limit: int | None = DEFAULT_LIMIT,
    budget: int | None = DEFAULT_BUDGET,
) -> list[Violation]:
    """Return everything that is wrong with a schedule for an instance; [] means valid.

    The checker shares no code with simulator, policies and searches: of the cost model it calls
    the scalar formulas only, and it reads the schedule as metrics and reports do
    (``orsched.metrics.timeline``). Integers are compared exactly, without tolerance.

    Args:
        instance: the problem.
        schedule: any schedule, however wrong, or a result.
        times: ``model``: durations must be those of the cost model; ``measured``: they were
            measured on a worker and are taken as they are. A measured schedule whose ``run`` says
            that it was stopped need not serve all requests to their ends.
        limit: violations of each kind that are spelt out; a last one counts the others.
        budget: cells of tables that may be filled to verify the bound's certificate (the default
            is several times what any of orsched's own takes); None: any number.

    Raises ``InputError`` if ``times`` is neither of the two, or an argument is not an instance or
    a schedule. No schedule makes the checker raise.

    >>> case = orsched.load("gate")
    >>> orsched.check(case, orsched.solve(case, "fcfs"))
    []
    """
    if times not in TIMES:
        raise InputError(f"{times!r} is unknown", field="times", remedy="model or measured")
    schedule = as_schedule(schedule)
    instance = served_instance(instance, [schedule])
    measured = times == "measured"
    findings = Findings(limit)
    stopped = measured and _was_stopped(schedule)
    line = Timeline(instance, schedule, strict=False)
    durations = Durations(line)
    check_labels(line, findings)
    check_structure(line, findings, stopped)
    check_transfers(line, findings, measured)
    check_prefix_caches(line, findings)
    check_limits(line, findings)
    check_availability(line, findings)
    check_autoscaling(line, findings)
    if not measured:
        check_durations(line, durations, findings)
    bound_ns = check_bound(line, findings, measured, budget)
    if stopped:
        check_no_results(line, findings)
    else:
        check_results(line, None if measured else durations, findings, bound_ns)
    return findings.violations()


def _was_stopped(schedule: Schedule) -> bool:
    run: Any = schedule.run
    return isinstance(run, dict) and run.get("complete") is False
