"""State that all workers share in a run: true lengths, and the place of each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import read_only
from orsched.common.units import NEVER
from orsched.data.eviction import LRU
from orsched.simulator.block_cache import BlockCache
from orsched.simulator.free_blocks import LeastRecent, LeastWorth
from orsched.simulator.future_users import BlockWorth, FutureUsers
from orsched.simulator.policy import overridden
from orsched.simulator.prefix_chains import PrefixChains

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.data.eviction import Eviction
    from orsched.data.instance import Instance
    from orsched.simulator.future_users import Arrivals
    from orsched.simulator.policy import Policy, View, WorkerState


class PrefixCaches:
    """Makes the workers' caches.

    Attributes:
        eviction: the rule that a policy put in place of the workers' own, or None.
    """

    def __init__(self, instance: Instance, policy: Policy, run_state: Arrivals) -> None:
        self.instance = instance
        self.eviction: Eviction | None = policy.eviction
        self.chains: dict[int, PrefixChains] = {}
        self.users: dict[tuple[int, Eviction], FutureUsers] = {}
        self.run_state = run_state

    def of(self, state: WorkerState) -> BlockCache | None:
        """Return the cache of a worker, or None where it has none."""
        memory = state.worker.memory
        if memory is None or memory.prefix_cache is None:
            return None
        size = memory.block_tokens
        if size not in self.chains:
            self.chains[size] = PrefixChains(self.instance, size)
        rule = memory.prefix_cache.rule if self.eviction is None else self.eviction
        if rule == LRU:
            return BlockCache(memory.blocks, size, self.chains[size], LeastRecent(memory.blocks))
        return self._counting(state.index, memory.blocks, size, rule)

    def _counting(self, worker: int, blocks: int, size: int, rule: Eviction) -> BlockCache:
        """Return a cache whose free blocks are taken by what they are worth."""
        chains, users = self.chains[size], self.users.get((size, rule))
        if users is None:
            users = FutureUsers(self.instance, self.run_state, chains, rule)
            self.users[size, rule] = users
        worth = BlockWorth(self.instance, users, worker, rule)
        cache = worth.cache = BlockCache(blocks, size, chains, LeastWorth(blocks, worth))
        cache.users, cache.worker = users, worker
        users.watch(worker, cache)
        return cache


WAITING, SERVED, DONE = 0, 1, 2
_CHECK_DEADLINE_EVERY = 4095


class RunState:
    """Requests, arrivals and hooks of one run.

    Attributes:
        prompts, outputs: true lengths by request.
        status: WAITING, SERVED or DONE by request.
        stays: number of the present (or next) stay, of requests that were evicted.
        yielded: tokens of the requests that have yielded some and do not decode now.
        left: unfinished requests.
        assigns: whether arrivals end rounds only where the policy says so.
        concerned: what it said of the arrivals that were told last, if so.
        next_arrival_ns: time of the next arrival that has not been told, NEVER without one.
        now_ns: the time of the event that is being handled.
        prefix_caches: makes those of the workers that have one, else None.
    """

    def __init__(self, instance: Instance, policy: Policy) -> None:
        requests, n = instance.requests, len(instance)
        self.prompts = read_only(requests.prompt_tokens)
        self.outputs = read_only(requests.output_tokens)
        self.arrivals = read_only(requests.arrival_ns)
        self.first_from_prefill = instance.first_token == "prefill"
        self.status = bytearray(n)
        self.stays: dict[int, int] = {}
        self.yielded: dict[int, int] = {}
        self.left = n
        self.assigns = policy.assigns and len(instance.workers) > 1
        self.concerned: list[int | None] = []
        self.now_ns = 0
        self.hidden: list[tuple[memoryview, memoryview]] = []
        order = np.argsort(requests.arrival_ns, kind="stable")
        self.arrival_order = read_only(order)
        self.arrival_times = read_only(requests.arrival_ns[order])
        self.next_arrival = 0
        self.next_arrival_ns = self.arrival_times[0] if n else NEVER
        self.deadline: Callable[[], None] | None = None
        self.prefix_caches = (
            PrefixCaches(instance, policy, self) if instance.caches_prefixes else None
        )
        hooks = overridden(policy)
        self.on_arrival = policy.on_arrival if "on_arrival" in hooks else None
        self.on_first_token = policy.on_first_token if "on_first_token" in hooks else None
        self.on_finish = policy.on_finish if "on_finish" in hooks else None
        self.on_preempt = policy.on_preempt if "on_preempt" in hooks else None
        self.on_prefilled = policy.on_prefilled if "on_prefilled" in hooks else None

    def eviction(self) -> dict[str, Any] | None:
        """Return the eviction rule that a policy put in place of the workers' own, or None."""
        made = self.prefix_caches
        return None if made is None or made.eviction is None else made.eviction.to_dict()

    def deliver_arrivals(self, view: View) -> bool:
        """Tell the policy of the arrivals up to now; say if there were any."""
        now, times, order = self.now_ns, self.arrival_times, self.arrival_order
        hook, hidden = self.on_arrival, self.hidden
        i, n = self.next_arrival, len(times)
        first = i
        while i < n and times[i] <= now:
            request = order[i]
            i += 1
            self.next_arrival = i
            if not i & _CHECK_DEADLINE_EVERY and self.deadline is not None:
                self.deadline()
            for live, truth in hidden:
                live[request] = truth[request]
            if hook is not None:
                worker = hook(view, request)
                if self.assigns:
                    self.concerned.append(worker)
        self.next_arrival_ns = times[i] if i < n else NEVER
        return i > first
