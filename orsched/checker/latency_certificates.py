"""Re-derivation of bounds on mean JCT and mean TTFT in integers.

The certificate chooses: which relaxation, how stages and rounds are shared, and a line below all
stages. The choices are checked here, and all that follows from them is computed anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.certificates.aggregate_machine import Shares, any_shares, read_shares
from orsched.certificates.aggregation import Workers
from orsched.certificates.budget import DEFAULT_BUDGET, Budget
from orsched.certificates.context import Context
from orsched.certificates.fields import require_bound
from orsched.certificates.pools import alone_ns
from orsched.certificates.prefix_sharing import without_cache
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
from orsched.certificates.scope import Scope
from orsched.certificates.shared_rounds import WINDOW_FIELDS, shared_rounds
from orsched.certificates.single_machine import least_sum
from orsched.checker.certificates import certificate_violations
from orsched.checker.malformed import proving

if TYPE_CHECKING:
    from orsched.data.instance import Instance


@proving
def bound_violations(
    instance: Instance,
    bound: dict[str, Any],
    objective: str = "makespan",
    budget: int | None = DEFAULT_BUDGET,
) -> list[str]:
    """Return what is wrong with a bound on an objective; an empty list means it is proven.

    ``budget``: cells of tables that may be filled to verify it; None: any number.
    """
    if objective == "makespan" or len(instance) == 0:
        return certificate_violations(instance, bound, budget)
    if objective not in KINDS.values():
        return [f"there are no bounds on {objective!r}"]
    require_bound(bound, objective)
    problem, claim = without_cache(instance, bound["certificate"])
    claims = {"name": bound["name"], **claim}
    context = Context(problem, Scope.read(claim, problem))
    expected = _derive(context, claim, objective, Budget(budget))
    expected["name"] = expected["bound"]
    found = [
        f"{name} is {claims.get(name)!r}, re-derived {value!r}"
        for name, value in expected.items()
        if claims.get(name) != value
    ]
    found += [f"unknown field {name!r}" for name in claims if name not in expected]
    if bound["value_ns"] != expected["value_ns"]:
        found.append(f"value_ns is {bound['value_ns']}, re-derived {expected['value_ns']}")
    return found


def _derive(
    context: Context, claim: dict[str, Any], objective: str, budget: Budget
) -> dict[str, Any]:
    kind, instance, choices = claim["bound"], context.instance, dict[str, Any]()
    if instance.link is not None and kind not in ("arrivals", "alone"):
        raise ValueError("this bound on means knows of no links")
    if kind == "arrivals":
        total = 0
    elif kind == "alone":
        total = _alone_sum(context, objective)
    elif kind == "shared_rounds":
        if objective != "mean_jct":
            raise ValueError("shared rounds bound the mean of the ends alone")
        choices = {name: claim[name] for name in WINDOW_FIELDS}
        total = shared_rounds(context, claim, budget)
    elif kind in KINDS:
        choices = {"workers": claim["workers"], **Choices.read(claim).stated(kind)}
        total = _by_ranks(context, claim, objective, budget)
    elif (objective == WEIGHTED) != (kind == "weighted_busy"):
        raise ValueError(f"{kind} bounds another objective")
    else:
        choices = {"workers": claim["workers"]}
        total = _total(context, claim["workers"], kind, objective == "mean_ttft")
    head = {"bound": kind, "objective": objective, **context.scope.stated(), **choices}
    return {**head, "sum_ns": total, "value_ns": total // counted(instance, objective)}


def _alone_sum(context: Context, objective: str) -> int:
    """Sum over the requests of their least times alone, by their weights where these count."""
    until_first = objective == "mean_ttft"
    if context.instance.link is not None:
        return weighted_sum(context.instance, objective, alone_ns(context, until_first))
    workers = Workers.of(context, any_shares(context), until_first)
    alone = workers.machine([1] * len(workers.parts)).alone_ns
    return weighted_sum(context.instance, objective, alone)


def _total(context: Context, choices: list[dict[str, Any]], kind: str, until_first: bool) -> int:
    """Sum over the requests that a bound by charges proves."""
    weights, shares = [choice["weight"] for choice in choices], read_shares(context, choices)
    machine = Workers.of(context, shares, until_first).machine(weights)
    if kind == "weighted_busy":
        return weighted_busy(context.instance, machine)
    if kind in ("ranked", "mean_busy"):
        return least_sum(kind, machine)
    if not until_first or context.scope.restarts:
        raise ValueError("queues bound first tokens only, and with restarts nobody waits for ends")
    ends = Workers.of(context, shares)
    return least_sum(kind, machine, ends.machine(weights), ends.clients)


def _by_ranks(context: Context, claim: dict[str, Any], objective: str, budget: Budget) -> int:
    """Sum over the requests of one worker that a bound by ranks proves."""
    kind, listed, instance = claim["bound"], claim["workers"], context.instance
    if KINDS[kind] != objective:
        raise ValueError(f"{kind} bounds {KINDS[kind]}")
    if context.scope.restarts and objective == "mean_ttft":
        raise ValueError("with restarts nobody waits for ends")
    if [(each["worker"], each["weight"]) for each in listed] != [(0, 1)]:
        raise ValueError("ranks are of one worker, of weight 1")
    chosen = Choices.read(claim)
    weights = weights_of(instance, chosen.grain) if objective == WEIGHTED else None
    work = work_of(context, Shares.read(listed[0]), weights)
    return least_sum_by_ranks(kind, instance, work, chosen, budget)
