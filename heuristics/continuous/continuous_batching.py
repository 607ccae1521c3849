"""Continuous batching: requests join and leave at every step, as in vLLM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.common.errors import InputError, PolicyError
from orsched.data.step import FINISH, Step, decode_rounds, evict
from orsched.simulator.policy import Information, Policy, View

if TYPE_CHECKING:
    from collections.abc import Collection

    from orsched.heuristics.continuous.params import ContinuousParams
    from orsched.heuristics.continuous.queues import Queue
    from orsched.simulator.paging import PrefixView, Trial


UNLIMITED = 2**62


class Plan:
    """The next step while it is being made."""

    __slots__ = (
        "blocks", "chunks", "decode", "decoding", "prefilled", "prompt_tokens", "tokens",
        "trial", "victims", "whole",
    )  # fmt: skip

    def __init__(self, decoding: int, tokens: int, prompt_tokens: int, blocks: int) -> None:
        self.chunks: dict[int, int] = {}  # request -> prompt tokens
        self.decode: list[int] | None = None  # None = None|requests that decode, None: all that can
        self.decoding = decoding  # how many those are
        self.victims: list[int] = []  # requests that are preempted
        self.tokens = tokens  # what is left of the token budget
        self.prompt_tokens = prompt_tokens  # what is left of the worker's prefill cap
        self.blocks = blocks  # blocks that stay free
        self.whole = True  # whether each chunk is the whole prefill of a request that is new
        self.trial: Trial | None = None  # the evictions, tried on the worker's prefix cache
        self.prefilled = False  # whether prompt tokens were scheduled, more than a last one


class Running:
    """What the running requests of a worker need next."""

    def __init__(self, view: View, params: ContinuousParams, queue: Queue) -> None:
        memory = view.worker.memory
        self.params = params
        self.queue = queue
        self.block_tokens = memory.block_tokens if memory is not None and memory.is_paged else 0
        self.prefill_limit = view.worker.prefill_limit or UNLIMITED
        self.leaving: Collection[int] = ()  # done: they get no tokens, but still hold their blocks
        self.interval = params.prefill_schedule_interval
        self.last = -self.interval  # the last step with prompt tokens
        self.stages = 0  # steps without a round; the others are the view's rounds
        self.crowded = False  # whether requests were left over without room
        self.held = False  # whether this step has no prompt tokens

    def blocks_for(self, view: View, request: int, tokens: int) -> int:
        """Return the new blocks that a running request needs for its next tokens."""
        size = self.block_tokens
        if not size:
            return 0
        cached = view.cached(request)
        return -(-(cached + tokens) // size) + (-cached // size)

    def threshold(self, view: View) -> int:
        """Return the most prompt tokens of one request in a step; a request alone has no limit."""
        requests, params = len(view.running) + len(self.queue), self.params
        if requests < 2 or not params.long_prefill_token_threshold:
            return UNLIMITED
        if params.long_prefill_token_threshold_adaptive:
            share = params.max_num_batched_tokens // requests
            return max(params.long_prefill_token_threshold, share)
        return params.long_prefill_token_threshold

    def seats(self, view: View) -> int:
        """Return how many requests may join."""
        active = self.params.max_num_active_seqs
        return (
            view.free_clients
            if active is None
            else min(view.free_clients, active - len(view.running))
        )

    # -- steps with and without prompt tokens ----------------------------------------------

    def holds(self, view: View) -> bool:
        """Whether the next step comes too soon after the last one with prompt tokens."""
        early = view.rounds + self.stages + 1 - self.last < self.interval
        return early and not self.crowded and len(view.running) > len(view.prefilling)

    def note(self, view: View, plan: Plan) -> None:
        """Take note of what a step does."""
        if not (self.held or plan.victims):
            self.crowded = bool(self.queue)
        if plan.prefilled:
            self.last = view.rounds + self.stages + bool(plan.chunks or plan.decoding)
        if plan.chunks and not plan.decoding:
            self.stages += 1

    # -- the plan -------------------------------------------------------------------------

    def plan(self, view: View) -> Plan:
        """Return a plan that serves the running requests, as far as tokens and blocks go."""
        decoding = len(view.running) - len(view.prefilling) - len(self.leaving)
        blocks = view.blocks_left(1)
        self.held = self.interval > 1 and self.holds(view)
        plan = Plan(
            decoding,
            self.params.budget - decoding,
            self.prefill_limit,
            UNLIMITED if blocks is None else blocks,
        )
        if plan.tokens < 0 or (view.prefilling and not self._continue_prefills(view, plan)):
            return self._one_by_one(view)
        if plan.blocks < 0:
            self._preempt(view, plan)
        else:
            plan.prefilled = bool(plan.chunks)
        return plan

    def _continue_prefills(self, view: View, plan: Plan) -> bool:
        """Give each begun prefill its next chunk; False if that depends on the order of all."""
        threshold, plan.whole = self.threshold(view), False
        for request in () if self.held else view.prefilling:
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
        """Whether a prefill gets what is left of the budget, with any preemptions."""
        if self.params.mode == "decode_first":
            return True
        last: bool = next(reversed(view.running)) == request
        return last and (not self.block_tokens or self.params.first_come)

    def _preempt(self, view: View, plan: Plan) -> None:
        """Preempt requests until the others find their blocks: in order of admission, one without
        room takes those of the next victim, which may be itself. All chunks are settled."""
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
                plan.prefilled |= request in plan.chunks
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
        plan = Plan(0, params.budget, self.prefill_limit, free)
        plan.whole = not partial
        threshold = self.threshold(view)
        taken: dict[int, tuple[int, int]] = {}  # request -> tokens and new blocks in this step
        for request in list(order):
            if plan.tokens <= 0:
                break
            tokens = 1
            if request in partial:
                tokens = min(view.to_prefill(request), threshold, plan.tokens, plan.prompt_tokens)
                tokens = 0 if self.held else tokens
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
        """Add a request to the step, or preempt it for lack of blocks; victims give back theirs."""
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
        plan.prefilled |= request in view.prefilling
        plan.blocks -= new
        plan.tokens -= tokens
        plan.prompt_tokens -= tokens if request in view.prefilling else 0


def admit_sharing(
    view: View, prefixes: PrefixView, plan: Plan, own: Running, chunked: bool, watermark: int
) -> None:
    """Let waiting requests join, in order, until the first that does not fit. The plan is tried on
    the cache: a request finds what one before it in the same step stores, and not what that one
    takes. A block that is found free is free no more."""
    queue, params, size = own.queue, own.params, own.block_tokens
    clients, running = own.seats(view), bool(view.running)
    if clients <= 0 or plan.tokens <= 0 or plan.prompt_tokens <= 0:
        return
    trial = _begun(view, prefixes, plan)
    threshold = UNLIMITED if params.mode == "prefill_first" else own.threshold(view)
    while queue and clients and plan.tokens > 0 and plan.prompt_tokens > 0:
        request = queue.first()
        hit, leaving = trial.hit(request)
        left = view.to_prefill(request) - hit
        if own.held and left > 1:
            break
        chunk, room = min(left, threshold), min(plan.tokens, plan.prompt_tokens)
        if not chunked and chunk > room:
            break
        chunk = min(chunk, room)
        stored = left if params.reserve_full_prompt else chunk
        needed = -(-(hit + stored) // size) - hit // size + leaving
        if needed + (watermark if running else 0) > trial.free_blocks:
            break
        trial.admit(request, chunk)
        plan.chunks[queue.pop()] = chunk
        if chunk < left:
            plan.whole = False
        plan.prefilled |= left > 1
        plan.tokens -= chunk
        plan.prompt_tokens -= chunk
        clients -= 1
        running = True
    plan.blocks = trial.free_blocks
    trial.close()


def _begun(view: View, prefixes: PrefixView, plan: Plan) -> Trial:
    """Return a trial in which the requests that run have the blocks of the plan."""
    trial = prefixes.trial()
    if plan.decoding:
        due = view.needing_blocks()
        trial.grow(len(due) if plan.decode is None else len({*due} & {*plan.decode}))
    for request, tokens in plan.chunks.items():
        trial.extend(request, tokens)
    return trial


_UNTIL_EVENT = decode_rounds()
_UNTIL_FINISH = decode_rounds(until=FINISH)


class ContinuousBatching(Policy):
    """Steps under a token budget: running requests first, then waiting ones (vLLM V1).

    A running request gets one token, or the rest of its prefill, within the threshold and what is
    left of the budget, and the KV blocks for its new tokens. Where none is free, requests are
    preempted: their caches are lost and recomputed. Waiting requests follow, unless one was
    preempted, until the first that finds no client, token or block.

    Where none can be admitted before a request finishes, all rounds until then are one step.
    """

    name = "vllm"
    shares_queue = True

    def __init__(self, params: ContinuousParams, information: Information, queue: Queue) -> None:
        self.params = params
        self.information = information
        self.queue = queue
        self.prefill_first = params.mode == "prefill_first"
        self.chunked = self.chunks = params.splits
        self.watermark = params.watermark_blocks
        self.aborts = type(self) is ContinuousBatching and hasattr(queue, "remove")

    def start(self, view: View) -> None:
        """Know the worker; raises ``InputError`` for one that pads."""
        if view.worker.padding:
            raise InputError(
                "continuous batching does not pad", field="padding", remedy="use static batching"
            )
        self.own = Running(view, self.params, self.queue)

    def on_arrival(self, view: View, request: int) -> None:
        """Queue the request."""
        self.queue.put(view, request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Forget the request."""
        self.queue.forget(request)

    def on_preempt(self, view: View, request: int) -> None:
        """Queue the request again."""
        self.queue.put_back(request)

    def on_abort(self, view: View, request: int) -> None:
        """Let a waiting request go."""
        self.queue.remove(request)  # type: ignore[attr-defined]

    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self.queue)

    def surrender(self) -> int:
        """Give up the request that is last."""
        return self.queue.surrender()

    def decide(self, view: View) -> Step | None:
        """Return the next step, or rounds until something can change."""
        if self.prefill_first and self.queue and self.own.seats(view) > 0:
            stage = self._prefill_stage(view)
            if stage is not None:
                return stage
        plan = self.own.plan(view)
        if self.queue and not plan.victims and not self.prefill_first:
            self._admit(view, plan)
        if self.own.interval > 1:
            self.own.note(view, plan)
        if plan.chunks:
            return self._prefill(view, plan)
        if plan.decoding:
            return self._rounds(view, plan)
        if plan.victims:
            return evict(plan.victims)
        if self.queue and not (view.running or view.sending or view.receiving):
            raise PolicyError(
                f"request {self.queue.first()} can never be admitted: its prefill exceeds the "
                f"token budget ({self.params.why_whole}), the prefill cap or the worker's memory"
                if not self.params.splits
                else f"request {self.queue.first()} can never be admitted: its prefill exceeds the "
                "prefill cap or the worker's memory"
            )
        return None

    def _admit(self, view: View, plan: Plan) -> None:
        """Let waiting requests join, in order, until the first that does not fit."""
        if (prefixes := view.prefixes) is not None:
            admit_sharing(view, prefixes, plan, self.own, self.chunked, self.watermark)
            return
        queue, chunks = self.queue, plan.chunks
        params, size = self.params, self.own.block_tokens
        threshold = self.own.threshold(view)
        clients, running = self.own.seats(view), bool(view.running)
        while queue and clients > 0 and plan.tokens > 0 and plan.prompt_tokens > 0:
            request = queue.first()
            left = view.to_prefill(request)
            if self.own.held and left > 1:
                return
            chunk = min(left, threshold)
            if not self.chunked and chunk > min(plan.tokens, plan.prompt_tokens):
                return
            chunk = min(chunk, plan.tokens, plan.prompt_tokens)
            if size:
                new = -(-chunk // size)
                needed = -(-left // size) if params.reserve_full_prompt else new
            else:
                new = needed = view.blocks_of(request)
            if needed + (self.watermark if running else 0) > plan.blocks:
                return
            chunks[queue.pop()] = chunk
            if chunk < left:
                plan.whole = False
            plan.prefilled |= left > 1
            plan.tokens -= chunk
            plan.prompt_tokens -= chunk
            plan.blocks -= new
            clients -= 1
            running = True

    def _prefill_stage(self, view: View) -> Step | None:
        """Return a prefill stage over whole prompts if the first waiting request fits."""
        blocks = view.blocks_unused
        free = UNLIMITED if blocks is None else blocks
        plan = Plan(0, self.params.budget, self.own.prefill_limit, free)
        self._admit(view, plan)
        if not plan.chunks:
            return None
        return Step(prefill=list(plan.chunks), decode=())

    def _prefill(self, view: View, plan: Plan) -> Step:
        tokens = None if plan.whole else list(plan.chunks.values())
        return Step(list(plan.chunks), tokens, None, plan.decode, preempt=plan.victims)

    def _rounds(self, view: View, plan: Plan) -> Step:
        """Return rounds: one if the next may differ, else until something happens."""
        if plan.victims or plan.decode is not None:
            return Step(decode=plan.decode, preempt=plan.victims)
        if self.own.held and (self.queue or view.prefilling):
            return decode_rounds(1)
        if not self.queue or (self.queue.arrival_may_lead and self.own.seats(view) > 0):
            return _UNTIL_EVENT
        if self.params.long_prefill_token_threshold_adaptive:
            return _UNTIL_EVENT  # the more requests there are, the smaller a chunk may be
        if view.prefixes is not None and not self.params.reserve_full_prompt:
            return decode_rounds(1)  # where rounds take what it would find, its chunk may fit
        return _UNTIL_FINISH
