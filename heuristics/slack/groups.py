"""Which group of bulk requests with a common prefix is next: the one of the best rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.heuristics.colocation.pools import PrefixGroups

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.workers import Worker
    from orsched.heuristics.colocation.room import Room
    from orsched.simulator.policy import View


class GroupRates:
    """Tokens per second of computation that the waiting groups yield, and the group at work.

    A group with n requests of prompts p, of which s tokens are shared and c of these are cached,
    yields sum(p + d) tokens for the time of s - c + sum(p - s) prompt tokens and n d decoded ones,
    where d is the mean answer. Doing groups one after the other by this rate, highest first, is
    the order by Smith's rule: at any moment most tokens are done. A group is left when none of it
    waits.
    """

    def __init__(self, instance: Instance, worker: Worker) -> None:
        self.pool = PrefixGroups(instance)
        self.prompts: list[int] = instance.requests.prompt_tokens.tolist()
        prefixes = instance.requests.prefixes
        self.size = 0 if prefixes is None else prefixes.block_tokens
        cost = worker.cost
        some = min(worker.prefill_limit or 1024, 1024)
        self.token_ns = max(
            1.0, (cost.prefill_ns([some]) - cost.prefill_ns([1])) / max(1, some - 1)
        )
        self.cost = cost
        self.chain: bytes | None = None

    def decode_ns(self, context: int) -> float:
        """Return the time of a decoded token of this context beside others."""
        cost = self.cost
        return max(0, cost.round_ns(2, 2 * context, context) - cost.round_ns(1, context, context))

    def next(self, view: View, room: Room, answer: float, most: int) -> int:
        """Return the next request: of the group at work, else of the best one."""
        groups = self.pool.groups
        if self.chain is None or self.chain not in groups:
            self.chain = self._best(view, room, answer, most)
        return groups[self.chain][0]

    def _best(self, view: View, room: Room, answer: float, most: int) -> bytes:
        groups = self.pool.groups
        chains = self.pool.chains
        if len(chains) > most:
            chains = sorted(chains, key=lambda chain: (-len(groups[chain]) * len(chain), chain))
        return max(chains[:most], key=lambda chain: self.rate(view, room, chain, answer))

    def rate(self, view: View, room: Room, chain: bytes, answer: float) -> float:
        """Return the tokens per nanosecond of a group."""
        group = self.pool.groups[chain]
        count, first = len(group), group[0]
        prompts = sum(map(self.prompts.__getitem__, group))
        shared = len(chain) // 8 * self.size
        hit = min(shared, room.peek(first)[0])
        computed = max(1, prompts - (count - 1) * shared - hit)
        decode = count * answer * self.decode_ns(prompts // count)
        return (prompts + count * answer) / (computed * self.token_ns + decode)
