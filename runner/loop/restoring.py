"""Bringing requests back to where they were on a worker that was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.step import Step

if TYPE_CHECKING:
    from orsched.runner.loop.live_worker import LiveWorker


def restoring_step(worker: LiveWorker) -> Step | None:
    """Return the next prefill of those that are to be brought back, None if all are there.

    Each gets its client again, and prompt and yielded tokens are processed anew: in several steps
    where the worker's cap asks for it.
    """
    state, ledger, cap = worker.state, worker.ledger, worker.prefill_limit
    chunks: dict[int, int] = {}
    clients: list[int] = []
    total = longest = 0
    for request, (client, goal) in list(worker.restoring.items()):
        due = ledger.prompts[request] + ledger.yielded.get(request, 0)
        left = (due if goal is None else goal) - state.partial.get(request, 0)
        chunk = left if cap is None or chunks else min(left, cap)
        longest, total = max(longest, chunk), total + chunk
        tokens = longest * (len(chunks) + 1) if worker.worker.padding else total
        if cap is not None and tokens > cap and chunks:
            break
        if request not in state.running:
            clients.append(client)
        chunks[request] = chunk
        if chunk < left:
            break
        del worker.restoring[request]
    if not chunks:
        return None
    return Step(prefill=list(chunks), tokens=list(chunks.values()), clients=clients, decode=())
