"""Where no order of the requests can change the makespan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.certificates.scope import PLAIN
from orsched.models.bounds.bounds import makespan_bound

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.models.bounds.bounds import Bound


def ordering_cannot_help(instance: Instance, lower: Bound | None = None) -> str | None:
    """Return why no order of the requests can change the makespan, or None if one might.

    True when nothing ever has to wait and that is optimal: all requests are there at once, fit
    together on the clients, under the prefill cap and into memory, and serving them so (one
    prefill stage, then rounds) meets the lower bound, which is computed unless it is given.
    """
    if len(instance.workers) > 1 or instance.link is not None or instance.arrivals_follow:
        return None
    if not _fit_at_once(instance) or PLAIN.floor_of(instance.worker) is None:
        return None
    lower = makespan_bound(instance) if lower is None else lower
    if _served_at_once(instance) != lower.value_ns:
        return None
    n, worker = len(instance), instance.worker
    return (
        f"all {n} requests fit at once on {worker.clients} clients, under the prefill cap and into "
        "memory, and serving them so meets the bound: nothing queues, so no order can help "
        f"{lower.schedules}"
    )


def _fit_at_once(instance: Instance) -> bool:
    req, worker = instance.requests, instance.worker
    n = len(req)
    if n == 0 or int(req.arrival_ns.max()) > int(req.arrival_ns.min()) or n > worker.clients:
        return False
    limit, memory = worker.prefill_limit, worker.memory
    if limit is not None and int(req.prompt_tokens.sum()) > limit:
        return False
    if memory is not None:
        reserved = -(-(req.prompt_tokens + instance.output_limit_tokens) // memory.block_tokens)
        return int(reserved.sum()) <= memory.blocks
    return True


def _served_at_once(instance: Instance) -> int:
    """Return the makespan of one prefill stage over all requests, then rounds until the end."""
    req, cost = instance.requests, instance.worker.cost
    now = int(req.arrival_ns[0]) + cost.prefill_ns(req.prompt_tokens.tolist())
    left = sorted(zip(instance.rounds_needed.tolist(), req.prompt_tokens.tolist(), strict=True))
    done = 0
    while left:
        rounds = left[0][0] - done
        contexts = [prompt + done + 1 for _, prompt in left]
        if rounds:
            now += cost.rounds_ns(rounds, len(left), sum(contexts), max(contexts))
            done += rounds
        left = [entry for entry in left if entry[0] > done]
    return now
