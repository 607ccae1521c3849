"""What the two counts prove, stages and rounds, each by its stated reason, and the time of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.context import sum_of_products, whole_memory
from orsched.certificates.packing import SEARCHED, proven
from orsched.certificates.step_lower_bounds import decode_floor, prefill_floor

if TYPE_CHECKING:
    from orsched.certificates.budget import Budget
    from orsched.certificates.context import Context, Jobs
    from orsched.certificates.scope import Scope
    from orsched.common.columns import IntColumn
    from orsched.costs import Floor
    from orsched.data.workers import Worker


def stages_and_rounds(
    context: Context,
    released: int,
    stages: dict[str, Any],
    rounds: dict[str, Any],
    budget: Budget,
) -> dict[str, Any]:
    """Return the certificate of the bound by what one worker's requests need from a moment on.

    ``stages``, ``rounds``: the reasons of the bounds on the counts, with what these choose.

    Raises:
        ValueError: they prove nothing.
    """
    worker, floor, scope = context.instance.worker, context.floor(0), context.scope
    if scope.yielding:
        raise ValueError("prefills that yield tokens stand for rounds")
    jobs = context.released(released)
    if len(jobs) == 0:
        raise ValueError(f"no request arrives at {released} or later")
    stages = {**stages, "value": _stages(jobs, worker, stages, scope)}
    rounds = {**rounds, "value": _rounds(jobs, worker, rounds, scope, budget)}
    prefill_ns = prefill_floor(floor, jobs, stages["value"], scope.chunks)
    decode_ns = decode_floor(floor, jobs, rounds["value"])
    found = {
        "bound": "stages_and_rounds",
        **scope.stated(),
        "released_ns": released,
        **jobs.totals,
        "prefill_stages": stages,
        "decode_rounds": rounds,
        "prefill_ns": prefill_ns,
        "decode_ns": decode_ns,
        "value_ns": released + prefill_ns + decode_ns,
    }
    if scope.mixed:
        saved = _saved(floor, stages["value"], rounds["value"], min(prefill_ns, decode_ns))
        found |= {"saved_ns": saved, "value_ns": found["value_ns"] - saved}
    return found


def _saved(floor: Floor, stages: int, rounds: int, smaller_ns: int) -> int:
    """Return the most that mixed steps take less than their parts one after the other."""
    if floor.mixed == "one_fixed":
        return min(floor.stage.fixed, floor.round.fixed) * floor.times * min(stages, rounds)
    return smaller_ns if floor.mixed == "larger" else 0


def _stages(jobs: Jobs, worker: Worker, claim: dict[str, Any], scope: Scope) -> int:
    cap, memory, reason = worker.prefill_limit, whole_memory(worker), claim["reason"]
    ones = np.ones(len(jobs), np.int64)
    if reason == "clients":
        return -(-len(jobs) // jobs.clients)
    if reason == "cap" and cap is not None:
        return -(-int(jobs.prompts.sum()) // cap)
    if reason == "memory" and memory is not None:
        return -(-int(jobs.blocks.sum()) // memory.blocks)
    if reason == "large_prompts" and cap is not None and not scope.chunks:
        return _few_at_once(jobs.prompts, cap, ones, claim["k"])
    if reason == "large_requests" and memory is not None:
        return _few_at_once(jobs.blocks, memory.blocks, ones, claim["k"])
    raise ValueError(f"no bound on stages by {reason!r}")


def _rounds(jobs: Jobs, worker: Worker, claim: dict[str, Any], scope: Scope, budget: Budget) -> int:
    memory, reason = whole_memory(worker), claim["reason"]
    if reason in ("lifted", *SEARCHED) and scope.restarts:
        raise ValueError("a request may change clients")
    if reason == "memory" and memory is not None:
        return -(-sum_of_products(jobs.blocks, jobs.rounds) // memory.blocks)
    if reason == "large_requests" and memory is not None:
        return _few_at_once(jobs.blocks, memory.blocks, jobs.rounds, claim["k"])
    if reason == "volume":
        return -(-int(jobs.rounds.sum()) // jobs.clients)
    if reason == "longest":
        return int(jobs.rounds.max())
    if reason in ("lifted", *SEARCHED):
        return proven(jobs.rounds.tolist(), jobs.clients, {**claim, "bound": reason}, budget)
    raise ValueError(f"no bound on rounds by {reason!r}")


def _few_at_once(sizes: IntColumn, limit: int, weights: IntColumn, k: int) -> int:
    """Of sizes above limit / (k + 1) at most k go together: their weights are shared by k."""
    return -(-int(weights[sizes > limit // (k + 1)].sum()) // k)
