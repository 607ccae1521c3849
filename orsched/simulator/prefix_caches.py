"""The prefix caches of a run: one a worker, with the eviction rule that is in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.data.eviction import LRU
from orsched.simulator.block_cache import BlockCache
from orsched.simulator.free_blocks import LeastRecent, LeastWorth
from orsched.simulator.future_users import BlockWorth, FutureUsers
from orsched.simulator.prefix_chains import PrefixChains

if TYPE_CHECKING:
    from orsched.data.eviction import Eviction
    from orsched.data.instance import Instance
    from orsched.simulator.future_users import Arrivals
    from orsched.simulator.policy import Policy, WorkerState


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
