"""A plan for several workers carried out: each request goes to its worker, in the planned order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.heuristics.continuous.continuous_batching import ContinuousBatching
from orsched.heuristics.continuous.params import ContinuousParams
from orsched.heuristics.continuous.queues import PriorityQueue
from orsched.heuristics.dispatching.dispatched import Dispatched
from orsched.heuristics.dispatching.dispatchers import Dispatcher
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.simulator.policy import Policy, View


class Planned(Dispatcher):
    """The worker that a plan names for each request."""

    name = "planned"

    def __init__(self, where: Sequence[int]) -> None:
        self.where = where

    def choose(self, view: View, request: int) -> int:
        """Return the planned worker."""
        return self.where[request]


def planned_shares(
    name: str, where: Sequence[int], ranks: Sequence[int], budgets: Sequence[int]
) -> Policy:
    """Return a policy that follows a plan made on predicted lengths.

    Args:
        name: of the policy.
        where: the worker of each request.
        ranks: its place in the order of that worker; the smallest is next.
        budgets: the token budget of each worker's steps.

    A worker without work takes a waiting request, the last one in its order, from the worker with
    the most of them.
    """
    left = iter(budgets)

    def make() -> Policy:
        params = ContinuousParams(max_num_batched_tokens=next(left), policy="priority")
        queue = PriorityQueue(lambda view, request: ranks[request], None)
        policy = ContinuousBatching(params, Information.PREDICTED, queue)
        policy.name = name
        return policy

    return Dispatched(make, Planned(where), steal=True)
