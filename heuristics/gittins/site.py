"""One worker as the policy keeps it: who is being prefilled, blocks, pace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.heuristics.gittins.prices import Pace, Prices

if TYPE_CHECKING:
    from orsched.policy import View

UNLIMITED = 2**62


class Site:
    """What the policy knows of one worker beside its view.

    Caches that decode need a new block in the round before which they fill their blocks, so they
    are counted by the residue of their size less the rounds, modulo the block size.

    Attributes:
        clients: how many clients the worker has.
        others: the other workers' sites, in any order.
        weight: time a round at present, over that of rounds alone.
        partial: request -> tokens left to prefill, of those that are on the worker.
        origin: request -> round from which its tokens count, of those that decode.
        until_ns: when the worker decides next at the latest, as far as that is known, else 0.
        evicted: rounds at the last eviction; -1 before the first.
        prefills: whether the step that it takes has prompt tokens: an arrival does not end it.
        seen: how many requests had come when it decided last.
        slept: how many requests had come when the worker had nothing to do; -1: it has something.
        room: memory blocks in all; UNLIMITED without a memory model.
        spare: blocks that were free after the worker's last decision.
        size: tokens of a block under paged memory, else 0.
    """

    def __init__(self, view: View, window_ns: float) -> None:
        self.view = view
        self.clients = view.worker.clients
        self.others: list[Site] = []
        memory = view.worker.memory
        self.prices = prices = Prices(view)
        self.pace = Pace(prices.round_ns + prices.client_ns, window_ns)
        self.weight = self.pace.ns / prices.round_ns
        self.partial: dict[int, int] = {}
        self.origin: dict[int, int] = {}
        self.until_ns = 0
        self.slept = self.seen = self.evicted = -1
        self.prefills = False
        self.room = UNLIMITED if memory is None else memory.blocks
        self.spare = self.room
        self.size = memory.block_tokens if memory is not None and memory.is_paged else 0
        self.counts = [0] * self.size
        self.prefill_limit = view.worker.prefill_limit or UNLIMITED

    def look(self) -> None:
        """Take note of the worker's pace up to now."""
        pace, view = self.pace, self.view
        pace.update(view.now_ns, view.rounds, len(view.running) > 0)
        self.weight = pace.ns / self.prices.round_ns

    def blocks(self, request: int, tokens: int) -> int:
        """Return the blocks that the prefill of a request of so many tokens takes."""
        if self.size:
            return -(-tokens // self.size)
        return self.view.blocks_of(request)

    def holds(self, request: int) -> bool:
        """Whether the worker can hold a request with what it has yielded and one token more."""
        tokens = self.view.prompt_tokens[request] + self.view.generated(request) + 1
        return self.blocks(request, tokens) <= self.room

    def unused(self) -> int:
        """Return the blocks that nobody holds, UNLIMITED without a memory model."""
        blocks = self.view.blocks_unused
        return UNLIMITED if blocks is None else blocks

    def promised(self) -> int:
        """Return the blocks that the rest of the begun prefills will take."""
        size = self.size
        if not size or not self.partial:
            return 0
        return sum(-(-left // size) for left in self.partial.values())

    def has_room(self, request: int, left: int) -> bool:
        """Whether there are the blocks for a prefill, as of the worker's last decision."""
        size = self.size
        blocks = -(-left // size) if size else self.view.blocks_of(request)
        return blocks + self.promised() <= self.spare

    def growth(self, tokens: float) -> int:
        """Return the blocks that the running caches take if each grows by so many tokens."""
        if not self.size:
            return 0
        return int(tokens * len(self.view.running) / self.size)

    def needed(self) -> int:
        """Return the new blocks that a round of all that decode takes."""
        return self.counts[-self.view.rounds % self.size] if self.size else 0

    def decodes_from(self, request: int, rounds: int) -> None:
        """Let a request decode whose prefill ends with the worker's round of this number."""
        view = self.view
        tokens = view.generated(request)
        self.origin[request] = rounds - tokens - (view.first_token == "prefill")
        if self.size:
            self.counts[(view.prompt_tokens[request] + tokens - rounds) % self.size] += 1

    def leave(self, request: int) -> int | None:
        """Forget a request; return the tokens that it has yielded if it decoded."""
        self.partial.pop(request, None)
        origin = self.origin.pop(request, None)
        if origin is None:
            return None
        if self.size:
            first = self.view.first_token == "prefill"
            self.counts[(self.view.prompt_tokens[request] - origin - first) % self.size] -= 1
        return self.view.rounds - origin
