"""A step while it is being planned: who is in it, and what it is taken to last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from orsched.costs import mixed_ns
from orsched.data.step import Step, decode_rounds, evict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.costs import CostModel
    from orsched.simulator.policy import View


class StepTime(Protocol):
    """Gives the time of a step."""

    def step_ns(
        self,
        chunks: Sequence[int],
        active: int,
        context_sum: int,
        context_max: int,
        cached: Sequence[int] = (),
    ) -> int:
        """Return the time of a step over prompt chunks beside a round, in nanoseconds.

        ``cached`` are the tokens in the cache before each chunk; empty: all 0.
        """


class MachineTime:
    """The cost model of the worker: exact in simulation."""

    def __init__(self, cost: CostModel) -> None:
        self.cost = cost

    def step_ns(
        self,
        chunks: Sequence[int],
        active: int,
        context_sum: int,
        context_max: int,
        cached: Sequence[int] = (),
    ) -> int:
        """Return the time of a step; 0 for one with nothing in it."""
        if not chunks and not active:
            return 0
        return mixed_ns(self.cost, chunks, active, context_sum, context_max, cached)


UNLIMITED = 2**62
_UNTIL_EVENT = decode_rounds()


class Draft:
    """Decoding requests and prompt chunks of the next step, with its time.

    Attributes:
        chunks: request -> prompt tokens, those that are new on the worker among them.
        before: request -> tokens that are cached before its chunk.
        decode: requests that decode -> context in the round.
        victims: requests that are preempted.
        tokens: what is left of the token budget.
        prompt_tokens: what is left of the worker's prefill cap.
        clients: clients that are free.
        due_ns: the earliest time at which a token of one of its requests is due.
    """

    __slots__ = (
        "before", "chunks", "clients", "context_max", "context_sum", "decode", "due_ns",
        "prompt_tokens", "time", "tokens", "victims", "view",
    )  # fmt: skip

    def __init__(
        self, view: View, time: StepTime, tokens: int, victims: Sequence[int] = ()
    ) -> None:
        self.view = view
        self.time = time
        self.chunks: dict[int, int] = {}
        self.before: dict[int, int] = {}
        self.decode: dict[int, int] = {}
        self.victims = list(victims)
        self.tokens = tokens
        self.prompt_tokens = view.worker.prefill_limit or UNLIMITED
        self.clients = view.free_clients + len(victims)
        self.context_sum = self.context_max = 0
        self.due_ns = UNLIMITED

    def ns(self) -> int:
        """Return the time of the step."""
        return self.time.step_ns(
            list(self.chunks.values()), len(self.decode), self.context_sum, self.context_max,
            list(self.before.values()),
        )  # fmt: skip

    def ns_with_chunk(self, tokens: int, cached: int) -> int:
        """Return the time of the step with one more chunk, behind cached tokens."""
        return self.time.step_ns(
            [*self.chunks.values(), tokens], len(self.decode), self.context_sum, self.context_max,
            [*self.before.values(), cached],
        )  # fmt: skip

    def ns_with_decode(self, context: int) -> int:
        """Return the time of the step with one more request that decodes."""
        return self.time.step_ns(
            list(self.chunks.values()), len(self.decode) + 1, self.context_sum + context,
            max(self.context_max, context), list(self.before.values()),
        )  # fmt: skip

    def add_decode(self, request: int, context: int) -> None:
        """Let a request decode."""
        self.decode[request] = context
        self.context_sum += context
        if context > self.context_max:
            self.context_max = context
        self.tokens -= 1

    def add_chunk(self, request: int, tokens: int, cached: int) -> None:
        """Let a request process prompt tokens behind those that are cached."""
        self.chunks[request] = tokens
        self.before[request] = cached
        self.tokens -= tokens
        self.prompt_tokens -= tokens

    def shorten(self, request: int, tokens: int, cached: int) -> None:
        """Let a chunk have fewer tokens, since more are cached."""
        self.before[request] = cached
        less = self.chunks[request] - tokens
        self.chunks[request] = tokens
        self.tokens += less
        self.prompt_tokens += less

    def largest_chunk(self, most: int, limit_ns: int, cached: int) -> int:
        """Return the most prompt tokens, up to a number, with which the step keeps to a limit.

        ``cached`` are the tokens in the cache before them.
        """
        most = min(most, self.tokens, self.prompt_tokens)
        if most <= 0:
            return 0
        if limit_ns >= UNLIMITED or self.ns_with_chunk(most, cached) <= limit_ns:
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            if self.ns_with_chunk(middle, cached) <= limit_ns:
                low = middle
            else:
                high = middle
        return low

    def step(self, may_last: bool) -> Step | None:
        """Return the step; rounds go on until something happens where ``may_last``."""
        view, victims = self.view, self.victims
        able = len(view.running) - len(view.prefilling)
        able -= sum(each not in view.prefilling for each in victims)
        decode = None if len(self.decode) == able else list(self.decode)
        if self.chunks:
            prefill, tokens = list(self.chunks), list(self.chunks.values())
            return Step(prefill, tokens, None, decode, preempt=victims)
        if not self.decode:
            return evict(victims) if victims else None
        if may_last and decode is None and not victims:
            return _UNTIL_EVENT
        return Step(decode=decode, preempt=victims)
