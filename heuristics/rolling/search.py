"""The search over windows on what is left of a run."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from orsched.errors import PolicyError
from orsched.heuristics.rolling.remaining import (
    as_instance,
    as_stages,
    first_schedule,
    plan_of_schedule,
    starts_now,
    terms_of_remaining,
)
from orsched.methods import Run
from orsched.models.windows.compiled import compiled
from orsched.models.windows.construction import construct
from orsched.models.windows.plan import FollowPlan
from orsched.models.windows.search import PILOT_TIME, Search, Task
from orsched.policy import Information
from orsched.simulator import simulate_policy
from orsched.stop import FirstOf, MaxIterations, MaxRuntime

if TYPE_CHECKING:
    from orsched.heuristics.rolling.remaining import Remaining, Stage
    from orsched.instance import Instance
    from orsched.models.windows.plan import PlannedStage
    from orsched.schedule import Schedule


class RemainingSearch(Search):
    """The search of ``windows``; first states have no stages while nothing can start."""

    shift = 0

    def _fresh(self, aim_ns: int, share: float, aligned: bool) -> Task | None:
        """Return a first state for a makespan, with a share of its excess in stages."""
        terms, clients = self.terms, self.instance.worker.clients
        stages, time_ns = terms.stages_for(terms.stages_ns + int((aim_ns - terms.least) * share))
        end = (aim_ns - terms.constant_ns - time_ns) // terms.round_ns
        if end < max(terms.rounds, self.shift + 1):
            return None
        rest, gap = stages - 1, end - self.shift
        times = [0] + [self.shift + (k + 1) * gap // (rest + 1) for k in range(rest)]
        state = construct(self.lengths, clients, times, end, terms.prices.by_starts)
        budget = terms.budget(aim_ns + self._optimism, end)
        return Task(state, aim_ns, self._moves(self.effort, PILOT_TIME), self.hot, budget)


class _Best:
    """Carries out plans and keeps the shortest."""

    def __init__(self, left: Remaining, instance: Instance, schedule: Schedule) -> None:
        self.left, self.instance = left, instance
        self.plan, self.makespan_ns = plan_of_schedule(instance, schedule), schedule.makespan_ns

    def follow(self, plan: list[PlannedStage]) -> int | None:
        """Return the makespan of a plan, None where it cannot be carried out."""
        if not starts_now(self.left, plan):
            return None
        try:
            schedule = simulate_policy(self.instance, FollowPlan(plan)).schedule
        except PolicyError:
            return None
        if schedule.makespan_ns < self.makespan_ns:
            self.plan, self.makespan_ns = plan, schedule.makespan_ns
        return schedule.makespan_ns


def make_plan(
    left: Remaining, iterations: int, seed: int, seconds: float = inf
) -> tuple[Stage, ...]:
    """Return a plan for what is left: the best that some attempts of the search find.

    Without a limit in seconds the same for the same arguments, with numba or without. No attempts:
    longest first.
    """
    stop = FirstOf((MaxIterations(iterations), MaxRuntime(seconds))) if iterations else None
    if stop is not None:
        stop.start()
    instance = as_instance(left)
    terms = terms_of_remaining(left, instance)
    clients = len(left.free_at)  # their own first requests have one token each
    schedule = first_schedule(left, instance, min(clients, left.cap or clients))
    best = _Best(left, instance, schedule)
    if stop is None:
        return as_stages(left, best.plan)
    fast = compiled()
    if seconds == inf:
        fast.wait()
    run = Run(Information.CLAIRVOYANT, stop, seed)
    search = RemainingSearch(instance, terms, seed, run, 1, fast, best.follow)
    search.shift = left.shift
    if schedule.makespan_ns > terms.least:
        for done, _ in enumerate(search.attempts(schedule), 1):
            if best.makespan_ns <= terms.least or stop(done, best.makespan_ns):
                break
    return as_stages(left, best.plan)
