"""The prefix caches of a run: one a worker, with the eviction rule that is in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.simulator.block_cache import BlockCache
from orsched.simulator.free_blocks import LeastRecent
from orsched.simulator.prefix_chains import PrefixChains

if TYPE_CHECKING:
    from orsched.eviction import Eviction
    from orsched.instance import Instance
    from orsched.policy import Policy, WorkerState


class PrefixCaches:
    """Makes the workers' caches.

    Attributes:
        eviction: the rule that a policy put in place of the workers' own, or None.
    """

    def __init__(self, instance: Instance, policy: Policy) -> None:
        self.instance = instance
        self.eviction: Eviction | None = policy.eviction
        self.chains: dict[int, PrefixChains] = {}

    def of(self, state: WorkerState) -> BlockCache | None:
        """Return the cache of a worker, or None where it has none."""
        memory = state.worker.memory
        if memory is None or memory.prefix_cache is None:
            return None
        size = memory.block_tokens
        if size not in self.chains:
            self.chains[size] = PrefixChains(self.instance, size)
        order = LeastRecent(memory.blocks)
        return BlockCache(memory.blocks, size, self.chains[size], order)
