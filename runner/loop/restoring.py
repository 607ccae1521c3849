"""Bringing requests back to where they were, on a worker that was lost or in a run that stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.step import Step

if TYPE_CHECKING:
    from orsched.policy import View

Places = dict[int, tuple[int, int | None]]
"""Request -> client and cached tokens (None: all) of those that are to be brought back."""


def restoring_step(view: View, restoring: Places) -> Step | None:
    """Return the next prefill of those that are to be brought back, None if all are there.

    Each gets its client again, and prompt and yielded tokens are processed anew: in several steps
    where the worker's cap asks for it. Who is brought back leaves ``restoring``.
    """
    cap, padding = view.worker.prefill_limit, view.worker.padding
    chunks: dict[int, int] = {}
    clients: list[int] = []
    total = longest = 0
    for request, (client, goal) in list(restoring.items()):
        left = view.to_prefill(request) if goal is None else goal - view.cached(request)
        chunk = left if cap is None or chunks else min(left, cap)
        longest, total = max(longest, chunk), total + chunk
        tokens = longest * (len(chunks) + 1) if padding else total
        if cap is not None and tokens > cap and chunks:
            break
        if request not in view.running:
            clients.append(client)
        chunks[request] = chunk
        if chunk < left:
            break
        del restoring[request]
    if not chunks:
        return None
    return Step(prefill=list(chunks), tokens=list(chunks.values()), clients=clients, decode=())
