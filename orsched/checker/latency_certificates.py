"""Re-derivation of bounds on mean JCT and mean TTFT in integers.

The certificate chooses: which relaxation, how stages and rounds are shared, and a line below all
stages. The choices are checked here, and all that follows from them is computed anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.certificates.aggregate_machine import machine_of
from orsched.certificates.aggregation import Workers
from orsched.certificates.budget import DEFAULT_BUDGET, Budget
from orsched.certificates.fields import require_bound
from orsched.certificates.jobs import jobs_on
from orsched.certificates.pools import alone_ns
from orsched.certificates.prefix_sharing import without_cache
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
    expected = _derive(problem, claim, objective, Budget(budget))
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
    instance: Instance, claim: dict[str, Any], objective: str, budget: Budget
) -> dict[str, Any]:
    kind, until_first = claim["bound"], objective == "mean_ttft"
    scope, choices = Scope.read(claim, instance), {}
    if instance.link is not None and kind not in ("arrivals", "alone"):
        raise ValueError("this bound on means knows of no links")
    if kind == "arrivals":
        total = 0
    elif kind == "alone":
        total = _alone_sum(instance, objective, scope)
    elif kind == "shared_rounds":
        if objective != "mean_jct":
            raise ValueError("shared rounds bound the mean of the ends alone")
        choices = {name: claim[name] for name in WINDOW_FIELDS}
        total = shared_rounds(instance, scope, claim, budget)
    elif kind in KINDS:
        choices = {"workers": claim["workers"], **Choices.read(claim).stated(kind)}
        total = _by_ranks(instance, claim, objective, scope, budget)
    elif (objective == WEIGHTED) != (kind == "weighted_busy"):
        raise ValueError(f"{kind} bounds another objective")
    else:
        choices = {"workers": claim["workers"]}
        total = _total(instance, claim["workers"], kind, until_first, scope)
    head = {"bound": kind, "objective": objective, **scope.stated(), **choices}
    return {**head, "sum_ns": total, "value_ns": total // counted(instance, objective)}


def _alone_sum(instance: Instance, objective: str, scope: Scope) -> int:
    """Sum over the requests of their least times alone, by their weights where these count."""
    alone = _alone(instance, objective == "mean_ttft", scope)
    weights = weights_of(instance).tolist() if objective == WEIGHTED else [1] * len(alone)
    return sum(w * time for w, time in zip(weights, alone, strict=True))


def _alone(instance: Instance, until_first: bool, scope: Scope) -> list[int]:
    """Least times of requests alone, on which no choice has a bearing."""
    if instance.link is not None:
        return alone_ns(instance, until_first, scope)
    choices = []
    for number, worker in enumerate(instance.workers):
        line = {"line": [0, 0, 1]} if scope.require_floor(worker).by_counts else {}
        if jobs_on(instance, worker, scope.chunks)[0]:
            shares = {"stage_share": "clients", "round_share": "clients"}
            choices.append({"worker": number, **shares, **line})
    parts = Workers.of(instance, choices, scope, until_first).parts
    return machine_of(instance, parts, [1] * len(parts)).alone_ns


def _total(
    instance: Instance, choices: list[dict[str, Any]], kind: str, until_first: bool, scope: Scope
) -> int:
    """Sum over the requests that a bound by charges proves."""
    weights = [choice["weight"] for choice in choices]
    ends = Workers.of(instance, choices, scope)
    first = Workers.of(instance, choices, scope, True) if until_first else ends
    machine = machine_of(instance, first.parts, weights)
    if kind == "weighted_busy":
        return weighted_busy(instance, machine)
    if kind in ("ranked", "mean_busy"):
        return least_sum(kind, machine)
    if not until_first or scope.restarts:
        raise ValueError("queues bound first tokens only, and with restarts nobody waits for ends")
    whole = machine_of(instance, ends.parts, weights)
    return least_sum(kind, machine, whole, ends.clients)


def _by_ranks(
    instance: Instance, claim: dict[str, Any], objective: str, scope: Scope, budget: Budget
) -> int:
    """Sum over the requests of one worker that a bound by ranks proves."""
    kind, listed = claim["bound"], claim["workers"]
    if KINDS[kind] != objective:
        raise ValueError(f"{kind} bounds {KINDS[kind]}")
    if scope.restarts and objective == "mean_ttft":
        raise ValueError("with restarts nobody waits for ends")
    if [(each["worker"], each["weight"]) for each in listed] != [(0, 1)]:
        raise ValueError("ranks are of one worker, of weight 1")
    chosen = Choices.read(claim)
    weights = weights_of(instance, chosen.grain) if objective == WEIGHTED else None
    work = work_of(instance, scope, listed[0], weights)
    return least_sum_by_ranks(kind, instance, work, chosen, budget)
