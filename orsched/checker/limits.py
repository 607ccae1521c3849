"""Checks of the limits: prefill cap, memory and arrivals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.checker.reading import PREFILL, covering
from orsched.checker.violations import ViolationKind as Kind

if TYPE_CHECKING:
    from orsched.checker.reading import Bools, Ints, Reading
    from orsched.checker.violations import Findings


def check_limits(reading: Reading, findings: Findings) -> None:
    """Prefill caps, memory blocks and arrival times."""
    for worker in range(len(reading.instance.workers)):
        check_prefill_cap(reading, findings, worker)
        check_memory(reading, findings, worker)
    check_arrivals(reading, findings)


def check_prefill_cap(reading: Reading, findings: Findings, worker: int) -> None:
    """No prefill stage holds more prompt tokens than its worker allows."""
    r, work = reading, reading.schedule.work
    limit = r.instance.workers[worker].prefill_limit
    if limit is None:
        return
    rows = r.prefill_rows
    tokens = np.zeros(len(r.worker), np.int64)
    np.add.at(tokens, r.first[rows], work.tokens[rows])
    wrong = (tokens > limit) & (r.worker == worker) & (r.phase == PREFILL)
    _report(
        r, findings, Kind.PREFILL_CAP, "prompt tokens in one prefill stage", wrong, tokens, limit
    )


def check_memory(reading: Reading, findings: Findings, worker: int) -> None:
    """Requests on clients hold no more blocks than the worker has.

    A request holds ``ceil((N^p + N^d) / block_tokens)`` blocks from the start of its prefill
    stage to the end of its last step (Pang, section V-A).
    """
    r = reading
    memory = r.instance.workers[worker].memory
    if memory is None:
        return
    request, _, first, last = r.spans
    here = r.worker[first] == worker
    request, first, last = request[here], first[here], last[here]
    requests = r.instance.requests
    tokens = requests.prompt_tokens[request] + requests.output_tokens[request]
    blocks = (tokens + (memory.block_tokens - 1)) // memory.block_tokens
    held = covering(len(r.worker), first, last, blocks)
    _report(r, findings, Kind.MEMORY, "memory blocks held", held > memory.blocks, held,
            memory.blocks)  # fmt: skip


def _report(
    r: Reading, findings: Findings, kind: Kind, what: str, wrong: Bools, amount: Ints, limit: int
) -> None:
    findings.add_rows(
        kind,
        wrong,
        lambda position: {
            "message": f"step {r.order[position]} has {amount[position]} {what}, more than {limit}",
            "worker": int(r.worker[position]),
            "step": int(r.order[position]),
            "expected": limit,
            "found": int(amount[position]),
        },
    )


def check_arrivals(reading: Reading, findings: Findings) -> None:
    """No prefill stage starts before its requests have arrived."""
    r, work = reading, reading.schedule.work
    request = work.request[r.prefill_rows]
    step = work.first_step[r.prefill_rows]
    start = r.schedule.steps.start_ns[step]
    arrival = r.instance.requests.arrival_ns[request]
    findings.add_rows(
        Kind.ARRIVAL,
        start < arrival,
        lambda i: {
            "message": f"request {request[i]} is prefilled at {start[i]} ns, before it arrives",
            "request": int(request[i]),
            "step": int(step[i]),
            "expected": int(arrival[i]),
            "found": int(start[i]),
        },
    )
