"""Bounds and their certificates: each claim is recomputed from the instance and the choices made.

This is done by the kernel, ``orsched.certificates``, as when the bound was made, without any search
of ``models`` (docs/bounds.md).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orsched.certificates.aggregate_machine import read_shares
from orsched.certificates.aggregation import Charged, Workers
from orsched.certificates.budget import DEFAULT_BUDGET, Budget
from orsched.certificates.context import Context
from orsched.certificates.fields import require_bound
from orsched.certificates.pools import pools
from orsched.certificates.prefix_sharing import FOR_ALL, without_cache
from orsched.certificates.scope import Scope, schedules_of
from orsched.certificates.stages_rounds import stages_and_rounds
from orsched.certificates.step_lower_bounds import own_rounds_ns
from orsched.certificates.windows import joint_ns
from orsched.checker.malformed import proving
from orsched.data.schedule_classes import FEATURES, class_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.data.instance import Instance
    from orsched.metrics.timeline import Timeline


_PROVEN = "_proven"  # beside the fields of an instance, which never change


@proving
def certificate_violations(
    instance: Instance, bound: dict[str, Any], budget: int | None = DEFAULT_BUDGET
) -> list[str]:
    """Return what is wrong with a bound's certificate; an empty list means it is proven.

    The bound that was proven last for this very instance is not derived again: a solver's is proven
    when it is found, and once more in the check of the schedule that it stands beside.

    ``budget``: cells of tables that may be filled to verify it; None: any number.
    """
    require_bound(bound)
    text = _text(bound) if budget == DEFAULT_BUDGET else None
    if text is not None and vars(instance).get(_PROVEN) == text:
        return []
    problem, claim = without_cache(instance, bound["certificate"])
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
        return [f"the bound {kind!r} does not know of links, or that there are none"]
    if len(instance.workers) > 1 and kind not in ("empty", "last_arrival", "charged", "pools"):
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


def _pools(context: Context, certificate: dict[str, Any], budget: Budget) -> dict[str, Any]:
    return pools(context, certificate["released_ns"], certificate["workers"])


_KINDS: dict[str, Callable[[Context, dict[str, Any], Budget], dict[str, Any]]] = {
    "charged": _charged,
    "empty": _empty,
    "joint": _joint,
    "last_arrival": _last_arrival,
    "longest_request": _longest_request,
    "pools": _pools,
    "stages_and_rounds": _counted,
}


def inapplicable(reading: Timeline, bound: dict[str, Any]) -> list[str]:
    """Return what a schedule does that its bound does not allow; each is a fault of the bound."""
    holds = schedules_of(bound["certificate"]).features
    does = class_of(reading.instance, reading.schedule).features
    return [
        f"the schedule has {words}, for which the bound is not proven"
        for name, words in FEATURES.items()
        if name in does - holds
    ]
