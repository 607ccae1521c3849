"""Admission on a worker with a prefix cache: what is found there is not computed (vLLM)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.heuristics.continuous.running import UNLIMITED

if TYPE_CHECKING:
    from orsched.heuristics.continuous.running import Plan, Running
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
