"""One queue for all workers: a request is given to a worker when that worker has room for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.simulator.policy import Information, Policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.data.step import Step, Wait
    from orsched.simulator.policy import View

CENTRAL = "central"


class Central(Policy):
    """A policy of one worker on each, all of which take requests from the same queue.

    The policy states ``shares_queue``: its waiting requests are in its attribute ``queue`` alone,
    from which ``decide`` takes those that it admits, in the queue's order. What was evicted waits
    in it, too, and any worker may go on with it. Workers that differ in memory or in the longest
    prefill are refused.
    """

    many_workers = True

    def __init__(self, make: Callable[[], Policy]) -> None:
        self.make = make
        first: Any = make()
        if not getattr(first, "shares_queue", False):
            raise InputError(
                f"a policy {first.name} has no queue that workers can share",
                field="dispatch",
                remedy="choose another dispatcher, such as soonest",
            )
        self.queue = first.queue
        self.name = first.name
        self.information = Information(first.information)
        self.chunks = first.chunks
        self.eviction = first.eviction
        self.aborts = first.aborts
        self.policies: list[Policy] = [first]

    def start(self, view: View) -> None:
        """Make one policy for each worker, with the queue of the first."""
        rooms = [(each.worker.memory, each.worker.prefill_limit) for each in view.workers]
        if any(room != rooms[0] for room in rooms):
            raise InputError(
                "workers with one queue hold the same requests; these differ in memory or prefill",
                field="dispatch",
                remedy="choose another dispatcher, such as soonest",
            )
        for own in view.workers:
            if own.index:
                policy: Any = self.make()
                policy.queue = self.queue
                self.policies.append(policy)
            self.policies[own.index].start(own)

    def on_arrival(self, view: View, request: int) -> None:
        """Queue the request."""
        self.policies[view.index].on_arrival(view, request)

    def on_first_token(self, view: View, request: int) -> None:
        """Tell the worker's policy."""
        self.policies[view.index].on_first_token(view, request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Tell the worker's policy."""
        self.policies[view.index].on_finish(view, request, client)

    def on_preempt(self, view: View, request: int) -> None:
        """Tell the worker's policy: the request waits in the one queue again."""
        self.policies[view.index].on_preempt(view, request)

    def on_abort(self, view: View, request: int) -> None:
        """Let a request in the queue go, of which any policy can be told."""
        self.policies[0].on_abort(view, request)

    def hears_of_evictions(self) -> bool:
        """Return whether the workers' policies queue again what was evicted."""
        return self.policies[0].hears_of_evictions()

    def decide(self, view: View) -> Step | Wait | None:
        """Ask the worker's policy."""
        return self.policies[view.index].decide(view)

    def counted(self) -> dict[str, int]:
        """Return the sums of what the workers' policies counted."""
        total: dict[str, int] = {}
        for policy in self.policies:
            for name, count in policy.counted().items():
                total[name] = total.get(name, 0) + count
        return total
