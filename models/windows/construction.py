"""A first state: stages at given times, clients that take the longest waiting request."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import accumulate
from typing import TYPE_CHECKING

from orsched.errors import OrschedError
from orsched.models.windows.structure import Windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.columns import IntColumn
    from orsched.instance import Instance
    from orsched.models.windows.terms import Terms
    from orsched.schedule import Schedule


def even_times(stages: int, first: int, end: int) -> list[int]:
    """Return times of stages: ``first`` of them at 0, the others evenly spread before the end."""
    first = min(first, stages)
    rest = stages - first
    return [0] * first + [(k + 1) * end // (rest + 1) for k in range(rest)]


def spread(levels: Sequence[int], room: Sequence[int], first: int) -> tuple[list[int], int]:
    """Order levels: the largest until ``first`` starts have room, then evenly mixed.

    Returns the order and how many come first.
    """
    left = sorted(levels, reverse=True)
    order: list[int] = []
    while left and first > 0:
        order.append(left.pop(0))
        first -= room[order[-1]]
    keyed = []
    for level in set(left):
        count = left.count(level)
        keyed += [((k + 0.5) / count, -level) for k in range(count)]
    return order + [-level for _, level in sorted(keyed)], len(order)


def construct(
    lengths: IntColumn,
    clients: int,
    times: Sequence[int],
    end: int,
    levels: Sequence[int],
    room: Sequence[int],
) -> Windows:
    """Return a state in which every request has a window, though maybe too short a one.

    At each stage the free clients take the longest waiting requests, as many as its level has
    room for. What is left at the last stage splits the paths further.
    """
    waiting: list[int] = sorted(lengths.tolist(), reverse=True)
    free = list(range(clients))
    busy: list[tuple[int, int]] = []
    paths: list[list[int]] = [[] for _ in range(clients)]
    taken = 0
    left = [room[level] for level in levels]
    for stage, now in enumerate(times):
        while busy and busy[0][0] <= now:
            free.append(heappop(busy)[1])
        while free and taken < len(waiting) and left[stage] > 0:
            client = free.pop(0)
            paths[client].append(stage)
            heappush(busy, (now + waiting[taken], client))
            left[stage] -= 1
            taken += 1
    _place_rest(len(waiting) - taken, paths, left)
    return Windows(lengths, times, end, [path for path in paths if path], levels, room)


def state_of(instance: Instance, schedule: Schedule, terms: Terms) -> Windows | None:
    """Return the state of a schedule, with V = 0, or None where it is not made of whole stages."""
    from orsched.models.full_mip.plan import plan_of

    try:
        plan = plan_of(instance, schedule)
    except OrschedError:
        return None
    assert plan.client is not None
    times = [0, *accumulate(plan.rounds)]
    paths: dict[int, list[int]] = {}
    tokens = [0] * len(plan.rounds)
    prompts = instance.requests.prompt_tokens.tolist()
    for stage, client, prompt in sorted(zip(plan.stage, plan.client, prompts, strict=True)):
        paths.setdefault(client, []).append(stage)
        tokens[stage] += prompt
    levels = [terms.level_of(count) for count in tokens]
    lengths = instance.rounds_needed
    return Windows(lengths, times[:-1], times[-1], list(paths.values()), levels, terms.room)


def _place_rest(count: int, paths: list[list[int]], left: list[int]) -> None:
    """Give the requests that are left a start in the emptiest stages that a path can take."""
    for _ in range(count):
        order = sorted(range(len(left)), key=lambda k: -left[k])
        stage, path = next(
            (
                (k, p)
                for k in order
                for p in sorted(paths, key=len)
                if k not in p and left[k] > min(0, left[order[0]] - 1)
            ),
            (order[0], paths[0]),
        )
        path.append(stage)
        path.sort()
        left[stage] -= 1
