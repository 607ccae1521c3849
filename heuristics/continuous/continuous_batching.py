"""Continuous batching: requests join and leave at every step, as in vLLM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.common.errors import InputError, PolicyError
from orsched.data.step import FINISH, Step, decode_rounds, evict
from orsched.heuristics.continuous.running import UNLIMITED, Plan, Running
from orsched.simulator.policy import Information, Policy, View

if TYPE_CHECKING:
    from orsched.heuristics.continuous.params import ContinuousParams
    from orsched.heuristics.continuous.waiting import Queue
    from orsched.simulator.policy import View
    from orsched.simulator.prefix_view import PrefixView, Trial


def admit_sharing(
    view: View, prefixes: PrefixView, plan: Plan, own: Running, chunked: bool, watermark: int
) -> None:
    """Let waiting requests join, in order, until the first that does not fit.

    The plan is tried on the cache, so that a request finds what one before it in the same step
    stores, and not what that one takes. A block that is found free is free no more.
    """
    queue, params, size = own.queue, own.params, own.block_tokens
    clients, running = view.free_clients, bool(view.running)
    if not clients or plan.tokens <= 0 or plan.prompt_tokens <= 0:
        return
    trial = _begun(view, prefixes, plan)
    threshold = UNLIMITED if params.mode == "prefill_first" else own.threshold(view)
    while queue and clients and plan.tokens > 0 and plan.prompt_tokens > 0:
        request = queue.first()
        hit, leaving = trial.hit(request)
        left = view.to_prefill(request) - hit
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

    def __init__(self, params: ContinuousParams, information: Information, queue: Queue) -> None:
        self.params = params
        self.information = information
        self.queue = queue
        self.prefill_first = params.mode == "prefill_first"
        self.chunked = self.chunks = params.splits
        self.watermark = params.watermark_blocks

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

    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self.queue)

    def surrender(self) -> int:
        """Give up the request that is last."""
        return self.queue.surrender()

    def decide(self, view: View) -> Step | None:
        """Return the next step, or rounds until something can change."""
        if self.prefill_first and self.queue and view.free_clients:
            stage = self._prefill_stage(view)
            if stage is not None:
                return stage
        plan = self.own.plan(view)
        if self.queue and not plan.victims and not self.prefill_first:
            self._admit(view, plan)
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
        clients, running = view.free_clients, bool(view.running)
        while queue and clients and plan.tokens > 0 and plan.prompt_tokens > 0:
            request = queue.first()
            left = view.to_prefill(request)
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
            plan.tokens -= chunk
            plan.prompt_tokens -= chunk
            plan.blocks -= new
            clients -= 1
            running = True

    def _prefill_stage(self, view: View) -> Step | None:
        """Return a prefill stage over whole prompts if the first waiting request fits."""
        blocks = view.blocks_unused
        free = UNLIMITED if blocks is None else blocks
        budget = self.params.max_num_batched_tokens
        plan = Plan(0, budget, self.own.prefill_limit, free)
        self._admit(view, plan)
        if not plan.chunks:
            return None
        return Step(prefill=list(plan.chunks), decode=())

    def _prefill(self, view: View, plan: Plan) -> Step:
        """Return a step with prompt tokens in it."""
        tokens = None if plan.whole else list(plan.chunks.values())
        return Step(list(plan.chunks), tokens, None, plan.decode, preempt=plan.victims)

    def _rounds(self, view: View, plan: Plan) -> Step:
        """Return rounds: one if the next may differ, else until something happens."""
        if plan.victims or plan.decode is not None:
            return Step(decode=plan.decode, preempt=plan.victims)
        if not self.queue or (self.queue.arrival_may_lead and view.free_clients):
            return _UNTIL_EVENT
        if view.prefixes is not None and not self.params.reserve_full_prompt:
            return decode_rounds(1)  # where rounds take what it would find, its chunk may fit
        return _UNTIL_FINISH
