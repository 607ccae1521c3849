"""Requests that wait for a worker that is away, where others have nothing to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.heuristics.dispatching.dispatched import Dispatched
from orsched.heuristics.shortest_first.after_prediction import AfterPrediction
from orsched.runner.loop.following import FollowSchedule
from orsched.simulator.ledger import overridden

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.policy import Policy, View


def hears_of_evictions(policy: Policy) -> bool:
    """Return whether a policy places requests anew that were evicted.

    One that passes it on to others does so if they do.
    """
    if isinstance(policy, Dispatched):
        return all(map(hears_of_evictions, policy.policies))
    if isinstance(policy, AfterPrediction):
        return hears_of_evictions(policy.inner)
    return "on_preempt" in overridden(policy)


def take_over(policy: Policy, view: View, away: Iterable[int]) -> bool:
    """Let a worker with nothing to do have requests that wait for one that is away.

    As many as it has free clients. That is what ``Dispatched`` does where it is to steal, from the
    same queues by the same means, but for one request at a time. Policies that serve several
    workers by themselves place what was evicted as they like.

    Args:
        policy: what decides.
        view: of the worker with nothing to do.
        away: indices of workers that were lost and are not back.

    Returns:
        Whether there were any; the policy is then to be asked again.
    """
    if isinstance(policy, FollowSchedule):
        return policy.take_over(view, away)
    if not isinstance(policy, Dispatched):
        return False
    taken = 0
    for index in away:
        while taken < view.free_clients and _move_one(policy, view, index):
            taken += 1
    return taken > 0


def _move_one(policy: Dispatched, view: View, index: int) -> bool:
    """Move the last request that waits for a worker to that of the view, if it can hold it."""
    source: Any = policy.policies[index]
    if not hasattr(source, "surrender") or not source.waiting():
        return False
    request: int = source.surrender()
    if not policy.dispatcher.holds(view, request, view.index):
        source.on_arrival(view.workers[index], request)
        return False
    policy.dispatcher.moved(view, request, index, view.index)
    policy.policies[view.index].on_arrival(view, request)
    return True
