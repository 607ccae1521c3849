"""Unit rounds: a schedule from the rounds in which requests start, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.checker import check
from orsched.costs.unit_rounds import ROUND_NS
from orsched.errors import InputError, InvalidScheduleError
from orsched.policy import Information, Policy
from orsched.request_times import request_times
from orsched.simulator import simulate_policy
from orsched.step import Step, Wait, decode_rounds, prefill_stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.instance import Instance
    from orsched.policy import View
    from orsched.schedule import Schedule


class _Starts(Policy):
    """Starts each request in its round; nobody is evicted."""

    name = "unit-rounds"
    information = Information.CLAIRVOYANT

    def __init__(self, starts: Sequence[int]) -> None:
        self.order = sorted(range(len(starts)), key=lambda i: (starts[i], i), reverse=True)
        self.starts = starts

    def decide(self, view: View) -> Step | Wait | None:
        """Start whose round has come, else decode until the next start."""
        now, due = view.now_ns // ROUND_NS, []
        while self.order and self.starts[self.order[-1]] <= now:
            due.append(self.order.pop())
        if due:
            return prefill_stage(due)
        then = self.starts[self.order[-1]] if self.order else None
        if view.running:
            return decode_rounds() if then is None else decode_rounds(then - now)
        return None if then is None else Wait(then * ROUND_NS)


def schedule_of_starts(instance: Instance, starts: Sequence[int]) -> Schedule:
    """Return the schedule in which each request starts in its round, accepted by the checker.

    Raises ``InvalidScheduleError`` when it is not, or does not start them so: a bug in the model.
    """
    schedule = simulate_policy(instance, _Starts(starts)).schedule.replace(method="unit-rounds")
    violations = check(instance, schedule)
    if violations or starts_of_schedule(instance, schedule) != list(starts):
        why = violations[0].message if violations else "requests start in other rounds"
        raise InvalidScheduleError(f"the model made an invalid schedule, a bug: {why}", violations)
    return schedule


def starts_of_schedule(instance: Instance, schedule: Schedule) -> list[int]:
    """Return the round in which each request starts.

    Raises ``InputError`` for a schedule with evictions: no starts alone describe it.
    """
    if schedule.work.stay.any():
        raise InputError(
            "a schedule with evictions is not a solution of the program",
            field="start",
            remedy="give one of mc_sf or svf",
        )
    first = request_times(instance, schedule)["prefill_start_ns"]
    starts: list[int] = (first // ROUND_NS).tolist()
    return starts
