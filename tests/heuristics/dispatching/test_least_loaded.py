"""The least loaded worker is found in heaps: the same as by looking at all of them."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from orsched.data.memory import BlockMemory
from orsched.data.workers import Worker
from orsched.heuristics.dispatching import FewestRequests, LeastWork


def view_of(workers: list[Worker], prompts: list[int]) -> Any:
    views = [SimpleNamespace(worker=worker, index=i) for i, worker in enumerate(workers)]
    for view in views:
        view.workers = views
        view.prompt_tokens = prompts
        view.output_limit_tokens = 100
        size = getattr(view.worker.memory, "block_tokens", 1)
        view.blocks_of = lambda request, size=size: -(-(prompts[request] + 100) // size)
    return views[0]


def plainly(dispatcher: FewestRequests, view: Any, request: int) -> int:
    """Return the first worker of the least load among all that can hold the request."""
    loads = list(dispatcher.loads)
    able = [index for index in range(len(loads)) if dispatcher.holds(view, request, index)]
    return min(able, key=lambda index: loads[index])


@pytest.mark.parametrize("kind", [FewestRequests, LeastWork])
@pytest.mark.parametrize("rooms", [[None], [None, 50], [20, 50, 20, 400]])
@pytest.mark.parametrize("seed", range(5))
def test_the_heap_finds_whom_a_look_at_all_finds(
    kind: type[FewestRequests], rooms: list[int | None], seed: int
) -> None:
    drawn = random.Random(seed)
    workers = [
        Worker(
            drawn.choice([4, 8]), memory=None if room is None else BlockMemory(room, 16, "whole")
        )
        for room in (drawn.choice(rooms) for _ in range(9))
    ]
    view = view_of(workers, [drawn.randrange(1, 900) for _ in range(500)])
    dispatcher = kind()
    dispatcher.start(view)
    placed: list[tuple[int, int]] = []
    for request in range(500):
        expected = plainly(dispatcher, view, request)
        assert dispatcher.choose(view, request) == expected
        placed.append((request, expected))
        while placed and drawn.random() < 0.45:
            done, worker = placed.pop(drawn.randrange(len(placed)))
            dispatcher.on_finish(view.workers[worker], done)
        if drawn.random() < 0.1 and len(dispatcher.away) < 7:
            dispatcher.lose(drawn.randrange(9))
        elif dispatcher.away:
            dispatcher.bring(drawn.choice(sorted(dispatcher.away)))
        assert all(len(heap) <= 4 * 9 + 64 for heap in dispatcher.heaps)
