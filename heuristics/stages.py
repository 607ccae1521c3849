"""Filling prefill stages from a queue under clients, cap and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections import deque

    from orsched.policy import View


def take_stage(view: View, queue: deque[int]) -> list[int]:
    """Pop requests from the front of a queue into one prefill stage, until the next does not fit.

    Limits: free clients, the worker's prefill cap in tokens, and free memory blocks. On a padding
    worker each request counts as long as the longest of the stage, and with paged memory what is
    set aside for it as much as the most of all that are there.
    """
    worker = view.worker
    if worker.padding:
        return _take_padded(view, queue)
    stage: list[int] = []
    room, cap = view.free_clients, worker.prefill_limit
    blocks = None if worker.memory is None else view.blocks_free
    while room and queue:
        request = queue[0]
        if cap is not None:
            cap -= view.prompt_tokens[request]
            if cap < 0:
                break
        if blocks is not None:
            blocks -= view.blocks_of(request)
            if blocks < 0:
                break
        stage.append(queue.popleft())
        room -= 1
    return stage


def _take_padded(view: View, queue: deque[int]) -> list[int]:
    memory, cap, blocks = view.worker.memory, view.worker.prefill_limit, view.blocks_free
    stage: list[int] = []
    longest = 0
    paged = memory is not None and memory.is_paged
    most = max((view.blocks_of(request) for request in view.running), default=0) if paged else 0
    while queue and len(stage) < view.free_clients:
        request = queue[0]
        longest = max(longest, view.prompt_tokens[request])
        if cap is not None and longest * (len(stage) + 1) > cap:
            break
        if memory is not None and blocks is not None:
            most = max(most, view.blocks_of(request))
            blocks -= view.blocks_of(request)
            if most * (len(view.running) + len(stage) + 1) > memory.blocks if paged else blocks < 0:
                break
        stage.append(queue.popleft())
    return stage
