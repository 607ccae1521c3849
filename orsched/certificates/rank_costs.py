"""What each rank of the requests that have not ended pays: sums of ends of one worker's batches.

A schedule pays each step's time once for every request that has not ended. The one that ends j-th
from last pays ``rounds[j]`` for each of its rounds, such that no step pays more than it costs,
for any requests in it. So no schedule is cheaper than the cheapest way to give requests to ranks
(docs/proofs.md has the proofs), and prices of the ranks bound that from below.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.charges import charges_of, divided
from orsched.certificates.one_machine import mean_busy

if TYPE_CHECKING:
    from orsched.certificates.charges import Shares
    from orsched.certificates.context import Context
    from orsched.certificates.fields import Budget
    from orsched.certificates.one_machine import Machine
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance

WEIGHTED = "weighted_jct_mean"
KINDS = {"ranks": "mean_jct", "queue_ranks": "mean_ttft", "weighted_ranks": WEIGHTED}
"""The bounds that are made here, each with its objective."""
_BITS = 60
_CELLS_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Work:
    """What the steps of a worker take at least, in 2 ** shift / unit nanoseconds.

    Attributes:
        shift: the lowest bits that are left out of all times, so that sums fit into 64 bits.
        clients: most requests in a round.
        round_fixed, round_own: of a round, and of each request in it.
        rounds, stages: of each request, and of its prefill.
        contexts: of each request, over all its rounds, beyond ``round_own``.
        weights: ranks of each request: 1, or more where it counts more.
        again: of each request in a repeated prefill that yields a token; None where none does.
    """

    unit: int
    shift: int
    clients: int
    round_fixed: int
    round_own: int
    rounds: IntColumn
    stages: IntColumn
    contexts: IntColumn
    weights: IntColumn
    again: int | None

    def __len__(self) -> int:
        return len(self.rounds)


@dataclass(frozen=True)
class Choices:
    """What a certificate chooses; whatever that is, a bound is proven.

    ``level``: of a prefill what counts with the rounds (JCT, for each round) or by itself (TTFT).
    ``smooth``: ranks on each side over which prices are averaged. Weights count in multiples of
    ``grain``, rounded down.
    """

    level: int
    smooth: int
    grain: int = 1

    @classmethod
    def read(cls, claim: dict[str, Any]) -> Choices:
        """Return the choices of a certificate."""
        return cls(claim["level"], claim["smooth"], claim.get("grain", 1))

    def stated(self, kind: str) -> dict[str, int]:
        """Return the fields of a certificate."""
        found = {"level": self.level, "smooth": self.smooth}
        return {**found, "grain": self.grain} if KINDS[kind] == WEIGHTED else found


def work_of(context: Context, shares: Shares, weights: IntColumn | None = None) -> Work:
    """Return what one worker's steps take, with a stage's fixed time shared as chosen.

    Requests of weight 0 are left out: steps take no less for them. Raises ``ValueError`` for
    several workers or a link, where a step cannot be shared so, or no floor is known.
    """
    instance, scope = context.instance, context.scope
    if len(instance.workers) > 1 or instance.link is not None:
        raise ValueError("ranks are of one worker")
    if shares.round != "clients":
        raise ValueError("rounds are not shared by memory here")
    rows, jobs = context.fit(0)
    if len(rows) < len(instance):
        raise ValueError("a request does not fit onto the worker")
    charges = charges_of(context, 0, shares)
    prompts, rounds = jobs.prompts.tolist(), jobs.rounds.tolist()
    terms, least = charges.terms, min(prompts) + 1
    stages = [each // charges.whole for each in charges.stages]
    repeats = scope.yielding and shares.step is None
    again = _again(context, shares) // charges.whole if repeats else None
    grown = 0 if repeats else terms.context_own
    pairs = zip(prompts, rounds, strict=True)
    contexts = [grown * (d * (p - least) + d * (d + 1) // 2) for p, d in pairs]
    own_ns = terms.round_own + grown * least
    weights = np.ones(len(rows), np.int64) if weights is None else weights
    count, kept = max(len(rows), int(weights.sum())), weights > 0
    most = (terms.round_fixed + own_ns + max(stages)) * (1 + max(rounds)) + max(contexts)
    shift = max(0, (8 * most * count * count).bit_length() - _BITS)
    parts = (rounds, [each >> shift for each in stages], [each >> shift for each in contexts])
    of_rounds, of_stages, of_contexts = (np.array(part, np.int64)[kept] for part in parts)
    return Work(
        unit=terms.unit,
        shift=shift,
        clients=jobs.clients,
        round_fixed=terms.round_fixed >> shift,
        round_own=own_ns >> shift,
        rounds=of_rounds,
        stages=of_stages,
        contexts=of_contexts,
        weights=weights[kept],
        again=None if again is None else again >> shift,
    )


def _again(context: Context, shares: Shares) -> int:
    """Return the least charge of a repeated prefill, with a token more, or of one if cached."""
    jobs, scope = context.fit(0).jobs, context.scope
    tokens = np.ones_like(jobs.prompts) if scope.cached else jobs.prompts + 1
    later, once = replace(jobs, prompts=tokens), replace(scope, yielding=False)
    return min(divided(context, 0, later, once, shares).stages)


def weights_of(instance: Instance, grain: int = 1) -> IntColumn:
    """Return how much each request counts, in multiples of a grain, rounded down."""
    found = instance.requests.weights
    return np.ones(len(instance), np.int64) // grain if found is None else found // grain


def counted(instance: Instance, objective: str) -> int:
    """Return what a sum over the requests is divided by: their number, or all weights."""
    return sum(weights_of(instance).tolist()) if objective == WEIGHTED else len(instance)


def weighted_sum(instance: Instance, objective: str, times: list[int]) -> int:
    """Return the sum over the requests, by their weights where these count."""
    if objective != WEIGHTED:
        return sum(times)
    return sum(w * time for w, time in zip(weights_of(instance).tolist(), times, strict=True))


def weighted_busy(instance: Instance, machine: Machine) -> int:
    """Return what mean busy times prove of the weighted sum of times from arrivals on."""
    weights, arrivals = weights_of(instance).tolist(), machine.arrivals
    waited: int = sum(w * at for w, at in zip(weights, arrivals, strict=True))
    return mean_busy(machine, weights) - waited


def least_sum_by_ranks(
    kind: str, instance: Instance, work: Work, chosen: Choices, budget: Budget
) -> int:
    """Return what the choices prove of the sum over the requests, in nanoseconds, perhaps below 0.

    Requests that arrive later count as if they had been there from the first arrival on.
    """
    if chosen.level > int(work.stages.max(initial=0)):
        raise ValueError("the level is above all prefills")
    if len(work) == 0:
        return 0
    arrivals = instance.requests.arrival_ns.tolist()
    weights = weights_of(instance).tolist() if KINDS[kind] == WEIGHTED else [1] * len(arrivals)
    first = min(arrivals)
    waited: int = sum(w * (first - at) for w, at in zip(weights, arrivals, strict=True))
    if kind == "queue_ranks":
        total = _first_tokens(work, chosen, instance.first_token == "decode", budget)
    else:
        total = _ends(work, chosen, budget) * chosen.grain
    return -(-(total << work.shift) // work.unit) + waited


def _ends(work: Work, chosen: Choices, budget: Budget) -> int:
    """Sum of ends: a step costs its time for each request that has not ended, by its weight.

    Up to ``level`` a round, a prefill counts with the request's rounds, which all come later. What
    a request lacks of that is taken off again, at the last rank beside which its own may be. Where
    repeated prefills yield tokens, a rank pays no more for one than such a prefill takes.
    """
    count = int(work.weights.sum())
    ranks = np.arange(1, count + 1)
    own = work.round_own + chosen.level
    paid = rank_costs(ranks, work.clients, work.round_fixed, own, budget)
    if work.again is not None:
        paid = np.minimum(paid, work.again * ranks)
    spread = chosen.level * work.rounds
    more, less = np.maximum(work.stages - spread, 0), np.maximum(spread - work.stages, 0)
    grows = count == 1 or int(np.diff(paid).min()) >= chosen.level
    beside = np.minimum(ranks + work.clients - 1, count) if grows else np.full(count, count)
    terms = [Term(work.rounds, paid), Term(more + work.contexts, ranks), Term(less, -beside)]
    return least_ranking(terms, work.weights, chosen, budget)


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
    terms = [Term(work.rounds, paid), Term(more + work.contexts, late)]
    ends = least_ranking(terms, work.weights, chosen, budget)
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


def least_ranking(terms: list[Term], weights: IntColumn, chosen: Choices, budget: Budget) -> int:
    """Return the prices of all ranks, and of each request the least that it pays beyond its own.

    A request has as many ranks as its weight, and pays what they do on average. No assignment to
    ranks costs less (weak duality), whatever the prices are.
    """
    requests, count = len(weights), len(terms[0].pays)
    budget.spend(2 * len(terms) * requests * count)
    at_once = max(1, _CELLS_AT_ONCE // count)
    budget.hold(2 * min(requests, at_once) * count)
    prices = _prices(terms, weights, chosen)
    total = int(prices.sum())
    for at in range(0, requests, at_once):
        part = slice(at, at + at_once)
        costs = weights[part, None] * -prices
        for term in terms:
            if term.work.any():
                costs += term.work[part, None] * term.pays
        total += int(costs.min(axis=1).sum())
    return total


def _prices(terms: list[Term], weights: IntColumn, chosen: Choices) -> IntColumn:
    """Price the ranks: along an order of the requests, by what they would pay one rank up."""
    keys = [term.work for term in terms]
    rise = sum(term.work * (term.pays[-1] - term.pays[0]) for term in terms)
    order = np.lexsort((*keys, weights, rise / weights))[::-1]
    holders = np.repeat(np.arange(len(order)), weights[order])
    low = np.maximum(holders[:-1] - chosen.smooth, 0)
    high = np.minimum(holders[1:] + chosen.smooth + 1, len(order))
    shared = _between(low, high, weights[order])
    rises = np.zeros(len(holders) - 1, np.int64)
    for term in terms:
        whole, rest = np.divmod(_between(low, high, term.work[order]), shared)
        steps = np.diff(term.pays)
        rises += whole * steps + rest * steps // shared
    prices: IntColumn = np.concatenate([[0], np.cumsum(rises)])
    return prices


def _between(low: IntColumn, high: IntColumn, column: IntColumn) -> IntColumn:
    """Return the sums of a column's entries from low to below high."""
    sums = np.concatenate([[0], np.cumsum(column)])
    found: IntColumn = sums[high] - sums[low]
    return found
