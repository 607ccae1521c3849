"""Checks of the limits: prefill cap, memory and arrivals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.checker.violations import STRUCTURE
from orsched.checker.violations import ViolationKind as Kind

if TYPE_CHECKING:
    from orsched.checker.violations import Findings
    from orsched.common.columns import IntColumn
    from orsched.metrics.timeline import Timeline

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
