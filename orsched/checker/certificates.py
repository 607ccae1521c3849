"""Bounds and their certificates: each claim is recomputed from the instance and the choices made.

This is done by the kernel, ``orsched.certificates``, as when the bound was made, without any search
of ``models`` (docs/proofs.md): bounds on the makespan, on means, on bulk work and on packings.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from orsched.certificates.bulk_program import BulkProgram, Question
from orsched.certificates.charges import Shares, any_shares, read_shares
from orsched.certificates.context import Context
from orsched.certificates.fields import (
    Budget,
    BudgetError,
    require_bound,
    require_bulk,
    require_packing,
)
from orsched.certificates.fleet_prices import fleet_prices
from orsched.certificates.follows import OF_ANY_ARRIVALS, loosened
from orsched.certificates.kv_volume import kv_volume
from orsched.certificates.one_machine import Charged, Workers, least_sum
from orsched.certificates.packing import proven
from orsched.certificates.pools import alone_ns, pools
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
from orsched.certificates.scope import FOR_ALL, Scope, schedules_of, without_cache
from orsched.certificates.shared_rounds import WINDOW_FIELDS, shared_rounds
from orsched.certificates.stages_rounds import joint_ns, stages_and_rounds
from orsched.certificates.step_lower_bounds import own_rounds_ns
from orsched.checker.due_bounds import DUE, IN_TIME, NEEDS_ARRIVALS, Due, in_time, inner_objective
from orsched.checker.violations import proving
from orsched.common.errors import TimeLimitError
from orsched.common.scalars import DEFAULT_BUDGET
from orsched.data.schedule_classes import FEATURES, class_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orsched.data.instance import Instance
    from orsched.metrics.timeline import Timeline


class Packed(Protocol):
    """What is read of a result: ``orsched.models.packing.PackingResult`` has it."""

    @property
    def makespan(self) -> int: ...  # noqa: D102
    @property
    def bound(self) -> int: ...  # noqa: D102
    @property
    def optimal(self) -> bool: ...  # noqa: D102
    @property
    def assignment(self) -> Sequence[int]: ...  # noqa: D102
    @property
    def certificate(self) -> Mapping[str, Any]: ...  # noqa: D102


def packing_violations(
    jobs: Sequence[int], clients: int, result: Packed, budget: int | None = DEFAULT_BUDGET
) -> list[str]:
    """Return what is wrong with a packing result; empty if everything it says is proven.

    ``budget``: cells of tables that may be filled to verify the certificate; None: any number.
    """
    if len(result.assignment) != len(jobs):
        return ["not one client for each job"]
    if not all(type(c) is int and 0 <= c < clients for c in result.assignment):
        return ["a job is on no client"]
    loads: Counter[int] = Counter()
    for job, client in zip(jobs, result.assignment, strict=True):
        loads[client] += int(job)
    found = []
    if type(result.makespan) is not int or max(loads.values(), default=0) != result.makespan:
        found.append("the makespan is not the largest load")
    try:
        require_packing(result.certificate)
        value = proven([int(job) for job in jobs], clients, result.certificate, Budget(budget))
    except BudgetError as error:
        return [*found, str(error)]
    except TimeLimitError:  # the command's deadline, which may ring anywhere
        raise
    except Exception as error:  # whatever is wrong with it, it proves nothing
        return [*found, f"the certificate cannot be read: {error!r}"]
    if type(result.bound) is not int or result.bound > value:
        found.append(f"the certificate proves {value}, not {result.bound!r:.80}")
    if result.optimal != (result.bound == result.makespan):
        found.append("optimal is not what bound and makespan say")
    return found


_PROVEN = "_proven"  # beside the fields of an instance, which never change


@proving
def certificate_violations(
    instance: Instance, bound: dict[str, Any], budget: int | None = DEFAULT_BUDGET
) -> list[str]:
    """Return what is wrong with a bound's certificate; an empty list means it is proven.

    The bound proven last for this very instance is not derived again: a solver's is proven when it
    is found, and in the check of its schedule. ``budget``: as in ``packing_violations``.
    """
    require_bound(bound)
    text = _text(bound) if budget == DEFAULT_BUDGET else None
    if text is not None and vars(instance).get(_PROVEN) == text:
        return []
    problem, claim = without_cache(loosened(instance), bound["certificate"])
    scope = Scope.read(claim.get("one_worker", claim), problem)
    found = _differences(Context(problem, scope), {**bound, "certificate": claim}, Budget(budget))
    if text is not None and not found:
        vars(instance)[_PROVEN] = text
    return found


def _text(bound: dict[str, Any]) -> str | None:
    """Return a bound as text, by which it is recognised; None for what no file can hold."""
    try:
        return json.dumps(bound, sort_keys=True)
    except (TypeError, ValueError):
        return None


def _differences(context: Context, bound: dict[str, Any], budget: Budget) -> list[str]:
    """Return how a bound differs from what its certificate's choices prove."""
    certificate, instance = bound["certificate"], context.instance
    kind = certificate["bound"]
    if (kind == "pools") != (instance.link is not None) and kind not in FOR_ALL:
        return [f"the bound {kind!r} does not hold for these links, or for their absence"]
    if len(instance.workers) > 1 and kind not in _ANY_WORKERS:
        return _several_workers(context, bound, budget)
    if kind not in _KINDS or bound["name"] != kind:
        return [f"unknown bound {bound['name']!r} with certificate {kind!r}"]
    expected = _KINDS[kind](context, certificate, budget)
    found = [
        f"{name} is {certificate.get(name)!r}, re-derived {value!r}"
        for name, value in expected.items()
        if not _equal(certificate.get(name), value)
    ]
    found += [f"unknown field {name!r}" for name in certificate if name not in expected]
    value = expected.get("value_ns", 0)
    if not _equal(bound.get("value_ns"), value):
        found.append(f"value_ns is {bound.get('value_ns')!r}, re-derived {value!r}")
    return found


def _several_workers(context: Context, bound: dict[str, Any], budget: Budget) -> list[str]:
    """Equal workers: no request is faster for more of them, and they share the busy time."""
    if not context.equal:
        return ["the workers are not equal"]
    claim = bound["certificate"]
    if claim["bound"] == "longest_request":
        return _differences(context.one, bound, budget)
    if claim["bound"] != "shared":
        return [f"unknown bound {claim['bound']!r} on several workers"]
    inner, workers = claim["one_worker"], len(context.instance.workers)
    document = {"name": inner["bound"], "value_ns": inner["value_ns"], "certificate": inner}
    found = _differences(context.one, document, budget)
    if found:
        return found
    released = inner["released_ns"]
    value = released + -(-(inner["value_ns"] - released) // workers)
    expected = {"bound": "shared", "workers": workers, "one_worker": inner, "value_ns": value}
    if claim != expected or bound["name"] != "shared":
        found.append(f"the shares of {workers} workers do not follow from the bound on one")
    if not _equal(bound["value_ns"], value) or not _equal(claim["value_ns"], value):
        found.append(f"value_ns is {bound['value_ns']!r}, re-derived {value!r}")
    return found


def _equal(found: object, expected: object) -> bool:
    return type(found) is type(expected) and found == expected


def _empty(context: Context, certificate: dict[str, Any], budget: Budget) -> dict[str, Any]:
    if context.arrivals:
        raise ValueError("the instance has requests")
    return {"bound": "empty"}


def _last_arrival(context: Context, certificate: dict[str, Any], budget: Budget) -> dict[str, Any]:
    return {"bound": "last_arrival", "value_ns": max(context.arrivals)}


def _longest_request(
    context: Context, certificate: dict[str, Any], budget: Budget
) -> dict[str, Any]:
    floor, request, jobs = context.floor(0), certificate["request"], context.jobs
    if request >= len(jobs):
        raise ValueError(f"there is no request {request}")
    prompt, rounds = int(jobs.prompts[request]), int(jobs.rounds[request])
    decode = own_rounds_ns(floor, jobs.clients, int(jobs.prompts.min()), prompt, rounds)
    value = context.arrivals[request] + floor.prefill_ns([prompt]) + decode
    return {"bound": "longest_request", "request": request, "value_ns": value}


def _counted(context: Context, certificate: dict[str, Any], budget: Budget) -> dict[str, Any]:
    claims = certificate["prefill_stages"], certificate["decode_rounds"]
    return stages_and_rounds(context, certificate["released_ns"], *claims, budget)


def _joint(context: Context, certificate: dict[str, Any], budget: Budget) -> dict[str, Any]:
    counted, released = _counted(context, certificate, budget), certificate["released_ns"]
    del counted["prefill_ns"], counted["decode_ns"]
    kept = [name for name in ("long", "prices", "ends") if name in certificate]
    found = counted | {name: certificate[name] for name in kept} | {"bound": "joint"}
    least = joint_ns(context.floor(0), context.released(released), found, budget)
    return found | {"value_ns": released + least}


def _charged(context: Context, certificate: dict[str, Any], budget: Budget) -> dict[str, Any]:
    choices = certificate["workers"]
    workers = Workers.of(context, read_shares(context, choices))
    charged = Charged(workers, [choice["weight"] for choice in choices])
    value = charged.proven(certificate["released_ns"], certificate["value_ns"])
    return certificate | {"value_ns": value}


def _volume(context: Context, certificate: dict[str, Any], budget: Budget) -> dict[str, Any]:
    return kv_volume(context, certificate["released_ns"], certificate["request"])


def _pools(context: Context, certificate: dict[str, Any], budget: Budget) -> dict[str, Any]:
    return pools(context, certificate["released_ns"], certificate["workers"])


_KINDS: dict[str, Callable[[Context, dict[str, Any], Budget], dict[str, Any]]] = {
    "charged": _charged,
    "empty": _empty,
    "fleet_prices": fleet_prices,
    "joint": _joint,
    "kv_volume": _volume,
    "last_arrival": _last_arrival,
    "longest_request": _longest_request,
    "pools": _pools,
    "stages_and_rounds": _counted,
}


_ANY_WORKERS = ("empty", "last_arrival", "charged", "fleet_prices", "kv_volume", "pools")


def inapplicable(reading: Timeline, bound: dict[str, Any]) -> list[str]:
    """Return what a schedule does that its bound does not allow; each is a fault of the bound."""
    holds = schedules_of(bound["certificate"]).features
    does = class_of(reading.instance, reading.schedule).features
    return [
        f"the schedule has {words}, for which the bound is not proven"
        for name, words in FEATURES.items()
        if name in does - holds
    ]


@proving
def bulk_violations(
    instance: Instance, bound: dict[str, Any], budget: int | None = DEFAULT_BUDGET
) -> list[str]:
    """Return what is wrong with a bound on bulk work or attainment; [] means it is proven.

    The program is built again from the instance and the windows, and the prices are multiplied out
    (``Program.proven``). ``budget``: cells of tables that may be filled; None: any number.
    """
    require_bulk(bound)
    certificate = bound["certificate"]
    question = Question.read(instance, certificate)
    program = BulkProgram(instance, question, Budget(budget))
    value = program.proven(map(tuple, certificate["prices"]))
    found = []
    if certificate["value"] != value:
        found.append(f"value is {certificate['value']}, re-derived {value}")
    claimed = value if certificate["bound"] == "bulk" else 0
    if bound["value"] != claimed:
        found.append(f"the bound's value is {bound['value']}, re-derived {claimed}")
    return found


@proving
def bound_violations(
    instance: Instance,
    bound: dict[str, Any],
    objective: str = "makespan",
    budget: int | None = DEFAULT_BUDGET,
) -> list[str]:
    """Return what is wrong with a bound on an objective, proven within the budget; [] if right."""
    if objective == "makespan" or len(instance) == 0:
        return certificate_violations(instance, bound, budget)
    if objective in DUE:
        return _due_violations(instance, bound, objective, budget)
    if objective not in (*KINDS.values(), *IN_TIME):
        return [f"no bound on {objective!r} is known"]
    require_bound(bound, objective)
    problem, claim = without_cache(loosened(instance), bound["certificate"])
    if instance.arrivals_follow and claim["bound"] not in OF_ANY_ARRIVALS:
        return [f"{claim['bound']} needs known arrivals: here they follow from ends"]
    claims = {"name": bound["name"], **claim}
    context = Context(problem, Scope.read(claim, problem))
    derived = in_time if objective in IN_TIME else _derive
    expected = derived(context, {**claim, "objective": objective}, Budget(budget))
    return _named_differences(bound, claims, expected)


def _named_differences(
    bound: dict[str, Any], claims: dict[str, Any], expected: dict[str, Any]
) -> list[str]:
    """Return how a bound and what its certificate says differ from what is derived."""
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


def _due_violations(
    instance: Instance, bound: dict[str, Any], objective: str, budget: int | None
) -> list[str]:
    """Return what is wrong with a bound on tardiness or lateness; [] if right."""
    require_bound(bound, objective)
    problem, claim = without_cache(loosened(instance), bound["certificate"])
    if claim.get("objective", objective) != objective:
        return [f"the certificate is of {claim['objective']}"]
    if instance.arrivals_follow and not NEEDS_ARRIVALS.isdisjoint(claim):
        return ["this bound needs known arrivals: here they follow from ends"]
    context = Context(problem, Scope.read(claim, problem))
    due, inner = Due(context), claim.get("inner")
    if ("late_ns" in claim or "due_ns" in claim) != (inner is not None):
        raise ValueError("an inner bound is on the requests that late_ns or due_ns says")
    if inner is not None:
        part = due.part(due.places(claim))
        found = bound_violations(part, inner, inner_objective(objective), budget)
        if found:
            return [f"of the inner bound, {each}" for each in found]
    return _named_differences(
        bound, {"name": bound["name"], **claim}, due.certificate(claim, Budget(budget))
    )


def _derive(context: Context, claim: dict[str, Any], budget: Budget) -> dict[str, Any]:
    kind, objective = claim["bound"], claim["objective"]
    instance, choices = context.instance, dict[str, Any]()
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
        raise ValueError("queues bound first tokens only, and with restarts none waits for ends")
    ends = Workers.of(context, shares)
    return least_sum(kind, machine, ends.machine(weights), ends.clients)


def _by_ranks(context: Context, claim: dict[str, Any], objective: str, budget: Budget) -> int:
    """Sum over the requests of one worker that a bound by ranks proves."""
    kind, listed, instance = claim["bound"], claim["workers"], context.instance
    if KINDS[kind] != objective:
        raise ValueError(f"{kind} bounds {KINDS[kind]}")
    if context.scope.restarts and objective == "mean_ttft":
        raise ValueError("with restarts none waits for ends")
    if [(each["worker"], each["weight"]) for each in listed] != [(0, 1)]:
        raise ValueError("ranks are of one worker, of weight 1")
    chosen = Choices.read(claim)
    weights = weights_of(instance, chosen.grain) if objective == WEIGHTED else None
    work = work_of(context, Shares.read(listed[0]), weights)
    return least_sum_by_ranks(kind, instance, work, chosen, budget)
