"""Checks of the limits: prefill cap, memory and arrivals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.checker.violations import ViolationKind as Kind

if TYPE_CHECKING:
    from orsched.checker.intervals import Ints
    from orsched.checker.reading import Reading
    from orsched.checker.violations import Findings

_NO_LIMIT = 2**62


def check_limits(reading: Reading, findings: Findings) -> None:
    """Prefill caps, memory blocks and arrival times."""
    check_prefill_cap(reading, findings)
    check_memory(reading, findings)
    check_arrivals(reading, findings)


def check_prefill_cap(reading: Reading, findings: Findings) -> None:
    """No step prefills more tokens, padded ones included, than its worker allows."""
    loads = reading.loads
    limits = [worker.prefill_limit for worker in reading.instance.workers]
    _at_most(reading, findings, Kind.PREFILL_CAP, "prompt tokens in one prefill stage",
             loads.position, loads.padded, limits)  # fmt: skip


def check_memory(reading: Reading, findings: Findings) -> None:
    """Requests on clients hold no more blocks than the worker has.

    ``whole``: a stay holds ``ceil((N^p + N^d) / block_tokens)`` blocks from its first step to its
    last (Pang, section V-A). ``paged``: what its cache fills after each step, on a padding worker
    as many as the longest cache.
    """
    r = reading
    workers = r.instance.workers
    if all(worker.memory is None for worker in workers):
        return
    limits = [None if w.memory is None else w.memory.blocks for w in workers]
    positions = np.flatnonzero(r.step_ok)
    _at_most(r, findings, Kind.MEMORY, "memory blocks held",
             positions, r.caches.blocks[positions], limits)  # fmt: skip


def _at_most(
    r: Reading,
    findings: Findings,
    kind: Kind,
    what: str,
    positions: Ints,
    amounts: Ints,
    limits: list[int | None],
) -> None:
    """Amounts at some positions do not exceed the limits of their workers."""
    column = np.array([_NO_LIMIT if x is None else min(x, _NO_LIMIT) for x in limits], np.int64)
    limit = column[r.worker[positions]]
    findings.add_rows(
        kind,
        amounts > limit,
        lambda i: {
            "message": f"step {r.order[positions[i]]} has {amounts[i]} {what}, "
            f"more than {limit[i]}",
            "worker": int(r.worker[positions[i]]),
            "step": int(r.order[positions[i]]),
            "expected": int(limit[i]),
            "found": int(amounts[i]),
        },
    )


def check_arrivals(reading: Reading, findings: Findings) -> None:
    """No prefill starts before its request has arrived."""
    r, s = reading, reading.stays
    request, first = s.request[s.prefills], s.first[s.prefills]
    start = r.start[first]
    arrival = r.instance.requests.arrival_ns[request]
    findings.add_rows(
        Kind.ARRIVAL,
        start < arrival,
        lambda i: {
            "message": f"request {request[i]} is prefilled at {start[i]} ns, before it arrives",
            "request": int(request[i]),
            "step": int(r.order[first[i]]),
            "expected": int(arrival[i]),
            "found": int(start[i]),
        },
    )
