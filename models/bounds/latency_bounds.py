"""Lower bounds on the sums of completion times: mean JCT and mean TTFT, with certificates.

Four relaxations, each exact in integers (docs/proofs.md has the proofs). A request cannot end
before it would if served alone where it is fastest. All workers are one machine
(``aggregate_machine``): what all requests are charged is a preemptive schedule of one machine,
where shortest remaining time first is optimal. On one worker each step is paid by the requests that
have not ended, by their rank (``rank_bounds``). And requests that are there together share rounds
and are held up by later prefills (``shared_rounds``, JCT with arrivals)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.charges import Shares
from orsched.certificates.fields import Budget
from orsched.certificates.one_machine import Workers, least_sum
from orsched.certificates.pools import alone_ns
from orsched.certificates.rank_costs import (
    KINDS,
    WEIGHTED,
    Choices,
    counted,
    least_sum_by_ranks,
    weighted_busy,
    weighted_sum,
    weights_of,
    work_of,
)
from orsched.models.bounds.makespan_certificates import balanced_weights, best_shares, stated
from orsched.models.bounds.shared_rounds_bound import shared_rounds_choices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orsched.certificates.context import Context
    from orsched.certificates.rank_costs import Work


MOST_REQUESTS = 10_000
MOST_RANKS, MOST_CELLS = 20_000, 20_000_000
_FEW = 500
_QUANTILES, _SMOOTH = (0.5, 0.35, 0.65), (5, 0, 1, 20)


def rank_certificates(
    context: Context, objective: str, out_of_time: Callable[[], bool]
) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield kind, bound on the sum and choices of bounds by ranks; none where they do not apply.
    They are of one worker; of first tokens only without restarts. A stage's fixed time is shared by
    clients, and by the cap where there is one. The level is each of a few that are in the middle of
    the requests, and prices are averaged over few ranks or many (among more than ``_FEW`` requests,
    one of each is tried). Above ``MOST_REQUESTS`` requests there are none: their tables grow with
    the square."""
    kind = next(name for name, known in KINDS.items() if known == objective)
    instance, scope = context.instance, context.scope
    one = len(instance.workers) == 1 and instance.link is None
    if not one or (scope.restarts and objective == "mean_ttft"):
        return
    if len(instance) > MOST_REQUESTS:
        return
    (best,) = best_shares(context).values()
    grain, weights = 1, None
    if objective == WEIGHTED:
        each = weights_of(instance)
        common, most = int(np.gcd.reduce(each)), min(MOST_RANKS, MOST_CELLS // len(instance))
        grain = max(common, -(-sum(each.tolist()) // most))
        weights = weights_of(instance, grain)
    one_made = False  # of few requests the first is made, whatever the time
    shares = ["clients"] if instance.worker.prefill_limit is None else ["clients", "cap"]
    for share in shares:
        chosen = Shares(share, "clients", best.line, best.step)
        work = work_of(context, chosen, weights)
        for level in _levels(kind, work):
            if (one_made or len(work) > _FEW) and out_of_time():
                return
            one_made = True
            for smooth in _SMOOTH if len(work) <= _FEW else _SMOOTH[:1]:
                prices = Choices(level, smooth, grain)
                total = least_sum_by_ranks(kind, instance, work, prices, Budget(None))
                workers = {"workers": stated({0: chosen})}
                yield kind, total, {**scope.stated(), **workers, **prices.stated(kind)}


def _levels(kind: str, work: Work) -> list[int]:
    """Return levels to try: what prefills take, by round for ends."""
    some = work.rounds > 0
    parts, weights = work.stages, np.ones(len(work), np.int64)
    if kind != "queue_ranks":
        if not some.any():
            return [0]
        parts = work.stages[some] // work.rounds[some]
        weights = work.rounds[some]
    tried = _QUANTILES if len(work) <= _FEW else _QUANTILES[:1]
    order = np.argsort(parts, kind="stable")
    done = np.cumsum(weights[order])
    at = [int(np.searchsorted(done, part * done[-1])) for part in tried]
    middle = (int(parts[order[min(k, len(order) - 1)]]) for k in at)
    return list(dict.fromkeys([*middle, 0]))


OBJECTIVES = ("mean_jct", "mean_ttft")
BOUNDED = (*OBJECTIVES, WEIGHTED)


def latency_certificates(
    context: Context, objective: str, out_of_time: Callable[[], bool], enough: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield certificates of lower bounds on a mean, one of ``BOUNDED``, each above the last.

    ``sum_ns`` is the bound on the sum over the requests, ``value_ns`` that sum divided by their
    number, or by all weights, rounded down. Candidates, by name:

    * ``alone``: each request as if served alone;
    * ``ranked``: the k-th end is at least the k-th of requests served alone, and the k-th of
      shortest remaining time first;
    * ``mean_busy``: mean busy times on the machine, and what must lie after them;
      ``weighted_busy`` is that of the weighted mean JCT, in place of both;
    * ``ranks``: what the one that ends j-th from last pays;
    * ``shared_rounds``: of JCT with arrivals, what requests cost each other in windows of time;
    * ``queue``, ``queue_busy``, ``queue_ranks``: of TTFT, the k-th start waits for k - J ends,
      which come as in ``ranked``, by mean busy times, by ranks.

    Cost models without a known floor get ``arrivals``, and so do instances for which there is not
    time enough. With restarts a request may start before the ends that it would have to wait for,
    and there are no queues. The instance is not empty, and each request fits onto a worker.
    """
    best = -1
    for found in candidates(context, objective, out_of_time, enough):
        if found["sum_ns"] > best:
            best = found["sum_ns"]
            yield found


def candidates(
    context: Context, objective: str, out_of_time: Callable[[], bool], enough: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield the certificates of all relaxations, in no order of size; arguments as above."""
    instance, allows = context.instance, context.scope.stated()

    def certificate(name: str, total: int, choices: dict[str, Any]) -> dict[str, Any]:
        value = total // counted(instance, objective)
        head = {"bound": name, "objective": objective}
        return {**head, **choices, "sum_ns": total, "value_ns": value}

    if not (enough and context.has_floors):
        yield certificate("arrivals", 0, {})
        return
    until_first = objective == "mean_ttft"
    if instance.link is not None:
        total = weighted_sum(instance, objective, alone_ns(context, until_first))
        yield certificate("alone", total, allows)
        return
    shares = best_shares(context)
    workers = Workers.of(context, shares)
    first = Workers.of(context, shares, True) if until_first else workers
    alone = first.machine([1] * len(workers.parts)).alone_ns
    yield certificate("alone", weighted_sum(instance, objective, alone), allows)
    for kind, total, choices in rank_certificates(context, objective, out_of_time):
        yield certificate(kind, total, choices)
    for kind, total, weights in _of_machine(objective, out_of_time, workers, first):
        yield certificate(kind, total, {**allows, "workers": workers.choices(weights)})
    if objective == "mean_jct" and context.arrive_over_time:
        found = shared_rounds_choices(context, out_of_time)
        if found is not None:
            yield certificate("shared_rounds", found[0], {**allows, **found[1]})


def _of_machine(
    objective: str, out_of_time: Callable[[], bool], workers: Workers, first: Workers
) -> Iterator[tuple[str, int, list[int]]]:
    """Yield kind, bound on the sum and weights: all workers as one machine, by what is charged.
    Until the ends, and until first tokens."""
    context, ones = workers.context, [1] * len(workers.parts)
    balanced = balanced_weights(workers, None)
    for weights in [ones] if balanced == ones else [balanced, ones]:
        if out_of_time():
            return
        machine = first.machine(weights)
        if objective == WEIGHTED:
            yield "weighted_busy", weighted_busy(context.instance, machine), weights
            continue
        for kind in ("ranked", "mean_busy"):
            yield kind, least_sum(kind, machine), weights
        if objective == "mean_ttft" and not context.scope.restarts and not out_of_time():
            whole = workers.machine(weights)
            for kind in ("queue", "queue_busy"):
                yield kind, least_sum(kind, machine, whole, workers.clients), weights
