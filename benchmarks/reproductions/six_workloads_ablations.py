"""``gittins`` without placing: any free worker serves who is next, or a dispatcher has chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.reproductions.six_workloads_settings import ONE_QUEUE, OWN_QUEUES
from orsched.common import registry
from orsched.heuristics.dispatching import Dispatched, LeastWork
from orsched.heuristics.gittins import Gittins, GittinsParams
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from benchmarks.reproductions.four_workloads_runs import Scheduler
    from orsched.data.instance import Instance
    from orsched.simulator.policy import Policy, View


class Unplaced(Gittins):
    """No worker leaves a request to another one."""

    def start(self, view: View) -> None:
        """Know the workers, and none of the others as a rival."""
        super().start(view)
        for worker in self.workers:
            worker.others = []


def build(instance: Instance, scheduler: Scheduler) -> Policy:
    """Return a fresh policy for a setting, ablations included."""
    known = Information(scheduler.information)
    if scheduler.method == ONE_QUEUE:
        return Unplaced(GittinsParams(), known)
    if scheduler.method == OWN_QUEUES:
        return Dispatched(lambda: Unplaced(GittinsParams(), known), LeastWork())
    method = registry.resolve("methods", scheduler.method)
    policy: Policy = method.build(instance, known, dict(scheduler.options), 0)[0]
    return policy
