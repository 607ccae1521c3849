"""The method ``rolling``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.heuristics.policy_method import PolicyMethod
from orsched.heuristics.rolling.params import RollingParams
from orsched.heuristics.rolling.policy import RollingPolicy
from orsched.policy import Information

if TYPE_CHECKING:
    from orsched.instance import Instance
    from orsched.methods import Outcome, Run


def _make(
    instance: Instance, params: RollingParams, information: Information, seed: int
) -> RollingPolicy:
    for worker in instance.workers:
        instance.replace(workers=worker).require_stages("rolling")
    return RollingPolicy(params, information, seed)


class RollingMethod(PolicyMethod):
    """A ``RollingPolicy`` whose background ends with the run, however that ends."""

    def __call__(self, instance: Instance, run: Run) -> Outcome:
        """Simulate the policy from start to end."""
        made: list[RollingPolicy] = []

        def make(*arguments: Any) -> RollingPolicy:
            made.append(_make(*arguments))
            return made[-1]

        method = PolicyMethod(self.name, self.information, self.summary, make, self.params)
        try:
            return method(instance, run)
        finally:
            for policy in made:
                policy.close()


ROLLING = RollingMethod(
    "rolling",
    (Information.CLAIRVOYANT, Information.PREDICTED),
    "plans of the window model, made in the background and followed; else the derived gate",
    _make,
    RollingParams,
)
