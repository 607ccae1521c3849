"""One policy a worker, below a dispatcher."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from orsched.errors import InputError
from orsched.policy import Information, Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orsched.heuristics.dispatching.dispatchers import Dispatcher
    from orsched.policy import View
    from orsched.step import Step, Wait

_STOLEN_FROM = ("waiting", "surrender")


class Dispatched(Policy):
    """Give each arriving request to a worker, whose own policy does the rest.

    With ``steal``, a worker whose policy has nothing to do takes a waiting request from the
    policy of the worker with the most requests waiting. A policy that can be stolen from has
    ``waiting() -> int`` and ``surrender() -> int``, which gives up the request it would serve
    last.

    Raises:
        InputError: it is to steal, and the policies cannot be stolen from.
    """

    many_workers = True
    assigns = True

    def __init__(
        self, make: Callable[[], Policy], dispatcher: Dispatcher, *, steal: bool = False
    ) -> None:
        self.make = make
        self.dispatcher = dispatcher
        self.steal = steal
        first = make()
        if steal and not all(callable(getattr(first, each, None)) for each in _STOLEN_FROM):
            raise InputError(
                f"a policy {first.name} gives no waiting request away",
                field="steal",
                remedy="leave it out, or dispatch by least_work",
            )
        self.name = first.name
        self.information = Information(first.information)
        self.chunks = first.chunks
        self.eviction = first.eviction
        self.policies = [first]

    def start(self, view: View) -> None:
        """Make one policy for each worker."""
        self.policies += [self.make() for _ in view.workers[1:]]
        self.dispatcher.start(view)
        for policy, own in zip(self.policies, view.workers, strict=True):
            policy.live = self.live
            policy.start(own)

    def on_arrival(self, view: View, request: int) -> int:
        """Let the dispatcher choose."""
        chosen = self.dispatcher.choose(view, request)
        self.policies[chosen].on_arrival(view.workers[chosen], request)
        return chosen

    def on_first_token(self, view: View, request: int) -> None:
        """Tell the worker's policy, and the dispatcher."""
        self.dispatcher.on_first_token(view, request)
        self.policies[view.index].on_first_token(view, request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Tell the worker's policy, and the dispatcher."""
        self.dispatcher.on_finish(view, request)
        self.policies[view.index].on_finish(view, request, client)

    def on_preempt(self, view: View, request: int) -> None:
        """Tell the worker's policy."""
        self.policies[view.index].on_preempt(view, request)

    def decide(self, view: View) -> Step | Wait | None:
        """Ask the worker's policy; let it steal if it has nothing to do."""
        policy = self.policies[view.index]
        step = policy.decide(view)
        if step is None and self.steal and self._steal(view):
            step = policy.decide(view)
        return step

    @property
    def waited_ns(self) -> int:  # type: ignore[override]
        """Return the sum of what the workers' policies have waited."""
        return sum(policy.waited_ns for policy in self.policies)

    def counted(self) -> dict[str, int]:
        """Return the sums of what the workers' policies counted."""
        total: Counter[str] = Counter()
        for policy in self.policies:
            total.update(policy.counted())
        return dict(total)

    def hears_of_evictions(self) -> bool:
        """Return whether the workers' policies place anew what was evicted."""
        return all(policy.hears_of_evictions() for policy in self.policies)

    def take_over(self, view: View, away: Iterable[int]) -> bool:
        """Move what waits for lost workers as stealing does, as much as the worker has clients."""
        taken = 0
        for index in away:
            source = self.policies[index]
            while taken < view.free_clients and all(hasattr(source, n) for n in _STOLEN_FROM):
                if not source.waiting() or not self._move(view, index):  # type: ignore[attr-defined]
                    break
                taken += 1
        return taken > 0

    def _steal(self, view: View) -> bool:
        source, most = -1, 0
        for index, policy in enumerate(self.policies):
            waiting = getattr(policy, "waiting", None)
            if index != view.index and waiting is not None and waiting() > most:
                source, most = index, waiting()
        return source >= 0 and self._move(view, source)

    def _move(self, view: View, source: int) -> bool:
        """Move the request that another worker would serve last, if this one can hold it."""
        request: int = self.policies[source].surrender()  # type: ignore[attr-defined]
        if not self.dispatcher.holds(view, request, view.index):
            self.policies[source].on_arrival(view.workers[source], request)
            return False
        self.dispatcher.moved(view, request, source, view.index)
        self.policies[view.index].on_arrival(view, request)
        return True
