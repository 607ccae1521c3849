"""Insertion into a running batch: how, and whether it is worth it (section 3.5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.costs import mixed_ns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orsched.simulator.policy import View


class Insertion:
    """What it costs to process prompts while others run on a worker.

    Attributes:
        how: mixed, decoupled or cheaper.
    """

    def __init__(self, view: View, how: str) -> None:
        self.how = how
        self.cost = view.worker.cost
        self.padding = view.worker.padding

    def is_mixed(self, view: View, prompts: Sequence[int]) -> bool:
        """Whether the prompts are processed beside a round of the running requests."""
        if self.how != "cheaper":
            return self.how == "mixed"
        return self._beside_ns(view, prompts) <= self.cost.prefill_ns(self._padded(prompts))

    def extra_ns(self, view: View, prompts: Sequence[int]) -> int:
        """Return by how much the running requests are held up."""
        if self.is_mixed(view, prompts):
            return self._beside_ns(view, prompts)
        return self.cost.prefill_ns(self._padded(prompts))

    def pays(self, view: View, prompts: Sequence[int], middles: Mapping[int, int]) -> bool:
        """Whether to insert now rather than after the next finish, which then shares the work.

        Now: all that run are held up by the insertion. Later: the places rest until a request is
        done, which takes as many rounds as the nearest predicted end is away. The smaller loss of
        time, summed over clients, is taken.

        Args:
            view: the worker.
            prompts: tokens to prefill of the requests to insert.
            middles: request -> predicted output tokens, of those that run.
        """
        running = len(view.running)
        nearest = min(
            max(1, middles[request] - view.generated(request)) for request in view.running
        )
        resting = len(prompts) * nearest * self.cost.round_ns(running, *self._contexts(view))
        return resting >= running * self.extra_ns(view, prompts)

    def _beside_ns(self, view: View, prompts: Sequence[int]) -> int:
        """Return by how much a round takes longer with the prompts beside it."""
        active, contexts = len(view.running), self._contexts(view)
        mixed = mixed_ns(self.cost, self._padded(prompts), active, *contexts)
        return mixed - self.cost.round_ns(active, *contexts)

    def _contexts(self, view: View) -> tuple[int, int]:
        if not self.cost.context_matters:
            return 0, 0
        contexts = [view.cached(request) + 1 for request in view.running]
        longest = max(contexts)
        return (len(contexts) * longest if self.padding else sum(contexts)), longest

    def _padded(self, prompts: Sequence[int]) -> list[int]:
        return [max(prompts)] * len(prompts) if self.padding else list(prompts)
