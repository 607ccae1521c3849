"""A worker that is lost in the middle of a step: the step is undone, all caches are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.data.schedule import PREFILL
from orsched.simulator.run_state import WAITING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orsched.simulator.worker import WorkerRun


def abort_step(worker: WorkerRun, before: Mapping[int, int]) -> list[int]:
    """Undo what a worker's step in progress did when it began; the worker is free then.

    The evictions and pauses that came with it stand. A request that was new leaves its client, and
    its stay never began.

    Args:
        worker: has a step in progress.
        before: request -> tokens in its cache before the step, of those that the step prefills.

    Returns:
        The requests that were new.
    """
    running_set, steps = worker.running_set, worker.steps
    for column in (steps.end_ns, steps.rounds, steps.phase):
        column.pop()
    new: list[int] = []
    if worker.completed is not None:
        _take_back_rows(worker, before)
        for request, tokens in before.items():
            _take_back_prefill(worker, request, tokens)
            if not tokens:
                running_set.leave(request, WAITING)
                new.append(request)
    worker.completed = None
    worker.busy = False
    return new


def _take_back_prefill(worker: WorkerRun, request: int, before: int) -> None:
    """Let a request have as many tokens in its cache as before its chunk."""
    partial, pages, run_state = worker.state.partial, worker.caches.pages, worker.run_state
    due = run_state.prompts[request] + run_state.yielded.get(request, 0)
    after = partial.pop(request, due)
    if before:
        partial[request] = before
    if pages is not None:
        pages.drop(after)
        if before:
            pages.put(before)


def _take_back_rows(worker: WorkerRun, requests: Mapping[int, int]) -> None:
    """Drop the rows of work of requests that were prefilled in the step that is undone."""
    index, work, stays = len(worker.steps), worker.running_set.work, worker.run_state.stays
    for request in requests:
        if request not in stays and work.prefill_step[request] == index:
            work.prefill_step[request] = -1
            work.prefill_tokens[request] = worker.run_state.prompts[request]
            work.worker[request] = 0
            work.client[request] = -1
    work.drop(worker.state.index, PREFILL, index)


def evict_all(worker: WorkerRun) -> list[int]:
    """Evict all requests of a free worker, the last admitted first; return them.

    Those that are done and held in a static batch finish.
    """
    worker.running_set.release_held()
    requests = list(reversed(worker.state.running))
    worker.running_set.evict(requests)
    return requests
