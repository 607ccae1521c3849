"""What the running requests get in the next step, and which are preempted for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.common.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Collection

    from orsched.heuristics.continuous.params import ContinuousParams
    from orsched.heuristics.continuous.waiting import Queue
    from orsched.simulator.policy import View
    from orsched.simulator.prefix_view import Trial

UNLIMITED = 2**62


class Plan:
    """The next step while it is being made.

    Attributes:
        chunks: request -> prompt tokens.
        decode: requests that decode, None: all that can.
        decoding: how many those are.
        victims: requests that are preempted.
        tokens: what is left of the token budget.
        prompt_tokens: what is left of the worker's prefill cap.
        blocks: blocks that stay free.
        whole: whether each chunk is the whole prefill of a request that is new.
        trial: the evictions, tried on the worker's prefix cache, or None.
    """

    __slots__ = (
        "blocks", "chunks", "decode", "decoding", "prompt_tokens", "tokens", "trial",
        "victims", "whole",
    )  # fmt: skip

    def __init__(self, decoding: int, tokens: int, prompt_tokens: int, blocks: int) -> None:
        self.chunks: dict[int, int] = {}
        self.decode: list[int] | None = None
        self.decoding = decoding
        self.victims: list[int] = []
        self.tokens = tokens
        self.prompt_tokens = prompt_tokens
        self.blocks = blocks
        self.whole = True
        self.trial: Trial | None = None


class Running:
    """What the running requests of a worker need next.

    Attributes:
        leaving: requests that are done and get no tokens, though they still hold their blocks.
    """

    def __init__(self, view: View, params: ContinuousParams, queue: Queue) -> None:
        memory = view.worker.memory
        self.params = params
        self.queue = queue
        self.block_tokens = memory.block_tokens if memory is not None and memory.is_paged else 0
        self.prefill_limit = view.worker.prefill_limit or UNLIMITED
        self.leaving: Collection[int] = ()

    def blocks_for(self, view: View, request: int, tokens: int) -> int:
        """Return the new blocks that a running request needs for its next tokens."""
        size = self.block_tokens
        if not size:
            return 0
        cached = view.cached(request)
        return -(-(cached + tokens) // size) + (-cached // size)

    def threshold(self, view: View) -> int:
        """Return the most prompt tokens of one request in a step; a request alone has no limit."""
        if len(view.running) + len(self.queue) < 2:
            return UNLIMITED
        return self.params.long_prefill_token_threshold or UNLIMITED

    # -- the plan -------------------------------------------------------------------------

    def plan(self, view: View) -> Plan:
        """Return a plan that serves the running requests, as far as tokens and blocks go."""
        decoding = len(view.running) - len(view.prefilling) - len(self.leaving)
        blocks = view.blocks_left(1)
        plan = Plan(
            decoding,
            self.params.max_num_batched_tokens - decoding,
            self.prefill_limit,
            UNLIMITED if blocks is None else blocks,
        )
        if plan.tokens < 0 or (view.prefilling and not self._continue_prefills(view, plan)):
            return self._one_by_one(view)
        if plan.blocks < 0:
            self._preempt(view, plan)
        return plan

    def _continue_prefills(self, view: View, plan: Plan) -> bool:
        """Give each begun prefill its next chunk; False if that depends on the order of all."""
        threshold, plan.whole = self.threshold(view), False
        for request in view.prefilling:
            room = min(plan.tokens, plan.prompt_tokens)
            chunk = min(view.to_prefill(request), threshold)
            if chunk > room:
                if not self._is_settled(view, request):
                    return False
                chunk = room
            if chunk:
                plan.chunks[request] = chunk
                plan.tokens -= chunk
                plan.prompt_tokens -= chunk
                plan.blocks -= self.blocks_for(view, request, chunk)
        return True

    def _is_settled(self, view: View, request: int) -> bool:
        """Whether a prefill gets what is left of the budget, whoever is preempted."""
        if self.params.mode == "decode_first":
            return True
        last: bool = next(reversed(view.running)) == request
        return last and (not self.block_tokens or self.params.policy == "fcfs")

    def _preempt(self, view: View, plan: Plan) -> None:
        """Preempt requests until the others find their blocks; all chunks are settled.

        In order of admission, whoever finds no block takes those of the next victim,
        which may be itself.
        """
        alive, idle = list(view.running), {*view.prefilling, *self.leaving}
        given: dict[int, int] = {}
        plan.blocks = view.blocks_unused or 0
        needy = {*view.needing_blocks(), *plan.chunks}
        for request in [each for each in alive if each in needy]:
            if request in plan.victims:
                continue
            new = self.blocks_for(view, request, plan.chunks.get(request, 1))
            while new > plan.blocks:
                victim = self._evict_next(view, plan, alive)
                plan.blocks += given.pop(victim, 0)
                if victim == request:
                    break
            else:
                given[request] = new
                plan.blocks -= new
        plan.decoding = sum(each not in idle for each in alive)

    def _evict_next(self, view: View, plan: Plan, alive: list[int]) -> int:
        """Choose the next victim and free its blocks."""
        victim = self.queue.victim(alive)
        others = view.sending or view.receiving  # whose blocks come free
        if len(alive) == 1 and not others:  # it would be admitted again, and so on without end
            raise PolicyError(
                f"request {victim} does not fit into the worker's memory, even alone: give it more "
                "blocks, or the request to another worker"
            )
        alive.remove(victim)
        plan.victims.append(victim)
        plan.chunks.pop(victim, None)
        plan.blocks += self._freed(view, plan, victim)
        return victim

    def _freed(self, view: View, plan: Plan, victim: int) -> int:
        """Return the blocks that a victim frees: with a prefix cache those that it alone holds."""
        if view.prefixes is None:
            return -(-view.cached(victim) // self.block_tokens)
        if plan.trial is None:
            plan.trial = view.prefixes.trial()
        before = plan.trial.free_blocks
        plan.trial.release(victim)
        return plan.trial.free_blocks - before

    def _one_by_one(self, view: View) -> Plan:
        """Go through the running requests in order, preempting where blocks are missing."""
        params, partial, blocks = self.params, view.prefilling, view.blocks_unused
        order = list(view.running)
        if params.mode == "decode_first":
            order.sort(key=lambda request: request in partial)
        free = UNLIMITED if blocks is None else blocks
        plan = Plan(0, params.max_num_batched_tokens, self.prefill_limit, free)
        plan.whole = not partial
        threshold = self.threshold(view)
        taken: dict[int, tuple[int, int]] = {}  # request -> tokens and new blocks in this step
        for request in list(order):
            if plan.tokens <= 0:
                break
            tokens = 1
            if request in partial:
                tokens = min(view.to_prefill(request), threshold, plan.tokens, plan.prompt_tokens)
            if tokens and request not in plan.victims and request not in self.leaving:
                self._find_blocks(view, plan, taken, order, request, tokens)
        plan.chunks = {each: tokens for each, (tokens, _) in taken.items() if each in partial}
        decode = [each for each in taken if each not in partial]
        plan.decoding = len(decode)
        if len(decode) < sum(each not in partial and each not in self.leaving for each in order):
            plan.decode = decode
        return plan

    def _find_blocks(
        self,
        view: View,
        plan: Plan,
        taken: dict[int, tuple[int, int]],
        order: list[int],
        request: int,
        tokens: int,
    ) -> None:
        """Add a request to the step, unless it is preempted itself for lack of blocks.

        A request that was given tokens before and is preempted gives them back.
        """
        new = self.blocks_for(view, request, tokens)
        while new > plan.blocks:
            victim = self._evict_next(view, plan, order)
            back, own = taken.pop(victim, (0, 0))
            plan.tokens += back
            plan.prompt_tokens += back if victim in view.prefilling else 0
            plan.blocks += own
            if victim == request:
                return
        taken[request] = (tokens, new)
        plan.blocks -= new
        plan.tokens -= tokens
        plan.prompt_tokens -= tokens if request in view.prefilling else 0
