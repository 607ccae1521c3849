"""The event-driven simulator: runs a policy on an instance, from event to event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.simulator.changing_fleet import ChangingLoop, ScaledLoop
from orsched.simulator.loop import Loop, Simulated
from orsched.simulator.pools import PoolLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.data.instance import Instance
    from orsched.data.step import Step
    from orsched.simulator.policy import Policy, View

__all__ = ["Simulated", "rejected_requests", "simulate_policy"]


def simulate_policy(
    instance: Instance,
    policy: Policy,
    observer: Callable[[View, Step], None] | None = None,
    deadline: Callable[[], None] | None = None,
) -> Simulated:
    """Run a fresh policy object on an instance and return its schedule.

    ``observer`` is called with the view and the step before each step is taken; ``deadline`` now
    and then: it raises to stop the run.

    Raises:
        InfeasibleError: no schedule exists.
        InputError: the policy needs predictions that the instance does not have.
        PolicyError: the policy asked for an impossible step, or left requests unserved.
    """
    instance.require_feasible(policy.chunks)
    return _loop_for(instance)(instance, policy, observer, deadline).run()


def rejected_requests(
    instance: Instance,
    policy: Policy,
    most: int,
    deadline: Callable[[], None] | None = None,
) -> list[int]:
    """Return the requests that a server rejects, which takes none while ``most`` wait or run.

    One that ends at the moment of an arrival still counts. Raises as ``simulate_policy``, and
    ``InputError`` where requests arrive when others have ended: a rejected one never ends.
    """
    instance.require_known_arrivals("a queue that rejects")
    instance.require_feasible(policy.chunks)
    loop = _loop_for(instance)(instance, policy, None, deadline)
    loop.run_state.most = most
    loop.serve()
    return loop.run_state.rejected


def _loop_for(instance: Instance) -> type[Loop]:
    """Return the loop that knows what the instance's workers do; ``Instance`` allows one each."""
    if instance.autoscaling is not None:
        return ScaledLoop
    if instance.fleet_changes:
        return ChangingLoop
    return Loop if instance.link is None else PoolLoop
