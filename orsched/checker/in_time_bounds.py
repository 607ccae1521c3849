"""Lower bounds on percentiles of latencies, and on how many requests miss their limits.

Fewer than the k-th of all requests have a latency below a value: so the k-th smallest latency is at
least that. And of the requests with limits all that cannot be in time miss theirs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.charges import read_shares
from orsched.certificates.in_time import FIELDS, most_in_time, needs_of
from orsched.common.units import NEVER, NS_PER_S
from orsched.metrics.class_metrics import request_limits
from orsched.solving.objectives import PERCENTILES

if TYPE_CHECKING:
    from orsched.certificates.context import Context
    from orsched.certificates.fields import Budget
    from orsched.certificates.in_time import Needs
    from orsched.data.instance import Instance

ATTAINMENT = "slo_attainment"
IN_TIME = (*PERCENTILES, ATTAINMENT)
"""The objectives that are bounded here."""


def within(needs: Needs, objective: str, limit_ns: int) -> Needs:
    """Return needs with a limit on the latency of which an objective is a percentile."""
    limit = np.minimum(needs.arrivals + limit_ns, NEVER)
    of_first = objective.startswith("ttft")
    return replace(needs, **{"first_due" if of_first else "due": limit})


def judged(instance: Instance, needs: Needs) -> Needs:
    """Return the needs of the requests that have limits; ``ValueError`` where none has."""
    limits = request_limits(instance, None)
    rows = limits.judged
    if not len(rows):
        raise ValueError("no request has limits on its TTFT or TPOT")
    first, decode = limits.ttft_ns[rows], limits.decode_ns[rows]
    first_due = np.where(first < 0, NEVER, needs.arrivals[rows] + np.minimum(first, NEVER // 4))
    last = np.where((first < 0) | (decode < 0), NEVER, first_due + np.minimum(decode, NEVER // 4))
    taken = {name: column[rows] for name, column in vars(needs).items() if name != "clients"}
    return replace(needs, **{**taken, "first_due": first_due, "due": last})


def rank_of(objective: str, count: int) -> int:
    """Return which of so many latencies, from 1 for the smallest, a percentile is."""
    return -(-PERCENTILES[objective] * count // 100)


def in_time(
    context: Context, claim: dict[str, Any], budget: Budget | None = None
) -> dict[str, Any]:
    """Return the certificate that follows from what a claim chooses."""
    kind, objective = claim["bound"], claim["objective"]
    if kind == "arrivals":
        return {"bound": kind, "objective": objective, "value_ns": 0}
    workers = claim["workers"]
    shares, weights = read_shares(context, workers), [choice["weight"] for choice in workers]
    needs = needs_of(context, shares, weights)
    found = {"bound": kind, "objective": objective, **context.scope.stated(), "workers": workers}
    found |= {name: claim[name] for name in FIELDS}
    if objective == ATTAINMENT:
        needs = judged(context.instance, needs)
        count = len(needs.arrivals)
        missed = count - min(count, most_in_time(needs, claim, budget))
        share = {"requests": count, "missed": missed, "value_ns": missed * NS_PER_S // count}
        return {**found, **share}
    late = within(needs, objective, claim["value_ns"] - 1)
    few = most_in_time(late, claim, budget) < rank_of(objective, len(needs.arrivals))
    return {**found, "value_ns": claim["value_ns"] if few else 0}
