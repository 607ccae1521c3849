"""A schedule as a policy: what was planned, step by step, whatever time each step takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.data.eviction import Eviction
from orsched.data.schedule import require_same_instance
from orsched.data.step import Step, Wait
from orsched.runner.loop.in_order import InOrder
from orsched.runner.loop.planned_steps import planned_steps
from orsched.simulator.policy import Information, Policy, View

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


class FollowSchedule(Policy):
    """Take the steps of a schedule in their order, worker by worker.

    A step waits for the arrival of its requests, for the end of their stays elsewhere and, where
    the plan idles before it, for its start in the plan. One that comes late delays the rest; the
    order stays.

    A worker that was lost cannot go on as planned. It then serves the requests that the plan gave
    it in the order of their planned starts (``InOrder``); and so do all workers, if requests move
    between them or are evicted in the plan. While it is away, others that have done their part of
    the plan serve what waits for it.

    Args:
        instance: the schedule's.
        schedule: planned or measured.

    Raises:
        InputError: the schedule is of another instance.
    """

    many_workers = True
    chunks = True  # as in the plan; and in order what is longer than a stage

    def __init__(self, instance: Instance, schedule: Schedule) -> None:
        require_same_instance(instance, schedule)
        self.name = schedule.method
        self.information = Information(schedule.information)  # what it sets aside in memory
        rule = schedule.eviction
        self.eviction = None if rule is None else Eviction.from_dict(rule)
        workers = range(len(instance.workers))
        self.planned = [planned_steps(schedule, worker) for worker in workers]
        self.position = [0 for _ in workers]
        self.moves = bool(schedule.work.stay.any())
        self.homes, stages = first_places(instance, schedule)
        self.in_order = [InOrder(stages) for _ in workers]
        self.left_plan = [False for _ in workers]
        self.stays = [0] * len(instance)  # how many have ended by an eviction
        self.leaving: set[int] = set()  # whom the plan evicts now
        self.open: set[int] = set()  # arrived, not finished

    def on_arrival(self, view: View, request: int) -> None:
        """Record the event."""
        self.open.add(request)
        home = self.homes[request]
        if self.left_plan[home]:
            self.in_order[home].put(request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Record the event."""
        self.open.discard(request)

    def on_preempt(self, view: View, request: int) -> None:
        """Record the end of a stay: if it was not planned, the worker was lost."""
        self.stays[request] += 1
        if request in self.leaving:
            self.leaving.remove(request)
            return
        if not self.left_plan[view.index]:
            self._leave_plan(view)
        self.in_order[self.homes[request]].put(request)

    def _leave_plan(self, view: View) -> None:
        """Continue in the order of the plan, for the worker or for all."""
        leaving = range(len(self.planned)) if self.moves else [view.index]
        running = {request for each in view.workers for request in each.running}
        for index in leaving:
            self.left_plan[index] = True
        for request in self.open - running:
            if self.left_plan[self.homes[request]]:
                self.in_order[self.homes[request]].put(request)

    def take_over(self, view: View, away: Iterable[int]) -> bool:
        """Give a worker with nothing to do requests that wait for one that is away."""
        index, taken = view.index, 0
        if not self.left_plan[index] and self.position[index] < len(self.planned[index]):
            return False  # it is to do something later
        for source in away:
            for request in self.in_order[source].surrender(view, view.free_clients - taken):
                self.left_plan[index] = True
                self.homes[request] = index
                self.in_order[index].put(request)
                taken += 1
        return taken > 0

    def decide(self, view: View) -> Step | Wait | None:
        """Return the next step of the plan, or what follows it in order."""
        index = view.index
        if self.left_plan[index]:
            return self.in_order[index].decide(view)
        if self.position[index] == len(self.planned[index]):
            return None
        step, start, begins = self.planned[index][self.position[index]]
        ready = all(
            request in self.open and self.stays[request] == stay for request, stay in begins.items()
        )
        if start > view.now_ns:
            return Wait(start)
        if not ready:
            return None
        self.position[index] += 1
        self.leaving.update(step.preempt)
        return step


def first_places(instance: Instance, schedule: Schedule) -> tuple[list[int], list[int]]:
    """Return the worker of each request's first stay, and the step in which it begins."""
    steps, work = schedule.steps, schedule.work
    first = np.full(len(instance), len(steps), np.int64)
    np.minimum.at(first, work.request, work.first_step)
    return np.append(steps.worker, 0)[first].tolist(), first.tolist()
