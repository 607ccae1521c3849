"""A first state: stages at given times, clients that take the longest waiting request."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import accumulate
from typing import TYPE_CHECKING

from orsched.common.errors import OrschedError
from orsched.models.windows.structure import Windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.models.windows.terms import Terms


def even_times(stages: int, end: int) -> list[int]:
    """Return times of stages: the first at 0, the others evenly spread before the end."""
    return [k * end // stages for k in range(stages)]


def aligned_times(stages: int, end: int, longest: int) -> list[int]:
    """Return times of stages: whole longest requests, the others evenly spread."""
    whole = list(range(0, end, longest))[:stages]
    rest = stages - len(whole)
    return sorted(whole + [(k + 1) * end // (rest + 1) for k in range(rest)])


def anchored_times(stages: int, end: int, longest: int) -> list[int]:
    """Return times of stages: whole longest requests from start and end, others between.

    Clients that serve nothing but longest requests until their last short ones, or from their first
    ones on, then lose no round.
    """
    anchors = {*range(0, end, longest), *range(end - longest, 0, -longest)}
    whole = sorted(anchors)[:stages]
    rest = stages - len(whole)
    return sorted(whole + [(k + 1) * end // (rest + 1) for k in range(rest)])


def construct(
    lengths: IntColumn,
    clients: int,
    times: Sequence[int],
    end: int,
    price: Sequence[int] = (),
    late_price: Sequence[int] = (),
) -> Windows:
    """Return a state in which every request has a window, though maybe too short a one.

    At each stage the free clients take the longest waiting requests. What is left at the last
    stage splits the paths further.
    """
    waiting: list[int] = sorted(lengths.tolist(), reverse=True)
    free = list(range(clients))
    busy: list[tuple[int, int]] = []
    paths: list[list[int]] = [[] for _ in range(clients)]
    taken = 0
    for stage, now in enumerate(times):
        while busy and busy[0][0] <= now:
            free.append(heappop(busy)[1])
        while free and taken < len(waiting):
            client = free.pop(0)
            paths[client].append(stage)
            heappush(busy, (now + waiting[taken], client))
            taken += 1
    _place_rest(len(waiting) - taken, paths, len(times))
    return Windows(lengths, times, end, [path for path in paths if path], price, late_price)


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
    for stage, client in sorted(zip(plan.stage, plan.client, strict=True)):
        paths.setdefault(client, []).append(stage)
    lengths, prices = instance.rounds_needed, terms.prices
    chosen = list(paths.values())
    return Windows(lengths, times[:-1], times[-1], chosen, prices.by_starts, prices.late)


def _place_rest(count: int, paths: list[list[int]], stages: int) -> None:
    """Give the requests that are left a start in the emptiest stages that a path can take."""
    starts = [0] * stages
    for path in paths:
        for stage in path:
            starts[stage] += 1
    for _ in range(count):
        stage, path = next(
            (k, p)
            for k in sorted(range(stages), key=starts.__getitem__)
            for p in sorted(paths, key=len)
            if k not in p
        )
        path.append(stage)
        path.sort()
        starts[stage] += 1
