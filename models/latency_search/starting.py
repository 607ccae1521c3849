"""First plans: the order of a schedule, with several sizes of steps and gates."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.models.latency_search.problem import Problem

BUDGETS = (256, 512, 1024, 2048, 4096)
"""Most tokens of a step in first plans; the last are those of the worker."""


TOGETHER = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""How many requests join at a time in first plans: a stage has a fixed time of its own."""


class Plan(NamedTuple):
    """What decoding needs beside the problem.

    Attributes:
        orders: the requests of each worker in the order in which they join.
        gates, budgets, alone: of each request (``decoding``).
    """

    orders: list[list[int]]
    gates: NDArray[np.int64]
    budgets: NDArray[np.int64]
    alone: NDArray[np.int64]


def plans_of(
    instance: Instance, schedule: Schedule, problem: Problem, *, mixed: bool
) -> Iterator[Plan]:
    """Yield plans with the workers and the order of a complete schedule."""
    orders = orders_of(instance, schedule)
    n = len(instance)
    budgets = [*BUDGETS, int(problem.whole[0, 4])]
    if not problem.limits[:, 2].all():  # undivided prompts fill a step up to its cap
        budgets = budgets[-1:]
    clients = int(problem.limits[:, 0].max())
    levels = sorted({clients, *(max(1, clients * part // 8) for part in (1, 2, 3, 4, 6))})
    gates = [np.full(n, level, np.int64) for level in levels]
    gates += [_together(orders, n, clients, size) for size in TOGETHER if size <= clients]
    for budget, gate, stage in product(budgets, gates, (0, 1) if mixed else (1,)):
        yield Plan(orders, gate, np.full(n, budget, np.int64), np.full(n, stage, np.int64))


def _together(orders: list[list[int]], n: int, clients: int, size: int) -> NDArray[np.int64]:
    """Return gates by which so many requests join at a time, once that many clients are free."""
    gates = np.full(n, clients, np.int64)
    for order in orders:
        gates[order[clients::size]] = clients - size + 1
    return gates


def orders_of(instance: Instance, schedule: Schedule) -> list[list[int]]:
    """Return the requests of each worker by the start of their prefill in a schedule.

    Of a request that was evicted the last stay counts.
    """
    work, steps = schedule.work, schedule.steps
    prefills = work.phase == 0
    stays = np.zeros(len(instance), np.int64)
    np.maximum.at(stays, work.request, work.stay)
    rows = np.flatnonzero(prefills & (work.stay == stays[work.request]))
    rows = rows[np.lexsort((rows, work.first_step[rows]))]
    _, first = np.unique(work.request[rows], return_index=True)
    rows = rows[np.sort(first)]
    workers = steps.worker[work.first_step[rows]]
    return [work.request[rows[workers == j]].tolist() for j in range(len(instance.workers))]
