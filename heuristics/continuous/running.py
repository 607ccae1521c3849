"""What the running requests get in the next step, and who is preempted for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.errors import PolicyError

if TYPE_CHECKING:
    from orsched.heuristics.continuous.params import ContinuousParams
    from orsched.heuristics.continuous.waiting import Queue
    from orsched.policy import View

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
    """

    __slots__ = ("blocks", "chunks", "decode", "decoding", "prompt_tokens", "tokens", "victims")

    def __init__(self, decoding: int, tokens: int, prompt_tokens: int, blocks: int) -> None:
        self.chunks: dict[int, int] = {}
        self.decode: list[int] | None = None
        self.decoding = decoding
        self.victims: list[int] = []
        self.tokens = tokens
        self.prompt_tokens = prompt_tokens
        self.blocks = blocks


class Running:
    """The running requests of a worker, by what they need next.

    Pure rounds cost nothing here: a cache that decodes needs a new block in the round before which
    it fills its blocks, so they are kept by the residue of their size less the rounds, modulo the
    block size.

    Attributes:
        partial: request -> tokens left to prefill, in order of admission.
    """

    def __init__(self, view: View, params: ContinuousParams, queue: Queue) -> None:
        memory = view.worker.memory
        self.params = params
        self.queue = queue
        self.partial: dict[int, int] = {}
        self.block_tokens = memory.block_tokens if memory is not None and memory.is_paged else 0
        self.buckets: list[set[int]] = [set() for _ in range(self.block_tokens)]
        self.residues: dict[int, int] = {}
        self.prefill_limit = view.worker.prefill_limit or UNLIMITED

    # -- bookkeeping ----------------------------------------------------------------------

    def take(self, view: View, plan: Plan) -> bool:
        """Take note of the chunks of a plan; say if each completes its prefill."""
        partial, size = self.partial, self.block_tokens
        rounds = view.rounds + (plan.decoding > 0)
        whole = True
        for request, chunk in plan.chunks.items():
            left = partial.get(request) or view.to_prefill(request)
            if chunk < left:
                partial[request] = left - chunk
                whole = False
                continue
            partial.pop(request, None)
            if size:
                total = view.prompt_tokens[request] + view.generated(request)
                self._count(request, (total - rounds) % size)
        if plan.decode is not None and size:
            for request in self.residues.keys() - plan.decode - plan.chunks.keys():
                residue = self._uncount(request)  # it stays as it is while a round passes
                self._count(request, (residue - (plan.decoding > 0)) % size)
        return whole

    def leave(self, request: int) -> None:
        """Take note that a request is done or preempted."""
        if self.partial.pop(request, None) is None and self.block_tokens:
            self._uncount(request)

    def _count(self, request: int, residue: int) -> None:
        self.residues[request] = residue
        self.buckets[residue].add(request)

    def _uncount(self, request: int) -> int:
        residue = self.residues.pop(request)
        self.buckets[residue].remove(request)
        return residue

    def blocks_for(self, view: View, request: int, tokens: int) -> int:
        """Return the new blocks that a running request needs for its next tokens."""
        size = self.block_tokens
        if not size:
            return 0
        if request in self.residues:
            return not (self.residues[request] + view.rounds) % size
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
        decoding = len(view.running) - len(self.partial)
        size, budget = self.block_tokens, self.params.max_num_batched_tokens
        unused = view.blocks_unused
        blocks = UNLIMITED if unused is None else unused
        plan = Plan(decoding, budget - decoding, self.prefill_limit, blocks)
        if size and decoding:
            plan.blocks -= len(self.buckets[-view.rounds % size])
        if plan.tokens < 0 or (self.partial and not self._continue_prefills(view, plan)):
            return self._one_by_one(view, blocks)
        if plan.blocks < 0:
            self._preempt(view, plan, blocks)
        return plan

    def _continue_prefills(self, view: View, plan: Plan) -> bool:
        """Give each begun prefill its next chunk; False if that depends on the order of all."""
        threshold = self.threshold(view)
        for request, left in self.partial.items():
            room = min(plan.tokens, plan.prompt_tokens)
            chunk = min(left, threshold)
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

    def _preempt(self, view: View, plan: Plan, blocks: int) -> None:
        """Preempt requests until the others find their blocks; all chunks are settled.

        In order of admission, whoever finds no block takes those of the next victim,
        which may be itself.
        """
        alive, partial, size = list(view.running), self.partial, self.block_tokens
        needy = self.buckets[-view.rounds % size].union(plan.chunks)
        given: dict[int, int] = {}
        plan.blocks = blocks
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
        plan.decoding = sum(each not in partial for each in alive)

    def _evict_next(self, view: View, plan: Plan, alive: list[int]) -> int:
        """Choose the next victim and free its blocks."""
        victim = self.queue.victim(alive)
        if len(alive) == 1:  # it would be admitted again, and so on without end
            raise PolicyError(
                f"request {victim} does not fit into the worker's memory, even alone: give it more "
                "blocks, or the request to another worker"
            )
        alive.remove(victim)
        plan.victims.append(victim)
        plan.chunks.pop(victim, None)
        plan.blocks -= -view.cached(victim) // self.block_tokens
        return victim

    def _one_by_one(self, view: View, blocks: int) -> Plan:
        """Go through the running requests in order, preempting where blocks are missing."""
        params, partial = self.params, self.partial
        order = list(view.running)
        if params.mode == "decode_first":
            order.sort(key=lambda request: request in partial)
        plan = Plan(0, params.max_num_batched_tokens, self.prefill_limit, blocks)
        threshold = self.threshold(view)
        taken: dict[int, tuple[int, int]] = {}  # request -> tokens and new blocks in this step
        for request in list(order):
            if plan.tokens <= 0:
                break
            tokens = 1
            if request in partial:
                tokens = min(partial[request], threshold, plan.tokens, plan.prompt_tokens)
            if tokens and request not in plan.victims:
                self._find_blocks(view, plan, taken, order, request, tokens)
        plan.chunks = {each: tokens for each, (tokens, _) in taken.items() if each in partial}
        decode = [each for each in taken if each not in partial]
        plan.decoding = len(decode)
        if len(decode) < sum(each not in partial for each in order):
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
        """Let a request take part in the step, unless it is preempted itself for lack of blocks.

        A request that was given tokens before and is preempted gives them back.
        """
        new = self.blocks_for(view, request, tokens)
        while new > plan.blocks:
            victim = self._evict_next(view, plan, order)
            back, own = taken.pop(victim, (0, 0))
            plan.tokens += back
            plan.prompt_tokens += back if victim in self.partial else 0
            plan.blocks += own
            if victim == request:
                return
        taken[request] = (tokens, new)
        plan.blocks -= new
        plan.tokens -= tokens
        plan.prompt_tokens -= tokens if request in self.partial else 0
