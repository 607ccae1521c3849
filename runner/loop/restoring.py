"""Restoring requests to their state, on a worker that was lost or in a run that was stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.data.step import Step
from orsched.heuristics.batch_builder import BatchBuilder

if TYPE_CHECKING:
    from orsched.simulator.policy import View

Places = dict[int, tuple[int, int | None]]
"""Request -> client and cached tokens (None: all) of those that are to be brought back."""


def restoring_step(view: View, restoring: Places) -> Step | None:
    """Return the next prefill of those that are to be brought back, None if all are there.

    Each gets its client again, and prompt and yielded tokens are processed again: in several steps
    where the worker's cap asks for it. Who is brought back leaves ``restoring``.
    """
    batch = BatchBuilder(view, memory=False).open(len(restoring))
    chunks: dict[int, int] = {}
    clients: list[int] = []
    for request, (client, goal) in list(restoring.items()):
        left = view.to_prefill(request) if goal is None else goal - view.cached(request)
        chunk = left if chunks else min(left, batch.limit)
        if not batch.admit(request, chunk):
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
