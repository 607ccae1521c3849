"""Lower bounds on the makespan, with certificates.

Time splits into prefill stages and decode rounds, since a worker does one of the two at a time.
What the tokens cost is the same in every order; what can differ is the number K of stages and
the number R of rounds. Each is bounded alone, over the requests released at or after a moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.errors import InputError
from orsched.models.floors import Totals, decode_floor, longest_chain, prefill_floor, totals_of
from orsched.models.packing import packing_bound
from orsched.units import NS_PER_S

if TYPE_CHECKING:
    from orsched.columns import IntColumn
    from orsched.instance import Instance
    from orsched.workers import Worker

_RELEASES_TRIED = 512


@dataclass(frozen=True)
class Bound:
    """A proven lower bound on an objective.

    Attributes:
        name: which bound it is.
        value_ns: the bound, in nanoseconds.
        certificate: integers that re-derive it without a solver; checked by
            ``orsched.checker.certificates``.
        reference: values that are no bounds, such as Pang's (31)-(32); never part of a gap.
    """

    name: str
    value_ns: int
    certificate: dict[str, Any]
    reference: dict[str, int]

    @property
    def value_s(self) -> float:
        """The bound in seconds."""
        return self.value_ns / NS_PER_S

    def to_dict(self) -> dict[str, Any]:
        """Return name, value and certificate, as they stand in a schedule file."""
        return {"name": self.name, "value_ns": self.value_ns, "certificate": self.certificate}


def makespan_bound(instance: Instance) -> Bound:
    """Return the best lower bound on the makespan that is proven without a search.

    Candidates: stages and rounds over the requests released at or after each moment (the whole
    instance among them), and the request that cannot end before its own arrival, prefill and
    rounds. Cost models without a known floor get the last arrival only.

    Raises:
        InputError: the instance has several workers.
        InfeasibleError: no schedule exists.
    """
    instance.require_feasible()
    worker = instance.worker
    if len(instance) == 0:
        return Bound("empty", 0, {"bound": "empty"}, {})
    best = _release(instance)
    for released in _release_moments(instance, worker):
        candidate = _stages_and_rounds(instance, worker, released)
        if candidate is not None and candidate.value_ns > best.value_ns:
            best = candidate
    chain = longest_chain(instance, worker)
    if chain is not None and chain["value_ns"] > best.value_ns:
        best = Bound("longest_request", chain["value_ns"], chain, {})
    return Bound(best.name, best.value_ns, best.certificate, pang_reference(instance))


def bound(
    instance: Instance, objective: str = "makespan", time_limit: float | None = None
) -> Bound:
    """Return a proven lower bound on an objective (makespan).

    ``time_limit`` is accepted for bounds that search; this one takes milliseconds.
    """
    if objective != "makespan":
        raise InputError(
            f"no bound on {objective!r}", field="objective", remedy="the objective is makespan"
        )
    return makespan_bound(instance)


def _release(instance: Instance) -> Bound:
    last = int(instance.requests.arrival_ns.max())
    return Bound("last_arrival", last, {"bound": "last_arrival", "value_ns": last}, {})


def _stages_and_rounds(instance: Instance, worker: Worker, released: int) -> Bound | None:
    totals = totals_of(instance, worker, released)
    stages = stage_bound(totals, worker, instance.requests.prompt_tokens, released, instance)
    rounds = round_bound(instance, worker, totals, released)
    prefill_ns = prefill_floor(worker.cost, totals, worker, stages["value"])
    decode_ns = decode_floor(worker.cost, totals, worker, rounds["value"])
    if prefill_ns is None or decode_ns is None:
        return None
    value = released + prefill_ns + decode_ns
    certificate = {
        "bound": "stages_and_rounds",
        "released_ns": released,
        **totals._asdict(),
        "prefill_stages": stages,
        "decode_rounds": rounds,
        "prefill_ns": prefill_ns,
        "decode_ns": decode_ns,
        "value_ns": value,
    }
    return Bound("stages_and_rounds", value, certificate, {})


def stage_bound(
    totals: Totals, worker: Worker, prompts: IntColumn, released: int, instance: Instance
) -> dict[str, Any]:
    """Return a lower bound on K, the number of prefill stages, and why.

    A stage holds at most J requests, the cap's tokens, the memory's blocks, and one prompt of
    more than half the cap.
    """
    found = {"value": -(-totals.requests // worker.clients), "reason": "clients"}
    limit = worker.prefill_limit
    if limit is not None:
        later = instance.requests.arrival_ns >= released
        large = int(((2 * prompts > limit) & later).sum())
        found = _larger(found, -(-totals.prompt_tokens // limit), "cap")
        found = _larger(found, large, "large_prompts")
    if worker.memory is not None:
        found = _larger(found, -(-totals.blocks // worker.memory.blocks), "memory")
    return found


def round_bound(
    instance: Instance, worker: Worker, totals: Totals, released: int
) -> dict[str, Any]:
    """Return a lower bound on R, the number of decode rounds, and why.

    Makespan packing (Pang (26)-(30)) of the rounds onto J clients: volume, longest request, or
    lifted; and the block-rounds that the requests need over the memory.
    """
    needed = instance.rounds_needed[instance.requests.arrival_ns >= released]
    packing = packing_bound(needed.tolist(), worker.clients)
    found = {"value": packing["value"], "reason": packing["bound"]}
    found |= {key: packing[key] for key in ("k", "l") if key in packing}
    if worker.memory is not None:
        found = _larger(found, -(-totals.block_rounds // worker.memory.blocks), "memory")
    return found


def _larger(found: dict[str, Any], value: int, reason: str) -> dict[str, Any]:
    return {"value": value, "reason": reason} if value > found["value"] else found


def _release_moments(instance: Instance, worker: Worker) -> list[int]:
    """Return the moments whose later requests may give the best bound: 0 and a few candidates.

    Ranked by a quick estimate in floats; what is returned is then bounded exactly.
    """
    req = instance.requests
    arrivals = np.unique(req.arrival_ns)
    first = int(arrivals[0])
    if len(arrivals) == 1:
        return [first]
    order = np.argsort(-req.arrival_ns, kind="stable")
    rounds = np.cumsum(instance.rounds_needed[order].astype(float))
    per_round = worker.cost.round_ns(worker.clients, worker.clients, 1) / worker.clients
    per_prompt = worker.cost.prefill_ns([1])
    counts = np.arange(1, len(order) + 1)
    estimate = req.arrival_ns[order] + rounds * per_round + counts * (per_prompt / worker.clients)
    likely = order[np.argsort(-estimate, kind="stable")[:_RELEASES_TRIED]]
    moments = dict.fromkeys(req.arrival_ns[likely].tolist())
    return [first, *list(moments)[:3]]


def pang_reference(instance: Instance) -> dict[str, int]:
    """Return Pang's (31)-(32), reported as "Pang's reference value": a bound only in Pang's MIP.

    ``T^p_L ceil(sum N^p / N^cap_L)`` plus the packing's rounds at the time of a full round
    (under the affine cost it exceeds real schedules). Empty without a cap.
    """
    worker, req = instance.worker, instance.requests
    limit = worker.prefill_limit
    if limit is None or len(req) == 0:
        return {}
    prefill = worker.cost.prefill_ns([limit]) * -(-int(req.prompt_tokens.sum()) // limit)
    rounds = packing_bound(instance.rounds_needed.tolist(), worker.clients)["value"]
    longest = int(req.prompt_tokens.max())
    return {
        "pang_31_32_ns": prefill
        + rounds * worker.cost.round_ns(worker.clients, worker.clients * longest, longest)
    }


def ordering_cannot_help(instance: Instance, lower: Bound | None = None) -> str | None:
    """Return why no order of the requests can change the makespan, or None if one might.

    True when nothing ever has to wait and that is optimal: all requests are there at once, fit
    together on the clients, under the prefill cap and into memory, and serving them so (one
    prefill stage, then rounds) meets the lower bound, which is computed unless it is given.
    """
    if not _fit_at_once(instance):
        return None
    lower = makespan_bound(instance) if lower is None else lower
    if _served_at_once(instance) != lower.value_ns:
        return None
    n, worker = len(instance), instance.worker
    return (
        f"all {n} requests fit at once on {worker.clients} clients, under the prefill cap and into "
        "memory, and serving them so meets the bound: there is no queue, so no order can help"
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
