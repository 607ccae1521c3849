"""Filling prefill stages from a queue under clients, cap and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections import deque

    from orsched.policy import View


def take_stage(view: View, queue: deque[int]) -> list[int]:
    """Pop requests from the front of a queue into one prefill stage, until the next does not fit.

    Limits: free clients, the worker's prefill cap in tokens, and free memory blocks.
    """
    stage: list[int] = []
    room = view.free_clients
    tokens = view.worker.prefill_limit
    blocks = view.blocks_free
    prompt_tokens = view.prompt_tokens
    while queue and len(stage) < room:
        request = queue[0]
        if tokens is not None:
            tokens -= prompt_tokens[request]
            if tokens < 0:
                break
        if blocks is not None:
            blocks -= view.blocks_of(request)
            if blocks < 0:
                break
        stage.append(queue.popleft())
    return stage
