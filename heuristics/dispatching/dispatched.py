"""One policy a worker, below a dispatcher."""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from orsched.common.errors import InputError
from orsched.simulator.policy import Information, Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orsched.data.step import Step, Wait
    from orsched.heuristics.dispatching.dispatchers import Dispatcher
    from orsched.simulator.policy import View

_STOLEN_FROM = ("waiting", "surrender")


class Dispatched(Policy):
    """Give each arriving request to a worker, whose own policy does the rest.

    With ``steal``, a worker whose policy has nothing to do takes a waiting request from the policy
    of the worker with the most requests waiting. Such a policy has ``waiting() -> int`` and
    ``surrender() -> int``, which gives up the request it would serve last; else ``InputError``.
    """

    many_workers = True
    assigns = True
    drains = True

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
        self.aborts = first.aborts
        self.policies = [first]
        self.before: Counter[str] = Counter()  # counted by policies of workers that were lost
        self.homeless: list[int] = []
        self.waits = [0]  # requests that wait for each worker; counted where it steals
        self.queued = 0
        self.longest: list[tuple[int, int]] = []  # heap of (-waits, worker), some of them void

    def start(self, view: View) -> None:
        """Make one policy for each worker."""
        self.policies += [self.make() for _ in view.workers[1:]]
        self.waits = [0] * len(self.policies)
        self.dispatcher.start(view)
        self.given: list[dict[int, None]] = [{} for _ in view.workers]
        for policy, own in zip(self.policies, view.workers, strict=True):
            policy.start(own)
            if not own.available:
                self.dispatcher.lose(own.index)

    def on_arrival(self, view: View, request: int) -> int:
        """Let the dispatcher choose; a request waits while no available worker can hold it."""
        dispatcher = self.dispatcher
        if len(dispatcher.away) == len(self.given):
            self.homeless.append(request)
            return view.index
        chosen = dispatcher.choose(view, request)
        if chosen in dispatcher.away:  # it is not asked who is there
            there = self._next_there(view, request, chosen)
            if there is None:
                dispatcher.drop(view, request, chosen)
                self.homeless.append(request)
                return view.index
            dispatcher.moved(view, request, chosen, there)
            chosen = there
        self.given[chosen][request] = None
        self.policies[chosen].on_arrival(view.workers[chosen], request)
        if self.steal:
            self._note(chosen)
        return chosen

    def _next_there(self, view: View, request: int, chosen: int) -> int | None:
        """Return the first worker after another one that is available and can hold a request."""
        many, dispatcher = len(self.given), self.dispatcher
        able = dispatcher.able(view, request)
        turn = [(chosen + step) % many for step in range(1, many)]
        there = (index for index in turn if index not in dispatcher.away)
        return next((index for index in there if dispatcher.room[index] in able), None)

    def on_first_token(self, view: View, request: int) -> None:
        """Tell the worker's policy, and the dispatcher."""
        self.dispatcher.on_first_token(view, request)
        self.policies[view.index].on_first_token(view, request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Tell the worker's policy, and the dispatcher."""
        del self.given[view.index][request]
        self.dispatcher.on_finish(view, request)
        self.policies[view.index].on_finish(view, request, client)

    def on_abort(self, view: View, request: int) -> None:
        """Tell the policy of the worker that has the request, and the dispatcher."""
        (index,) = (place for place, own in enumerate(self.given) if request in own)
        del self.given[index][request]
        self.dispatcher.drop(view, request, index)
        self.policies[index].on_abort(view.workers[index], request)
        if self.steal:
            self._note(index)

    def on_preempt(self, view: View, request: int) -> None:
        """Tell the worker's policy; of a lost worker all requests are placed again soon."""
        if view.available:
            self.policies[view.index].on_preempt(view, request)
            if self.steal:
                self._note(view.index)

    def on_unavailable(self, view: View) -> None:
        """Place all requests of a lost worker on others; it begins with a fresh policy."""
        index, lost = view.index, self.given[view.index]
        for request in lost:
            self.dispatcher.drop(view, request, index)
        self.dispatcher.lose(index)
        self.before.update(self.policies[index].counted())
        policy = self.policies[index] = self.make()
        policy.start(view)
        self.given[index] = {}
        if self.steal:
            self._note(index)
        self._place_all(view, lost)

    def on_draining(self, view: View) -> None:
        """Give a worker nothing more; what it has been given it serves."""
        self.dispatcher.lose(view.index)

    def on_available(self, view: View) -> None:
        """Place what came, or was lost, while no worker was there."""
        self.dispatcher.bring(view.index)
        waiting, self.homeless = self.homeless, []
        self._place_all(view, waiting)

    def _place_all(self, view: View, requests: Iterable[int]) -> None:
        for request in requests:
            self.on_arrival(view, request)

    def decide(self, view: View) -> Step | Wait | None:
        """Ask the worker's policy; let it steal if it has nothing to do."""
        policy = self.policies[view.index]
        step = policy.decide(view)
        if self.steal:
            self._note(view.index)
            if step is None and not view.draining and self._steal(view):
                step = policy.decide(view)
                self._note(view.index)
        return step

    def idle_may_act(self) -> bool:
        """Return whether a worker may have something to steal: else it has its own requests. The
        only worker is the one that every arrival is for; it is not told so."""
        return len(self.policies) == 1 or (self.steal and self.queued > 0)

    def counted(self) -> dict[str, int]:
        """Return the sums of what the workers' policies counted."""
        total = Counter(self.before)
        for policy in self.policies:
            total.update(policy.counted())
        return dict(total)

    def hears_of_evictions(self) -> bool:
        """Return whether the workers' policies place again what was evicted."""
        return all(policy.hears_of_evictions() for policy in self.policies)

    def survives_losses(self) -> bool:
        """Return True: requests of a lost worker are new to the policies that get them."""
        return True

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

    def _note(self, index: int) -> None:
        """Take note of how many requests wait for a worker."""
        many: int = self.policies[index].waiting()  # type: ignore[attr-defined]
        before = self.waits[index]
        if many == before:
            return
        self.queued += many - before
        self.waits[index] = many
        if many:
            heappush(self.longest, (-many, index))
        if len(self.longest) > 4 * len(self.waits) + 64:
            self.longest = [(-many, index) for index, many in enumerate(self.waits) if many]
            heapify(self.longest)

    def _steal(self, view: View) -> bool:
        """Take a request from the other worker with the most that wait, of equal ones the first."""
        longest, waits, own = self.longest, self.waits, None
        while longest:
            many, source = longest[0]
            if waits[source] == -many and source != view.index:
                break
            heappop(longest)
            if waits[source] == -many:
                own = (many, source)
        moved = bool(longest) and self._move(view, longest[0][1])
        if own is not None:
            heappush(self.longest, own)
        return moved

    def _move(self, view: View, source: int) -> bool:
        """Move the request that another worker would serve last, if this one can hold it."""
        request: int = self.policies[source].surrender()  # type: ignore[attr-defined]
        holds = self.dispatcher.holds(view, request, view.index)
        if holds:
            self.dispatcher.moved(view, request, source, view.index)
            del self.given[source][request]
            self.given[view.index][request] = None
        target = view.index if holds else source
        self.policies[target].on_arrival(view.workers[target], request)
        if self.steal:
            self._note(source)
            self._note(target)
        return holds
