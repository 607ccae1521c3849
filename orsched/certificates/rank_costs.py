"""What each rank of the requests that have not ended pays: sums of ends of one worker's batches.

A schedule pays each step's time once for every request that has not ended. The one that ends j-th
from last pays ``rounds[j]`` for each of its rounds, such that no step pays more than it costs,
whoever is in it. So no schedule is cheaper than the cheapest way to give requests to ranks
(docs/bounds.md has the proofs), and prices of the ranks bound that from below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.aggregate_machine import charges_of, terms_of
from orsched.certificates.jobs import jobs_on

if TYPE_CHECKING:
    from orsched.certificates.budget import Budget
    from orsched.certificates.scope import Scope
    from orsched.columns import IntColumn
    from orsched.instance import Instance

KINDS = {"ranks": "mean_jct", "queue_ranks": "mean_ttft"}
"""The bounds that are made here, each with its objective."""
_BITS = 60
_CELLS_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Work:
    """What the steps of a worker take at least, in 2 ** shift / unit nanoseconds.

    Attributes:
        unit: see above.
        shift: the lowest bits that are left out of all times, so that sums fit into 64 bits.
        clients: most requests in a round.
        round_fixed: of a round.
        round_own: of each request in a round.
        rounds: of each request.
        stages: of each request's prefill.
        contexts: of each request, over all its rounds, beyond ``round_own``.
    """

    unit: int
    shift: int
    clients: int
    round_fixed: int
    round_own: int
    rounds: IntColumn
    stages: IntColumn
    contexts: IntColumn

    def __len__(self) -> int:
        return len(self.rounds)


@dataclass(frozen=True)
class Choices:
    """What a certificate chooses; whatever that is, a bound is proven.

    Attributes:
        level: of a prefill what counts with the rounds (JCT, for each round) or by itself (TTFT).
        smooth: ranks on each side over which prices are averaged.
    """

    level: int
    smooth: int

    @classmethod
    def read(cls, claim: dict[str, Any]) -> Choices:
        """Return the choices of a certificate."""
        return cls(claim["level"], claim["smooth"])

    def stated(self) -> dict[str, int]:
        """Return the fields of a certificate."""
        return {"level": self.level, "smooth": self.smooth}


def work_of(instance: Instance, scope: Scope, choices: dict[str, Any]) -> Work:
    """Return what one worker's steps take, with a stage's fixed time shared as chosen.

    Raises:
        ValueError: several workers or a link, a step cannot be shared so, or no floor is known.
    """
    if len(instance.workers) > 1 or instance.link is not None or scope.yielding:
        raise ValueError("ranks are of one worker whose rounds alone yield tokens")
    if choices["round_share"] != "clients":
        raise ValueError("rounds are not shared by memory here")
    worker = instance.worker
    rows, jobs = jobs_on(instance, worker, scope.chunks)
    if len(rows) < len(instance):
        raise ValueError("a request does not fit onto the worker")
    named = ("stage_share", "round_share", "line")
    own: dict[str, Any] = {name: choices[name] for name in named if name in choices}
    charges = charges_of(worker, jobs, rows, scope, own)
    prompts, rounds = jobs.prompts.tolist(), jobs.rounds.tolist()
    terms = terms_of(scope.require_floor(worker), prompts, jobs.clients, own.get("line"))
    both, least = charges.scale // terms.unit, min(prompts) + 1
    stages = [each // both for each in charges.stages]
    grown = terms.context_own
    pairs = zip(prompts, rounds, strict=True)
    contexts = [grown * (d * (p - least) + d * (d + 1) // 2) for p, d in pairs]
    own_ns = terms.round_own + grown * least
    count = len(rounds)
    most = (terms.round_fixed + own_ns + max(stages)) * (1 + max(rounds)) + max(contexts)
    shift = max(0, (8 * most * count * count).bit_length() - _BITS)
    columns = (rounds, [each >> shift for each in stages], [each >> shift for each in contexts])
    return Work(
        terms.unit,
        shift,
        jobs.clients,
        terms.round_fixed >> shift,
        own_ns >> shift,
        *(np.array(column, np.int64) for column in columns),
    )


def least_sum_by_ranks(
    kind: str, instance: Instance, work: Work, chosen: Choices, budget: Budget
) -> int:
    """Return what the choices prove of the sum over the requests, in nanoseconds, perhaps below 0.

    Requests that arrive later count as if they had been there from the first arrival on.
    """
    if chosen.level > int(work.stages.max()):
        raise ValueError("the level is above all prefills")
    arrivals = instance.requests.arrival_ns
    waited: int = len(work) * int(arrivals.min()) - sum(arrivals.tolist())
    if kind == "ranks":
        total = _ends(work, chosen, budget)
    else:
        total = _first_tokens(work, chosen, instance.first_token == "decode", budget)
    return -(-(total << work.shift) // work.unit) + waited


def _ends(work: Work, chosen: Choices, budget: Budget) -> int:
    """Sum of ends: a step costs its time for each request that has not ended.

    Up to ``level`` a round, a prefill counts with the request's rounds, which all come later. What
    a request lacks of that is taken off again, at the last rank beside which its own may be.
    """
    count = len(work)
    ranks = np.arange(1, count + 1)
    own = work.round_own + chosen.level
    paid = rank_costs(ranks, work.clients, work.round_fixed, own, budget)
    spread = chosen.level * work.rounds
    more, less = np.maximum(work.stages - spread, 0), np.maximum(spread - work.stages, 0)
    grows = count == 1 or int(np.diff(paid).min()) >= chosen.level
    beside = np.minimum(ranks + work.clients - 1, count) if grows else np.full(count, count)
    terms = [Term(work.rounds, paid), Term(more + work.contexts, ranks), Term(less, -beside)]
    return least_ranking(terms, chosen, budget)


def _first_tokens(work: Work, chosen: Choices, in_rounds: bool, budget: Budget) -> int:
    """Sum of first tokens: a step costs its time for each request that has none when it begins.

    All but J of those that have not ended. Up to ``level`` a prefill costs its time for each that
    is not prefilled, in whatever order; and its request waits for it and for a round of its own.
    """
    count = len(work)
    ranks = np.arange(1, count + 1)
    late = np.maximum(ranks - work.clients, 0)
    paid = rank_costs(late, work.clients, work.round_fixed, work.round_own, budget)
    alike = np.minimum(work.stages, chosen.level)
    more = work.stages - alike
    ends = least_ranking(
        [Term(work.rounds, paid), Term(more + work.contexts, late)], chosen, budget
    )
    starts = int((np.sort(alike)[::-1] * ranks).sum()) + int(more.sum())
    own = count * (work.round_fixed + work.round_own) if in_rounds else 0
    return ends + starts + own


def rank_costs(weights: IntColumn, clients: int, fixed: int, own: int, budget: Budget) -> IntColumn:
    """Return what each rank pays for a round, so that no round pays more than it costs.

    With u requests left a round of N of them costs ``(fixed + own N) weights[u]``, and the N that
    pay most are of the ranks u - N + 1 to u. The sums of what the first ranks pay are shortest
    paths: the last batches of equal requests. What is paid does not fall with the rank.
    """
    count = len(weights)
    budget.spend(count * clients)
    step = fixed + own * np.arange(1, clients + 1)
    sums = np.zeros(count + 1, np.int64)
    for left in range(1, count + 1):
        most = min(left, clients)
        before = sums[left - most : left][::-1]
        sums[left] = (before + step[:most] * weights[left - 1]).min()
    paid: IntColumn = np.minimum.accumulate(np.diff(sums)[::-1])[::-1]
    return paid


@dataclass(frozen=True)
class Term:
    """A part of what requests pay: the work of each x what each rank pays for it."""

    work: IntColumn
    pays: IntColumn


def least_ranking(terms: list[Term], chosen: Choices, budget: Budget) -> int:
    """Return the prices of all ranks, and of each request the least that it pays beyond one.

    No assignment of requests to ranks costs less (weak duality), whatever the prices are.
    """
    prices, count = _prices(terms, chosen), len(terms[0].work)
    at_once = max(1, _CELLS_AT_ONCE // count)
    budget.spend(2 * len(terms) * count * count)
    budget.hold(2 * min(count, at_once) * count)
    total = int(prices.sum())
    for at in range(0, count, at_once):
        costs = np.tile(-prices, (min(at_once, count - at), 1))
        for term in terms:
            if term.work.any():
                costs += term.work[at : at + at_once, None] * term.pays
        total += int(costs.min(axis=1).sum())
    return total


def _prices(terms: list[Term], chosen: Choices) -> IntColumn:
    """Price the ranks: along an order of the requests, by what they would pay one rank up."""
    keys = [term.work for term in terms]
    rise = sum(term.work * (term.pays[-1] - term.pays[0]) for term in terms)
    order = np.lexsort((*keys, rise))[::-1]
    count = len(order)
    rank = np.arange(1, count)
    low = np.maximum(rank - chosen.smooth - 1, 0)
    high = np.minimum(rank + chosen.smooth + 1, count)
    rises = np.zeros(count - 1, np.int64)
    for term in terms:
        sums = np.concatenate([[0], np.cumsum(term.work[order])])
        rises += (sums[high] - sums[low]) // (high - low) * np.diff(term.pays)
    prices: IntColumn = np.concatenate([[0], np.cumsum(rises)])
    return prices
