"""The chance constraint on memory: in how many scenarios caches outgrow it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.columns import IntColumn
    from orsched.policy import View


class ChanceMemory:
    """Says whether caches stay within paged memory in all but a share of the scenarios.

    A request that has outlived a scenario has, in it, one of the longer lengths of the others in
    turn; beyond all of them, as many tokens again as it has yielded.

    Args:
        view: the worker.
        scenarios: lengths, of shape (scenarios, requests).
        risk: the share.
    """

    def __init__(self, view: View, scenarios: IntColumn, risk: float) -> None:
        memory = view.worker.memory
        assert memory is not None
        self.view, self.scenarios = view, scenarios
        self.blocks, self.size = memory.blocks, memory.block_tokens
        self.allowed = risk * len(scenarios)
        self.limit = view.output_limit_tokens

    def holds(self, requests: Iterable[int]) -> bool:
        """Whether requests may be on the worker together."""
        chosen = list(requests)
        if not chosen:
            return True
        view = self.view
        cached = np.array([view.prompt_tokens[each] + view.generated(each) for each in chosen])
        left = np.stack([self._left(each) for each in chosen], axis=1)
        broken = 0
        for rounds in left:  # the most blocks are held at the end of one of them
            at = rounds[:, None]
            held = -(-(cached[None, :] + at) // self.size) * (rounds[None, :] >= at)
            broken += bool(held.sum(axis=1).max() > self.blocks)
        return broken <= self.allowed

    def _left(self, request: int) -> IntColumn:
        """Return the tokens that a request has still to yield, by scenario."""
        lengths, done = self.scenarios[:, request], self.view.generated(request)
        if done:
            longer = np.sort(lengths[lengths > done])
            if not len(longer):
                longer = np.array([min(2 * done, self.limit)])
            lengths = np.where(lengths > done, lengths, np.resize(longer, len(lengths)))
        found: IntColumn = np.maximum(1, lengths - done)
        return found
