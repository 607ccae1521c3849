"""Makespan bounds by the two counts: stages and rounds, alone or together, on equal workers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.context import Jobs, sum_of_products, whole_memory
from orsched.certificates.fields import Budget
from orsched.certificates.stages_rounds import rounds_by_stages
from orsched.certificates.stages_rounds import stages_and_rounds as valued
from orsched.certificates.step_lower_bounds import decode_floor, prefill_floor
from orsched.common.errors import MissingDependencyError
from orsched.models.bounds.joint_bound import Solver, joint_certificate, shorts_of
from orsched.models.packing import pack, packing_bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from orsched.certificates.context import Context
    from orsched.common.columns import IntColumn
    from orsched.costs import Floor
    from orsched.data.workers import Worker
    from orsched.models.bounds.joint_bound import Proof


def stage_bound(jobs: Jobs, worker: Worker, chunks: bool = False) -> dict[str, Any]:
    """Return a lower bound on K, the number of prefill stages, and why. A stage holds at most as
    many requests as there are clients, the cap's tokens and the memory's blocks; and at most k
    prompts of more than the (k + 1)-th part of the cap, or requests of more than that part of the
    memory. ``chunks``: large prompts may be divided."""
    found = {"value": -(-len(jobs) // jobs.clients), "reason": "clients"}
    ones = np.ones(len(jobs), np.int64)
    if worker.prefill_limit is not None:
        limit = worker.prefill_limit
        found = _larger(found, -(-int(jobs.prompts.sum()) // limit), "cap")
        if not chunks:
            value, k = _by_size(jobs.prompts, limit, ones, jobs.clients)
            found = _larger(found, value, "large_prompts", k=k)
    if memory := whole_memory(worker):
        limit = memory.blocks
        found = _larger(found, -(-int(jobs.blocks.sum()) // limit), "memory")
        value, k = _by_size(jobs.blocks, limit, ones, jobs.clients)
        found = _larger(found, value, "large_requests", k=k)
    return found


def round_bound(jobs: Jobs, worker: Worker, restarts: bool = False) -> dict[str, Any]:
    """Return a lower bound on R, the number of decode rounds, and why. Makespan packing (Pang
    (26)-(30)) of the rounds onto the clients: volume, longest request, or lifted; and the
    block-rounds that the requests need over the memory, or the rounds of those of more than its (k
    + 1)-th part over k. ``restarts``: a request's rounds may be on several clients, one after the
    other, so that only volume and longest request remain of the packing."""
    packing = _divided(jobs) if restarts else packing_bound(jobs.rounds.tolist(), jobs.clients)
    found = {"value": packing["value"], "reason": packing["bound"]}
    found |= {key: packing[key] for key in ("k", "l") if key in packing}
    if memory := whole_memory(worker):
        limit = memory.blocks
        volume = sum_of_products(jobs.blocks, jobs.rounds)
        found = _larger(found, -(-volume // limit), "memory")
        value, k = _by_size(jobs.blocks, limit, jobs.rounds, jobs.clients)
        found = _larger(found, value, "large_requests", k=k)
    return found


def _divided(jobs: Jobs) -> dict[str, Any]:
    """Bounds on packing jobs that may change clients (McNaughton's are exact)."""
    volume, longest = -(-int(jobs.rounds.sum()) // jobs.clients), int(jobs.rounds.max(initial=0))
    if longest > volume:
        return {"bound": "longest", "value": longest}
    return {"bound": "volume", "value": volume}


def _by_size(sizes: IntColumn, limit: int, weights: IntColumn, most: int) -> tuple[int, int]:
    """Return the largest mean weight of those k at most of which go together, and that k. Of sizes
    above limit / (k + 1), no more than k fit into the limit; k runs up to ``most``."""
    order = np.argsort(sizes, kind="stable")
    weight_above = int(weights.sum()) - np.concatenate([[0], np.cumsum(weights[order])])
    k = np.arange(1, most + 1)
    fitting = np.searchsorted(sizes[order], limit // (k + 1), side="right")
    values = -(-weight_above[fitting] // k)
    best = int(np.argmax(values))
    return int(values[best]), best + 1


def _larger(found: dict[str, Any], value: int, reason: str, **more: int) -> dict[str, Any]:
    return {"value": value, "reason": reason, **more} if value > found["value"] else found


MOST_ROUNDS = 10_000
_MOST_AHEAD = 8


def ends_certificate(
    context: Context, joint: dict[str, Any], out_of_time: Callable[[], bool]
) -> dict[str, Any] | None:
    """Return a joint certificate with proofs (``ends``) that raise it, or None. Where the least
    time is at K stages and R rounds, it is proven that K stages need more rounds, as long as that
    can be done; or that more stages do, if these would be next."""
    jobs, floor = context.released(joint["released_ns"]), context.floor(0)
    shorts = shorts_of(jobs)
    if not floor.by_counts or shorts is None:
        return None
    known = rounds_by_stages(jobs, joint, Budget())
    if max(known) > MOST_ROUNDS:
        return None
    trade = _Trade(floor, jobs, joint, known, [])
    solver = Solver(shorts, out_of_time)
    failed: set[tuple[int, int]] = set()
    while (goal := trade.goal(failed)) is not None:
        proof = solver.prove(*goal)
        if proof is None:
            failed.add(goal)
        else:
            trade.proofs.append(proof)
    return trade.certificate()


@dataclass
class _Trade:
    """The least rounds known for each number of stages."""

    floor: Floor
    jobs: Jobs
    joint: dict[str, Any]
    known: list[int]
    proofs: list[Proof]

    def _rounds(self, stages: int, proofs: list[Proof]) -> int:
        at = stages - int(self.joint["prefill_stages"]["value"])
        proven = (r for proof in proofs for k, r in proof.proves if k >= stages)
        return max([self.known[min(at, len(self.known) - 1)], *proven])

    def _time(self, stages: int, rounds: int) -> int:
        prefill = prefill_floor(self.floor, self.jobs, stages)
        return prefill + decode_floor(self.floor, self.jobs, rounds)

    def _times(self, proofs: list[Proof]) -> Iterator[tuple[int, int, int]]:
        """Yield the time, the number of stages and the rounds, as far as it matters."""
        first: int = self.joint["prefill_stages"]["value"]
        last = max([0, *(stages for proof in proofs for stages, _ in proof.proves)])
        for stages in range(first, max(last + 1, first + len(self.known) - 1) + 1):
            rounds = self._rounds(stages, proofs)
            yield self._time(stages, rounds), stages, rounds

    def goal(self, failed: set[tuple[int, int]]) -> tuple[int, int] | None:
        """Return the stages and rounds of the least time; None where no proof has been found. More
        stages, of as many rounds, if their time is next then: a proof is for fewer as well."""
        _, stages, rounds = min(self._times(self.proofs))
        if (stages, rounds) in failed:
            return None
        more, then = stages, self._time(stages, rounds + 1)
        while self._rounds(more + 1, self.proofs) == rounds and self._time(more + 1, rounds) < then:
            more += 1
            if more == stages + _MOST_AHEAD:
                break
        ahead = [k for k in range(more, stages, -1) if (k, rounds) not in failed]
        return (ahead[0] if ahead else stages), rounds

    def certificate(self) -> dict[str, Any] | None:
        """Return the certificate with the proofs that it takes; None where they prove nothing."""
        best, *_ = min(self._times(self.proofs))
        if best <= min(self._times([]))[0]:
            return None
        kept = list(self.proofs)
        for proof in self.proofs:
            without = [other for other in kept if other is not proof]
            if min(self._times(without))[0] == best:
                kept = without
        ends = [
            {**weights.to_dict(), "proves": [list(pair) for pair in proves]}
            for weights, proves in kept
        ]
        value = self.joint["released_ns"] + best
        plain = {k: v for k, v in self.joint.items() if k not in ("prefill_ns", "decode_ns")}
        prices = {"prices": self.joint.get("prices", [])}
        return plain | {"bound": "joint"} | prices | {"ends": ends, "value_ns": value}


_LOG = logging.getLogger(__name__)
SEARCH_SECONDS = 5.0
_FEWEST_MOMENTS, _MOST_MOMENTS, _ROWS_IN_ALL = 4, 64, 200_000
_LARGEST_PACKING, _LARGEST_TOTAL = 20_000, 2**60


def by_counts(
    context: Context, last: dict[str, Any], out_of_time: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """Yield the bounds by stages and rounds, for one worker or several equal ones."""
    moments = context.one.once(release_moments)
    plain = stages_and_rounds(context.one, moments[0])
    yield larger(last, shared(context, plain))
    for moment in moments[1:]:
        if out_of_time():
            return
        found = stages_and_rounds(context.one, moment)
        yield shared(context, found)
        if shared(context, found)["value_ns"] > shared(context, plain)["value_ns"]:
            plain = found
    if not out_of_time():
        yield from _jointly(context, plain)


def _jointly(context: Context, plain: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the joint bound over what is released as in a bound by stages and rounds."""
    joint = joint_certificate(context.one, plain)
    if joint is not None:
        yield shared(context, joint)


def by_packing(
    context: Context, best: dict[str, Any], seconds_left: Callable[[], float]
) -> Iterator[dict[str, Any]]:
    """Yield bounds whose rounds are proven by dual prices of packing them onto the clients. That is
    the linear program of Pang (26)-(30) with a column for each content of a client."""
    moment = best.get("one_worker", best).get("released_ns", min(context.arrivals))
    released = context.one.released(moment)
    left = seconds_left()
    seconds = type(left)(min(SEARCH_SECONDS, left))
    total = sum(released.rounds.tolist())
    if seconds <= 0 or len(released) > _LARGEST_PACKING or not 0 < total < _LARGEST_TOTAL:
        return
    result = pack(released.rounds.tolist(), released.clients, time_limit=seconds)
    packed = result.uninterrupted().certificate
    known = round_bound(released, context.one.instance.worker)["value"]
    if packed["value"] > known and "duals" in packed:
        proof = {name: field for name, field in packed.items() if name not in ("bound", "value")}
        rounds = {"value": packed["value"], "reason": packed["bound"], **proof}
        try:
            plain = stages_and_rounds(context.one, moment, rounds)
        except ValueError as error:  # beyond what is verified, or no proof at all
            _LOG.warning("a packing's bound is left out, for it is not proven: %s", error)
            return
        if plain["decode_rounds"] != rounds:
            _LOG.warning("a packing's bound is left out, for it is not proven: %s", rounds["value"])
            return
        yield shared(context, plain)
        yield from _jointly(context, plain)


def by_ends(
    context: Context, best: dict[str, Any], out_of_time: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """Yield the best bound by counts, if it is one, raised by where clients begin and end. None
    where pyscipopt is missing."""
    counted = best.get("one_worker", best)
    if counted["bound"] not in ("stages_and_rounds", "joint"):
        return
    try:
        found = ends_certificate(context.one, counted, out_of_time)
    except MissingDependencyError:  # pyscipopt: the bounds before stand
        return
    if found is not None:
        yield shared(context, found)


def shared(context: Context, certificate: dict[str, Any]) -> dict[str, Any]:
    """Return the certificate for all workers, from that for one of them."""
    workers = len(context.instance.workers)
    if workers == 1:
        return certificate
    released = certificate["released_ns"]
    share = -(-(certificate["value_ns"] - released) // workers)
    return {
        "bound": "shared",
        "workers": workers,
        "one_worker": certificate,
        "value_ns": released + share,
    }


def larger(best: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the certificate of the larger value, the first of two equal ones."""
    return other if other["value_ns"] > best["value_ns"] else best


def stages_and_rounds(
    context: Context, released: int, rounds: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the certificate of the bound by what one worker's requests need from a moment on.
    ``rounds``: a bound on them with its reason, in place of the best by formula."""
    jobs, worker, scope = context.released(released), context.instance.worker, context.scope
    stages = stage_bound(jobs, worker, scope.chunks)
    rounds = round_bound(jobs, worker, scope.restarts) if rounds is None else rounds
    return valued(context, released, stages, rounds, Budget())


def release_moments(context: Context) -> list[int]:
    """Return the moments whose later requests may give the best bound, the first one always. Ranked
    by an estimate in floats, with stages and rounds of typical contents; what is returned is then
    bounded exactly. The more requests, the fewer moments are tried."""
    instance, jobs = context.instance, context.jobs
    moments, index = np.unique(instance.requests.arrival_ns, return_inverse=True)
    if len(moments) == 1:
        return [int(moments[0])]

    def later(column: IntColumn) -> NDArray[np.float64]:
        per_moment = np.bincount(index, weights=column.astype(np.float64))
        sums: NDArray[np.float64] = np.cumsum(per_moment[::-1], dtype=np.float64)[::-1]
        return sums

    longest = np.zeros(len(moments), np.int64)
    np.maximum.at(longest, index, jobs.rounds)
    rounds = np.maximum(
        later(jobs.rounds) / jobs.clients, np.maximum.accumulate(longest[::-1])[::-1]
    )
    floor, limit = context.stated[0], instance.worker.prefill_limit
    assert floor is not None
    prompt = int(jobs.prompts.mean())
    longest_cache = prompt + int(jobs.rounds.mean()) // 2 + 1
    round_ns = floor.round_ns(jobs.clients, jobs.clients * longest_cache, longest_cache)
    many = jobs.clients if limit is None else max(1, min(jobs.clients, limit // prompt))
    stage_ns = floor.prefill_ns([prompt] * many)
    estimate = moments + rounds * round_ns + later(np.ones_like(jobs.prompts)) / many * stage_ns
    tried = max(_FEWEST_MOMENTS, min(_MOST_MOMENTS, _ROWS_IN_ALL // len(jobs)))
    likely = moments[np.argsort(-estimate, kind="stable")[:tried]]
    return list(dict.fromkeys([int(moments[0]), *likely.tolist()]))
