"""The loop where workers have roles: caches go over links, and workers may share a device."""

from __future__ import annotations

from heapq import heappop, heappush
from operator import index as whole
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.errors import PolicyError
from orsched.common.units import NEVER
from orsched.data.links import COLUMNS, Transfers
from orsched.data.memory import refused_pair
from orsched.simulator.loop import Loop
from orsched.simulator.run_state import evicts_by_age
from orsched.simulator.running_set import RunningSet
from orsched.simulator.worker import WorkerRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.data.instance import Instance
    from orsched.data.links import Link
    from orsched.data.step import Step
    from orsched.simulator.policy import Policy


class Handed(NamedTuple):
    """A request that has been prefilled on one worker and is to decode on another."""

    source: int
    target: int
    tokens: int  # in its cache


class Handovers:
    """The requests that change workers, and the link of each worker that sends."""

    wake: Callable[[int], None]  # lets a worker be asked at the next border
    wake_all: Callable[[], None]  # the same for all workers
    release: Callable[[Handed, int], None]  # frees what a sent request holds on its sender

    def __init__(self, link: Link, workers: int) -> None:
        self.link = link
        self.free_ns = [0] * workers
        self.handed: dict[int, Handed] = {}  # those that no worker has taken yet
        self.under_way: dict[int, Handed] = {}  # whose transfers are asked for and not over
        self.rows: list[tuple[int, int, int, int, int, int, int]] = []
        self.ends: list[tuple[int, int]] = []  # (end, request) of transfers not told of yet

    def hand(self, request: int, handed: Handed) -> None:
        """Let a request wait for another worker to take its cache."""
        self.handed[request] = handed
        self.wake(handed.target)

    def send(self, request: int, stay: int, now_ns: int) -> bool:
        """Let a cache go over its link, after those that were asked for before; say if it has
        arrived, as it has at once where the link takes no time and is free."""
        sent = self.under_way[request] = self.handed.pop(request)
        start = max(now_ns, self.free_ns[sent.source])
        end = self.free_ns[sent.source] = start + self.link.transfer_ns(sent.tokens)
        self.rows.append((request, stay, sent.source, sent.target, start, end, sent.tokens))
        if end == now_ns:
            self.release(self.under_way.pop(request), request)
            return True
        self.ends.append((end, request))
        return False

    def transfers(self) -> Transfers | None:
        """Return all transfers, in order of start, then source, then request."""
        if not self.rows:
            return None
        columns = np.array(self.rows, np.int64).T
        order = np.lexsort((columns[0], columns[2], columns[4]))
        return Transfers(
            **{item.name: column for item, column in zip(COLUMNS, columns[:, order], strict=True)}
        )


_TRANSFER = -1  # stands for a worker in events that are ends of transfers: these come first


class PoolRunningSet(RunningSet):
    """The requests on a worker that may hand them over when they are prefilled, or take others'.
    One that is handed over is no longer in ``state.running``, nor yet there while it is received:
    policies of one worker count those only that they serve."""

    handovers: Handovers

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.came: dict[int, int] = {}  # whose cache came, and its tokens by then

    def activate(self, completed: Sequence[int]) -> list[int]:
        """Let requests decode here or elsewhere; return those that are done by their prefill."""
        done = super().activate(completed)
        hook = self.run_state.on_prefilled
        for request in completed:
            if request in done:
                continue
            target = None if hook is None else hook(self.view, request)
            if target is not None:
                self._hand(request, self._able(target))
            elif not self.state.worker.decodes:
                raise PolicyError(
                    f"request {request} is prefilled on {self.state.worker.name}, which does not "
                    "decode: on_prefilled has to name a worker"
                )
        return done

    def _able(self, target: int) -> int:
        """Return the index of a worker that can take a request over."""
        views = self.view.workers
        if not isinstance(target, int) or not 0 <= target < len(views):
            raise PolicyError(f"on_prefilled named the worker {target!r}, of {len(views)}")
        if target == self.state.index or not views[target].worker.decodes:
            raise PolicyError(f"on_prefilled named {views[target].worker.name}: it cannot take it")
        return target

    def _hand(self, request: int, target: int) -> None:
        """Keep a request's cache, which does not grow, until another worker has it."""
        state = self.state
        self._stop_decoding(request)
        tokens = self.view.cached(request)
        self.caches.put(tokens)
        state.sending[request] = state.running.pop(request)
        self.handovers.hand(request, Handed(state.index, target, tokens))

    def receive(self, requests: Sequence[int]) -> None:
        """Take requests over: client and blocks now (for the cache and a further token), their
        caches when the link has brought them."""
        state, run_state, handovers = self.state, self.run_state, self.handovers
        for request in map(whole, requests):
            handed = handovers.handed.get(request)
            if handed is None or handed.target != state.index:
                raise PolicyError(f"request {request} is not handed to this worker")
            client = self._lowest_free(1)[0]
            state.client_request[client] = request
            state.free_clients -= 1
            state.receiving[request] = client
            if self.blocks is not None:
                state.blocks_set_aside += self.blocks[request]
            self.caches.put(handed.tokens + 1)
            stay = run_state.stays[request] = run_state.stays.get(request, 0) + 1
            if handovers.send(request, stay, state.now_ns):
                self.join(request, handed.tokens)
        self.caches.require_room(0)

    def release(self, request: int, tokens: int) -> None:
        """Free client and blocks of a request whose cache another worker has."""
        state = self.state
        state.running[request] = state.sending.pop(request)
        self.caches.drop(tokens)
        if self.prefix_stays is not None:
            self.prefix_stays.pages.release(request, tokens, tokens)
        self.leave(request, self.run_state.status[request])

    def join(self, request: int, tokens: int) -> None:
        """Let a request decode whose cache has come; the worker is between two steps."""
        state = self.state
        self.came[request] = self.run_state.yielded.get(request, 0)
        state.running[request] = state.receiving.pop(request)
        self.caches.drop(tokens + 1)
        self.caches.put(tokens)
        self._decode_on(request, tokens)

    def evict(self, requests: Sequence[int]) -> None:
        """Let requests lose their caches, but those that have come and never decoded here."""
        for request in requests:
            if self.came.get(request) == self.view.generated(request):
                raise PolicyError(
                    f"the cache of request {request} has come now; it decodes before an eviction"
                )
        super().evict(requests)
        self.handovers.wake_all()

    def leave(self, request: int, status: int) -> int:
        """Free a request's client and the blocks that are set aside; return the client."""
        self.came.pop(request, None)
        return super().leave(request, status)


class PoolWorker(WorkerRun):
    """The executor's side of a worker with a role."""

    running_set_type = PoolRunningSet
    running_set: PoolRunningSet

    def take(self, step: Step) -> bool:
        """Begin a step; say if it takes time: evictions and receptions alone take none."""
        if step.prefill and not self.worker.prefills:
            raise PolicyError(f"{self.worker.name} does not prefill")
        if step.receive:
            self.running_set.receive(step.receive)
            idle = step.decode is not None and not len(step.decode)
            if idle and not step.prefill and not step.preempt:
                return False
        return super().take(step)

    def require_empty(self) -> None:
        """Raise unless nothing is left over in the end."""
        if self.state.sending or self.state.receiving:
            raise PolicyError("caches are left on their way: a bug in orsched")
        super().require_empty()


class PoolLoop(Loop):
    """The loop over the workers' events and the ends of transfers, which come before what happens
    to workers at that time. Workers that share a device are asked in their order whenever it is
    free, and sleep while another of them works."""

    worker_type = PoolWorker
    workers: list[PoolWorker]  # type: ignore[assignment]

    def _refuse(self, instance: Instance, policy: Policy) -> None:
        free = instance.link is not None and not instance.link.transfer_ns(1)
        if instance.caches_prefixes and (free or not evicts_by_age(instance, policy)):
            raise refused_pair("link", "prefix cache")
        roles = [worker.role for worker in instance.workers if worker.role != "both"]
        if roles and not policy.roles:
            raise PolicyError(
                f"policy {policy.name} knows no workers that {roles[0]} alone: take disaggregated"
            )

    def _prepare(self) -> None:
        assert self.instance.link is not None
        many = len(self.workers)
        self.handovers = made = Handovers(self.instance.link, many)
        made.wake, made.wake_all, made.release = self._wake, self._wake_all, self._release
        for worker in self.workers:
            worker.running_set.handovers = self.handovers
        self.arrived: list[list[tuple[int, int]]] = [[] for _ in range(many)]
        self.mates = _mates(self.instance)

    def _serve_alone(self) -> None:
        self._serve_several()

    def transfers(self) -> Transfers | None:
        """Return the caches that went over links."""
        return self.handovers.transfers()

    # -- ends of transfers ----------------------------------------------------------------

    def _next_event(self) -> None:
        """Handle the end of a transfer if it is next; else what the base handles."""
        events, run_state = self.events, self.run_state
        arrival = run_state.next_arrival_ns if self.asleep or run_state.assigns else NEVER
        if not events or events[0][1] != _TRANSFER or arrival < events[0][0]:
            super()._next_event()
            self._expect_transfers()
            return
        now, _, request = heappop(events)
        run_state.now_ns = now
        sent = self.handovers.under_way.pop(request)
        self._release(sent, request)
        self.arrived[sent.target].append((request, sent.tokens))
        self._wake(sent.target)
        if run_state.next_arrival_ns <= now:
            self._arrive()
        elif self.to_ask:
            self._ask_all()
        self._expect_transfers()

    def _release(self, sent: Handed, request: int) -> None:
        """Free what a request whose cache has gone holds on the worker that sent it."""
        self.workers[sent.source].running_set.release(request, sent.tokens)
        self._wake(sent.source)

    def _expect_transfers(self) -> None:
        """Let the ends of the transfers that were asked for be events."""
        ends = self.handovers.ends
        for end, request in ends:
            heappush(self.events, (end, _TRANSFER, request))
        ends.clear()

    # -- who is asked ---------------------------------------------------------------------

    def _wake(self, index: int) -> None:
        """Ask a worker, and those on its device, at the next border from now on."""
        for each in self.mates[index]:
            worker = self.workers[each]
            if each in self.asleep:
                self.to_ask.add(each)
            elif worker.interrupt(self.run_state.now_ns):
                self._expect(each, worker.until_ns)

    def _wake_all(self) -> None:
        for index in self.indices:
            self._wake(index)

    def _concerned(self) -> frozenset[int]:
        """Return the workers that the last arrivals are for, and those on their devices."""
        said = super()._concerned()
        return frozenset(mate for index in said for mate in self.mates[index])

    def _ask(self, index: int) -> None:
        """Ask for the worker, or for those on its device until one of them is at work."""
        mates = self.mates[index]
        for each in mates:
            if any(self.workers[mate].busy for mate in mates):
                self.to_ask.discard(each)
                if not self.workers[each].busy:
                    self.asleep.add(each)
                    self.numbers[each] += 1
                continue
            arrived = self.arrived[each]
            self.workers[each].state.now_ns = self.run_state.now_ns
            for request, tokens in arrived:
                self.workers[each].running_set.join(request, tokens)
            arrived.clear()
            super()._ask(each)


def _mates(instance: Instance) -> list[tuple[int, ...]]:
    """Return for each worker those on its device, itself among them."""
    devices: dict[str, list[int]] = {}
    for index, worker in enumerate(instance.workers):
        if worker.device:
            devices.setdefault(worker.device, []).append(index)
    shared = {each: tuple(mates) for mates in devices.values() for each in mates}
    return [shared.get(index, (index,)) for index in range(len(instance.workers))]
