"""What is left of a plan whose run was stopped: a plan of its own, for the rest of the instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.common.errors import InputError, PolicyError
from orsched.runner.loop.following import first_places
from orsched.runner.loop.in_order import InOrder
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information, Policy, View

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.step import Step
    from orsched.runner.loop.resume import Rest


def plan_of_rest(instance: Instance, plan: Schedule, rest: Rest) -> Schedule:
    """Return the schedule of a rest that continues a plan, by the times of the cost model.

    Each worker serves what the plan gave it in the order of the plan: first the requests on it,
    then the next stage as soon as there are clients for all of it (for the next request of it where
    the plan moves requests or evicts them).

    Args:
        instance: the whole.
        plan: of it.
        rest: what a run of the plan has left.

    Raises:
        InputError: the memory does not hold what is brought back.
    """
    try:
        found = simulate_policy(rest.instance, _Rest(instance, plan, rest)).schedule
    except PolicyError:
        raise InputError(
            "the rest of this schedule cannot be done in its order",
            field="resume",
            remedy="give the instance and a policy",
        ) from None
    return found.replace(seed=plan.seed, parameters=plan.parameters)


class _Rest(Policy):
    """Serves what is left in the plan's order."""

    many_workers = True
    chunks = True

    def __init__(self, instance: Instance, plan: Schedule, rest: Rest) -> None:
        self.name, self.information = plan.method, Information(plan.information)
        homes, stages = first_places(instance, plan)
        self.homes = [homes[row] for row in rest.rows.tolist()]
        begun = rest.yielded > 0
        own = [
            -1 if was else stages[row]
            for row, was in zip(rest.rows.tolist(), begun.tolist(), strict=True)
        ]
        whole = not plan.work.stay.any()
        self.in_order = [InOrder(own, whole) for _ in instance.workers]

    def on_arrival(self, view: View, request: int) -> None:
        """Queue it."""
        self.in_order[self.homes[request]].put(request)

    def on_preempt(self, view: View, request: int) -> None:
        """Queue it again."""
        self.in_order[self.homes[request]].put(request)

    def decide(self, view: View) -> Step | None:
        """Return the next step in the order of the plan."""
        return self.in_order[view.index].decide(view)
