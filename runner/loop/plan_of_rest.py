"""What is left of a plan whose run was stopped: a plan of its own, for the rest of the instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orsched.errors import InputError, PolicyError
from orsched.policy import Information, Policy, View
from orsched.runner.loop.following import first_places
from orsched.runner.loop.in_order import InOrder
from orsched.runner.loop.place_in_plan import place_in_plan
from orsched.runner.loop.restoring import restoring_step
from orsched.simulator import simulate_policy
from orsched.step import Step, Wait

if TYPE_CHECKING:
    from orsched.instance import Instance
    from orsched.runner.loop.place_in_plan import Place
    from orsched.runner.loop.restoring import Places
    from orsched.runner.loop.resume import Rest
    from orsched.schedule import Schedule


class _Left(NamedTuple):
    """What a worker still has to do of the plan, in the rows of the rest.

    Attributes:
        restoring: who is brought back first.
        steps: each with the moment before which it does not start; the next one last.
    """

    restoring: Places
    steps: list[tuple[Step, int]]


def plan_of_rest(instance: Instance, plan: Schedule, rest: Rest) -> Schedule:
    """Return the schedule of a rest that goes on with a plan, by the times of the cost model.

    Each worker brings the requests that were on it back to their clients, then takes the steps of
    the plan that it had not taken. Where the prefill yields a token, those are a token ahead of the
    plan, and leave it a round early. A worker that had left the plan, since it was lost, serves
    the requests that the plan gave it in the order of their planned starts; so do all workers if
    the plan moves requests or evicts them, or if the memory does not hold what is brought back.

    Args:
        instance: the whole.
        plan: of it.
        rest: what a run of the plan has left.

    Raises:
        InputError: that cannot be done either.
    """
    homes, ranks = first_places(instance, plan)
    places: list[Place | None] = [None for _ in instance.workers]
    if not plan.work.stay.any():
        places = [
            place_in_plan(instance, plan, rest, worker, homes)
            for worker in range(len(instance.workers))
        ]
    found = None
    if any(place is not None for place in places):
        found = _simulated(plan, rest, homes, ranks, places)
    if found is None:
        found = _simulated(plan, rest, homes, ranks, [None for _ in places])
    if found is None:
        raise InputError(
            "the rest of this schedule cannot be done in its order",
            field="resume",
            remedy="give the instance and a policy",
        )
    return found.replace(seed=plan.seed, parameters=plan.parameters)


def _simulated(
    plan: Schedule, rest: Rest, homes: list[int], ranks: list[int], places: list[Place | None]
) -> Schedule | None:
    """Return what comes of going on from these places, None if a step is impossible."""
    try:
        return simulate_policy(rest.instance, _Rest(plan, rest, homes, ranks, places)).schedule
    except PolicyError:
        return None


class _Rest(Policy):
    """Takes the steps of the plan that are left, or serves what is left in the plan's order."""

    many_workers = True
    chunks = True

    def __init__(
        self,
        plan: Schedule,
        rest: Rest,
        homes: list[int],
        ranks: list[int],
        places: list[Place | None],
    ) -> None:
        self.name, self.information = plan.method, Information(plan.information)
        self.homes = [homes[row] for row in rest.rows.tolist()]
        self.left = [None if place is None else _in_rest(place, rest) for place in places]
        own = [ranks[row] for row in rest.rows.tolist()]
        self.in_order = [InOrder(own) for _ in places]
        self.open: set[int] = set()

    def on_arrival(self, view: View, request: int) -> None:
        """Take note of it."""
        self.open.add(request)
        self._put(request)

    def on_preempt(self, view: View, request: int) -> None:
        """Let it wait again."""
        self._put(request)

    def _put(self, request: int) -> None:
        if self.left[self.homes[request]] is None:
            self.in_order[self.homes[request]].put(request)

    def decide(self, view: View) -> Step | Wait | None:
        """Return the next step that is left of the plan."""
        left = self.left[view.index]
        if left is None:
            return self.in_order[view.index].decide(view)
        step = restoring_step(view, left.restoring)
        while step is None and left.steps:
            planned, start = left.steps[-1]
            if any(request not in self.open for request in planned.prefill):
                return None
            if start > view.now_ns:
                return Wait(start)
            step = _without_those_done(view, planned)
            left.steps.pop()
        return step


def _without_those_done(view: View, step: Step) -> Step | None:
    """Return a step without rounds of those that are done, None if nobody is left in it."""
    if step.decode is None:  # a static batch
        return step if view.running else None
    decode = [request for request in step.decode if view.decodes(request)]
    return step._replace(decode=decode) if step.prefill or decode else None


def _in_rest(place: Place, rest: Rest) -> _Left:
    """Return what is left from a place on, in the rows and on the clock of the rest."""
    row = {request: index for index, request in enumerate(rest.rows.tolist())}
    restoring = {row[request]: where for request, where in place.restoring.items()}
    steps = []
    for planned in reversed(place.steps):
        step, decode = planned.step, planned.step.decode
        moved = step._replace(
            prefill=[row[request] for request in step.prefill],
            decode=None if decode is None else [row[each] for each in decode if each in row],
        )
        steps.append((moved, planned.start_ns - rest.offset_ns))
    return _Left(restoring, steps)
