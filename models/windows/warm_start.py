"""A given schedule as the start of the search, in the place of the heuristic's."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from orsched.common.errors import InputError
from orsched.models.full_mip.plan import plan_of, schedule_of
from orsched.solving.methods import Outcome
from orsched.solving.result import Termination

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.models.full_mip.plan import Plan

NEAR_GAP = 0.005
"""A search that starts with a gap up to this goes on where another has ended: no first states."""


def given_start(instance: Instance, initial: Schedule, name: str) -> tuple[Outcome, Plan] | None:
    """Return a valid schedule as an outcome, and its plan; None where it has none.

    Schedules with chunks, slices or steps that prefill and decode at once have no plan: they are no
    paths through stages.

    Raises ``InvalidScheduleError`` when the checker rejects it.
    """
    try:
        plan = plan_of(instance, initial)
    except InputError:
        return None
    schedule = initial.replace(
        results={}, bound=None, run={}, method=name, information="clairvoyant"
    )
    return Outcome(schedule, Termination.ITERATIONS, array("q"), {}), plan


def carried_over(instance: Instance, plan: Plan, name: str) -> Outcome:
    """Return the outcome of a plan on an instance with another cost."""
    schedule = schedule_of(instance, plan, name).replace(information="clairvoyant")
    return Outcome(schedule, Termination.ITERATIONS, array("q"), {})
