"""How many requests a cloud serves at once: places, prefill cap and memory (section 3.5.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.heuristics.batch_builder import BatchBuilder

if TYPE_CHECKING:
    from orsched.heuristics.mico.lengths import Lengths
    from orsched.simulator.policy import View


class MicoBatch(BatchBuilder):
    """Greedy batch size: requests are admitted while what they will hold at most fits.

    Under paged memory a request counts with its prompt and the longest answer of its bucket (on a
    padding worker all count with the longest of these); under ``whole`` memory with what is set
    aside. A request alone on the worker is admitted in any case. Answers longer than predicted can
    still overflow: ``overflow`` names the requests that leave then.

    Attributes:
        expected: request -> tokens that its cache is expected to hold at most.
        taken: tokens to prefill of the requests of this batch.
        evicted: requests whose prefill is more than their prompt.
    """

    def __init__(self, view: View, lengths: Lengths) -> None:
        super().__init__(view)
        self.lengths = lengths
        self.expected: dict[int, int] = {}
        self.expected_blocks = 0
        self.taken: list[int] = []
        self.evicted: set[int] = set()

    def see_pages(self) -> None:
        """Begin a batch, which is open, beside the caches that are there now."""
        self.blocks = self.view.blocks_unused or 0
        if self.padding:
            self.longest_expected = max(self.expected.values(), default=0)
            held = (self.most_blocks - self.blocks) // self.present if self.present else 0
            self.longest_held = held * self.block_tokens  # rounded up to blocks

    def to_prefill(self, request: int) -> int:
        """Return the tokens to prefill of a request that waits."""
        view = self.view
        return view.to_prefill(request) if request in self.evicted else view.prompt_tokens[request]

    def reserve(self, request: int, tokens: int) -> bool:
        """Take the memory of a request if there is enough of it; return whether there is."""
        alone = not (self.present or self.count)
        if not self.paged:
            blocks = self.view.blocks_of(request)
            if blocks > self.blocks:
                return alone
            self.blocks -= blocks
            return True
        size = self.block_tokens
        end = max(self.view.prompt_tokens[request] + self.lengths.end(request), tokens + 1)
        blocks = -(-end // size)
        fits = self._padded_fits if self.padding else self._fits
        if not alone and not fits(end, blocks, tokens):
            return False
        self.expected[request] = end
        self.expected_blocks += blocks
        if self.padding:
            self.longest_expected = max(self.longest_expected, end)
            self.longest_held = max(self.longest_held, tokens)
        else:
            self.blocks -= -(-(tokens + 1) // size)
        return True

    def _fits(self, end: int, blocks: int, tokens: int) -> bool:
        """Whether memory holds the request to its end, and now beside a round of the others."""
        now = self.blocks - -(-(tokens + 1) // self.block_tokens)
        return self.expected_blocks + blocks <= self.most_blocks and now >= self.present

    def _padded_fits(self, end: int, blocks: int, tokens: int) -> bool:
        count = self.present + self.count + 1
        last = -(-max(self.longest_expected, end) // self.block_tokens)
        now = -(-(max(self.longest_held, tokens) + 1) // self.block_tokens)
        return count * max(last, now) <= self.most_blocks

    def release(self, request: int) -> None:
        """Forget a request that leaves the cloud."""
        end = self.expected.pop(request, 0)
        self.expected_blocks -= -(-end // self.block_tokens)

    def overflow(self, view: View) -> list[int]:
        """Return the requests to evict before another round fits: the last admitted first."""
        if not self.paged or (view.blocks_unused or 0) >= len(view.running):
            return []  # each cache takes one more block at most
        running = list(view.running)
        caches = [view.cached(request) + view.decodes(request) for request in running]
        victims = []
        while len(running) > 1 and self._needed(caches) > self.most_blocks:
            victims.append(running.pop())
            caches.pop()
        return victims

    def _needed(self, caches: list[int]) -> int:
        if self.padding:
            return len(caches) * -(-max(caches) // self.block_tokens)
        return sum(-(-tokens // self.block_tokens) for tokens in caches)

    def holds_chunk(self, view: View, request: int, chunk: int, mixed: bool) -> bool:
        """Whether the next tokens of a prefill fit, beside a round of the others if it is mixed."""
        if not self.paged or len(view.running) == 1:
            return True
        others = [other for other in view.running if other != request]
        caches = [view.cached(other) + (mixed and view.decodes(other)) for other in others]
        return self._needed([*caches, view.cached(request) + chunk]) <= self.most_blocks
