"""The method ``rolling``."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from orsched.heuristics.policy_method import PolicyMethod
from orsched.heuristics.rolling.params import RollingParams
from orsched.heuristics.rolling.policy import RollingPolicy
from orsched.policy import Information
from orsched.result import Termination

if TYPE_CHECKING:
    from orsched.instance import Instance
    from orsched.methods import Outcome, Run

_RESERVED = 0.2
"""Share of a time limit that is kept for the run itself and its check."""


def _make(
    instance: Instance, params: RollingParams, information: Information, seed: int
) -> RollingPolicy:
    for worker in instance.workers:
        instance.replace(workers=worker).require_stages("rolling")
    return RollingPolicy(params, information, seed)


class RollingMethod(PolicyMethod):
    """A ``RollingPolicy`` whose background ends with the run, however that ends.

    Under a time limit plans are made for most of it; the gate alone decides what is left then.
    """

    def __call__(self, instance: Instance, run: Run) -> Outcome:
        """Simulate the policy from start to end."""
        made: list[RollingPolicy] = []
        reserve = run.stop.seconds_left * _RESERVED
        reserve = reserve if reserve < inf else 0.0

        def make(*arguments: Any) -> RollingPolicy:
            policy = _make(*arguments)
            policy.seconds_left = lambda: run.stop.seconds_left - reserve
            made.append(policy)
            return policy

        method = PolicyMethod(self.name, self.information, self.summary, make, self.params)
        try:
            outcome = method(instance, run)
        finally:
            for policy in made:
                policy.close()
        outcome = outcome._replace(notes=(*outcome.notes, *_late(made)))
        ends = [policy.ended_ns for policy in made if policy.ended_ns is not None]
        if not ends:
            return outcome
        note = f"the time limit ended planning: from {min(ends) / 1e9:.1f} s on the gate decides"
        return outcome._replace(termination=Termination.TIME_LIMIT, notes=(*outcome.notes, note))


def _late(policies: list[RollingPolicy]) -> list[str]:
    """Say how many plans took longer here than their time, and how long the run waited."""
    allowed = policies[0].rolling.planning_time
    took = [ns / 1e9 for policy in policies for ns in policy.took_ns]
    late = sum(seconds > allowed for seconds in took)
    if not late:
        return []
    waited = sum(policy.waited_ns for policy in policies) / 1e9
    return [
        f"{late} of {len(took)} plans took longer here than planning_time, {allowed:g} s (at most "
        f"{max(took):.1f} s): the simulation waited {waited:.1f} s for plans, a real worker goes "
        "on without those"
    ]


ROLLING = RollingMethod(
    "rolling",
    (Information.CLAIRVOYANT, Information.PREDICTED),
    "plans of the window model, made in the background and followed; else the derived gate",
    _make,
    RollingParams,
)
