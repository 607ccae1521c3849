"""Lower bounds on the sums of completion times: mean JCT and mean TTFT, with certificates.

Four relaxations, each exact in integers (docs/bounds.md has the proofs). A request cannot end
before it would if served alone where it is fastest. All workers are one machine
(``aggregate_machine``): what all requests are charged is a preemptive schedule of one
machine, where shortest remaining time first is optimal. On one worker each step is paid by
the requests that have not ended, by their rank (``rank_bounds``). And requests that are there
together share rounds and are held up by later prefills (``shared_rounds``, JCT with arrivals).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.aggregate_machine import machine_of
from orsched.certificates.aggregation import Workers
from orsched.certificates.budget import Budget
from orsched.certificates.pools import alone_ns
from orsched.certificates.rank_costs import (
    KINDS,
    WEIGHTED,
    Choices,
    counted,
    least_sum_by_ranks,
    weighted_busy,
    weights_of,
    work_of,
)
from orsched.certificates.scope import PLAIN, Scope
from orsched.certificates.shared_rounds import shared_rounds
from orsched.certificates.single_machine import least_sum
from orsched.models.bounds.aggregation_bound import balanced_weights, choices_of
from orsched.models.bounds.shared_rounds_bound import shared_rounds_choices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orsched.certificates.rank_costs import Work
    from orsched.certificates.scope import Scope
    from orsched.data.instance import Instance


MOST_REQUESTS = 10_000
MOST_RANKS, MOST_CELLS = 20_000, 20_000_000
_FEW = 500
_QUANTILES, _SMOOTH = (0.5, 0.35, 0.65), (5, 0, 1, 20)


def rank_certificates(
    instance: Instance, objective: str, scope: Scope, out_of_time: Callable[[], bool]
) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield kind, bound on the sum and choices of bounds by ranks; none where they do not apply.

    They are of one worker; of first tokens only without restarts.
    A stage's fixed time is shared by clients, and by the cap where there is one. The level is each
    of a few that are in the middle of the requests, and prices are averaged over few ranks or many
    (among more than ``_FEW`` requests, one of each is tried).
    Above ``MOST_REQUESTS`` requests there are none: their tables grow with the square.
    """
    kind = next(name for name, known in KINDS.items() if known == objective)
    one = len(instance.workers) == 1 and instance.link is None
    if not one or (scope.restarts and objective == "mean_ttft"):
        return
    if len(instance) > MOST_REQUESTS:
        return
    (first,) = choices_of(instance, scope)
    grain, weights = 1, None
    if objective == WEIGHTED:
        each = weights_of(instance)
        common, most = int(np.gcd.reduce(each)), min(MOST_RANKS, MOST_CELLS // len(instance))
        grain = max(common, -(-sum(each.tolist()) // most))
        weights = weights_of(instance, grain)
    one_made = False  # of few requests the first is made, whatever the time
    shares = ["clients"] if instance.worker.prefill_limit is None else ["clients", "cap"]
    for share in shares:
        choices = {**first, "stage_share": share, "round_share": "clients"}
        work = work_of(instance, scope, choices, weights)
        for level in _levels(kind, work):
            if (one_made or len(work) > _FEW) and out_of_time():
                return
            one_made = True
            for smooth in _SMOOTH if len(work) <= _FEW else _SMOOTH[:1]:
                chosen = Choices(level, smooth, grain)
                total = least_sum_by_ranks(kind, instance, work, chosen, Budget(None))
                yield kind, total, {**scope.stated(), "workers": [choices], **chosen.stated(kind)}


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
    instance: Instance,
    objective: str,
    out_of_time: Callable[[], bool],
    enough: bool = True,
    scope: Scope = PLAIN,
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
    for found in candidates(instance, objective, out_of_time, enough, scope):
        if found["sum_ns"] > best:
            best = found["sum_ns"]
            yield found


def candidates(
    instance: Instance,
    objective: str,
    out_of_time: Callable[[], bool],
    enough: bool = True,
    scope: Scope = PLAIN,
) -> Iterator[dict[str, Any]]:
    """Yield the certificates of all relaxations, in no order of size; arguments as above."""
    if not (enough and all(scope.has_floor(worker) for worker in instance.workers)):
        yield _certificate(instance, objective, "arrivals", 0, {})
        return
    until_first = objective == "mean_ttft"
    if instance.link is not None:
        total = _sum(instance, objective, alone_ns(instance, until_first, scope))
        yield _certificate(instance, objective, "alone", total, scope.stated())
        return
    chosen = choices_of(instance, scope)
    workers = Workers.of(instance, chosen, scope)
    first = Workers.of(instance, chosen, scope, True) if until_first else workers
    ones = [1] * len(workers.parts)
    alone = machine_of(instance, first.parts, ones).alone_ns
    total = _sum(instance, objective, alone)
    yield _certificate(instance, objective, "alone", total, scope.stated())
    for kind, total, choices in rank_certificates(instance, objective, scope, out_of_time):
        yield _certificate(instance, objective, kind, total, choices)
    yield from _of_machine(instance, objective, out_of_time, scope, workers, first)
    if objective == "mean_jct" and _arrive_over_time(instance):
        claim = shared_rounds_choices(instance, scope, out_of_time)
        if claim is not None:
            total, choices = shared_rounds(instance, scope, claim), {**scope.stated(), **claim}
            yield _certificate(instance, objective, "shared_rounds", total, choices)


def _arrive_over_time(instance: Instance) -> bool:
    arrivals = instance.requests.arrival_ns
    return int(arrivals.max()) > int(arrivals.min())


def _of_machine(
    instance: Instance,
    objective: str,
    out_of_time: Callable[[], bool],
    scope: Scope,
    workers: Workers,
    first: Workers,
) -> Iterator[dict[str, Any]]:
    """Yield certificates by charges: all workers as one machine, until ends or first tokens."""
    ones = [1] * len(workers.parts)
    balanced = balanced_weights(workers, instance, None)
    for weights in [ones] if balanced == ones else [balanced, ones]:
        if out_of_time():
            return
        choices = {**scope.stated(), "workers": workers.choices(weights)}
        machine = machine_of(instance, first.parts, weights)
        if objective == WEIGHTED:
            total = weighted_busy(instance, machine)
            yield _certificate(instance, objective, "weighted_busy", total, choices)
            continue
        for kind in ("ranked", "mean_busy"):
            total = least_sum(kind, machine)
            yield _certificate(instance, objective, kind, total, choices)
        if objective == "mean_ttft" and not scope.restarts and not out_of_time():
            whole = machine_of(instance, workers.parts, weights)
            for kind in ("queue", "queue_busy"):
                total = least_sum(kind, machine, whole, workers.clients)
                yield _certificate(instance, objective, kind, total, choices)


def _sum(instance: Instance, objective: str, times: list[int]) -> int:
    """Return the sum over the requests, by their weights where these count."""
    if objective != WEIGHTED:
        return sum(times)
    return sum(w * time for w, time in zip(weights_of(instance).tolist(), times, strict=True))


def _certificate(
    instance: Instance, objective: str, name: str, total: int, choices: dict[str, Any]
) -> dict[str, Any]:
    value = total // counted(instance, objective)
    return {"bound": name, "objective": objective, **choices, "sum_ns": total, "value_ns": value}
