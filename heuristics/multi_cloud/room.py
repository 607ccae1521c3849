"""How many requests a cloud serves at once: places, prefill cap and memory (section 3.5.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orsched.heuristics.multi_cloud.lengths import Lengths
    from orsched.policy import View


class Room:
    """Greedy batch size: requests are admitted while what they will hold at most fits.

    Under paged memory a request counts with its prompt and the longest answer of its bucket (on a
    padding worker all count with the longest of these); under ``whole`` memory with what is set
    aside. Who is alone is admitted in any case. Answers longer than predicted can still overflow:
    ``overflow`` names who leaves then.

    Attributes:
        places: most requests at once.
        limit: most tokens of a prefill, or None.
        expected: request -> tokens that its cache is expected to hold at most.
        taken: tokens to prefill of those who were admitted since ``begin``.
        evicted: requests whose prefill is more than their prompt.
    """

    def __init__(self, view: View, places: int, lengths: Lengths) -> None:
        worker, memory = view.worker, view.worker.memory
        self.places = places
        self.lengths = lengths
        self.padding = worker.padding
        self.limit = worker.prefill_limit
        self.blocks = 0 if memory is None else memory.blocks
        self.size = 1 if memory is None else memory.block_tokens
        self.paged = memory is not None and memory.is_paged
        self.expected: dict[int, int] = {}
        self.expected_blocks = 0
        self.taken: list[int] = []
        self.evicted: set[int] = set()

    def begin(self, view: View) -> None:
        """Begin to admit requests beside those that run."""
        self.count = self.tokens = self.longest = 0
        self.taken = []
        self.present = len(view.running)
        if not self.blocks:
            return
        self.free = (view.blocks_unused if self.paged else view.blocks_free) or 0
        if self.paged and self.padding:
            self.longest_expected = max(self.expected.values(), default=0)
            held = (self.blocks - self.free) // self.present if self.present else 0
            self.longest_held = held * self.size  # the longest cache, rounded up to blocks

    def take(self, view: View, request: int) -> bool:
        """Let a request in if it fits; say if so."""
        tokens = self.to_prefill(view, request)
        count = self.count
        longest = tokens if tokens > self.longest else self.longest
        total = longest * (count + 1) if self.padding else self.tokens + tokens
        if count and self.limit is not None and total > self.limit:
            return False
        if self.blocks and not self._hold(view, request, tokens, not (self.present or count)):
            return False
        self.count, self.longest, self.tokens = count + 1, longest, total
        self.taken.append(tokens)
        return True

    def to_prefill(self, view: View, request: int) -> int:
        """Return the tokens to prefill of a request that waits."""
        return view.to_prefill(request) if request in self.evicted else view.prompt_tokens[request]

    def _hold(self, view: View, request: int, tokens: int, alone: bool) -> bool:
        """Reserve memory for a request if it fits; say if so."""
        if not self.paged:
            blocks = view.blocks_of(request)
            if blocks > self.free:
                return alone
            self.free -= blocks
            return True
        end = max(view.prompt_tokens[request] + self.lengths.end(request), tokens + 1)
        blocks = -(-end // self.size)
        fits = self._padded_fits if self.padding else self._fits
        if not alone and not fits(end, blocks, tokens):
            return False
        self.expected[request] = end
        self.expected_blocks += blocks
        if self.padding:
            self.longest_expected = max(self.longest_expected, end)
            self.longest_held = max(self.longest_held, tokens)
        else:
            self.free -= -(-(tokens + 1) // self.size)
        return True

    def _fits(self, end: int, blocks: int, tokens: int) -> bool:
        """Whether memory holds the request to its end, and now beside a round of the others."""
        now = self.free - -(-(tokens + 1) // self.size)
        return self.expected_blocks + blocks <= self.blocks and now >= self.present

    def _padded_fits(self, end: int, blocks: int, tokens: int) -> bool:
        count = self.present + self.count + 1
        last = -(-max(self.longest_expected, end) // self.size)
        now = -(-(max(self.longest_held, tokens) + 1) // self.size)
        return count * max(last, now) <= self.blocks

    def release(self, request: int) -> None:
        """Forget a request that leaves the cloud."""
        end = self.expected.pop(request, 0)
        self.expected_blocks -= -(-end // self.size)

    def overflow(self, view: View) -> list[int]:
        """Return those who must leave before another round fits: the last admitted first."""
        if not self.paged or (view.blocks_unused or 0) >= len(view.running):
            return []  # each cache takes one more block at most
        running = list(view.running)
        caches = [view.cached(request) + view.decodes(request) for request in running]
        victims = []
        while len(running) > 1 and self._needed(caches) > self.blocks:
            victims.append(running.pop())
            caches.pop()
        return victims

    def _needed(self, caches: list[int]) -> int:
        if self.padding:
            return len(caches) * -(-max(caches) // self.size)
        return sum(-(-tokens // self.size) for tokens in caches)

    def holds_chunk(self, view: View, request: int, chunk: int, mixed: bool) -> bool:
        """Whether the next tokens of a prefill fit, beside a round of the others if it is mixed."""
        if not self.paged or len(view.running) == 1:
            return True
        others = [other for other in view.running if other != request]
        caches = [view.cached(other) + (mixed and view.decodes(other)) for other in others]
        return self._needed([*caches, view.cached(request) + chunk]) <= self.blocks
