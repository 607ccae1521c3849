"""What an objective asks of a run: a method that can, limits to attain, bounds before and after."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.metrics.objective_values import objective_value, weighted_times
from orsched.metrics.summary import summarise
from orsched.solving.methods import objectives_of
from orsched.solving.objectives import ALIASES, Objective, named_as_bounds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.slo import SLO
    from orsched.models.bounds.bounds import Bound
    from orsched.solving.methods import Method


def require_defined(instance: Instance, objective: Objective, slo: SLO | None) -> None:
    """Refuse an objective that is not defined: no limits to attain, or weights that are all 0."""
    if objective.is_linear:
        if len(instance) and not objective.is_makespan:
            weighted_times(instance, objective)  # refuses weights that are all 0
        return
    limited = any(kind.ttft_ns is not None or kind.tpot_ns is not None for kind in instance.classes)
    if slo is None and not limited:
        raise InputError(
            f"{objective.name} without limits",
            field="objective",
            remedy="give an SLO (slo=SLO(ttft_s=2), --slo-ttft 2), or classes with limits",
        )


def minimises(method: Method, objective: Objective) -> bool:
    """Return whether a method takes an objective: policies take any, those that plan theirs."""
    able = objectives_of(method)
    return getattr(method, "live", False) or all(name in able for name in objective.parts)


def require_minimised(method: Method, objective: Objective) -> None:
    """Refuse an objective that a method which plans cannot minimise; policies take any."""
    if minimises(method, objective):
        return
    raise InputError(
        f"{method.name} minimises {', '.join(objectives_of(method))}, not {objective.name}",
        field="objective",
        remedy=f"methods that do: {', '.join(_able(objective))}; policies take any",
    )


def ignored(method: Method, objective: Objective) -> list[str]:
    """Return the remark that a policy goes by its own rule, whatever the objective."""
    able = objectives_of(method)
    if objective.is_makespan or not getattr(method, "live", False):
        return []
    if all(name in able for name in objective.parts):
        return []
    return [f"{method.name} decides by its own rule: it does not search for {objective.name}"]


def _able(objective: Objective) -> list[str]:
    """Return the names of the methods that say they minimise an objective."""
    from orsched.common.registry import names, resolve

    methods = ((name, resolve("methods", name)) for name in names("methods"))
    return [
        name
        for name, method in methods
        if not getattr(method, "live", False)
        and all(part in objectives_of(method) for part in objective.parts)
    ]


def bound_before(instance: Instance, name: str, seconds_left: float = math.inf) -> Bound:
    """Return the best bound, of the objective of a name, found in a tenth of the time left.

    Prompts longer than any prefill step: one that holds for schedules that split them.
    """
    from orsched.models.bounds.bounds import bound

    share = None if seconds_left == math.inf else max(1e-3, seconds_left / 10)
    return bound(instance, name, share, ["chunks"] if instance.needs_chunks else [])


def bounds_before(
    instance: Instance, objective: Objective, seconds_left: float = math.inf
) -> dict[str, Bound]:
    """Return the bounds on the means that an objective is made of, by the names that bounds have.

    They are found in a tenth of the time left, all together.
    """
    wanted = named_as_bounds(objective) if len(instance) else ()
    return {name: bound_before(instance, name, seconds_left / len(wanted)) for name in wanted}


def bound_of(objective: Objective, makespan: Bound | None, means: dict[str, Bound]) -> int | None:
    """Return the bound on an objective in whole nanoseconds; None where one of its parts lacks."""
    bounds = means if makespan is None else {"makespan": makespan, **means}
    known = {ALIASES.get(name, name): each.value_ns for name, each in bounds.items()}
    terms = [(share.weight, share.objective.name) for share in objective.shares]
    total = Fraction(0)
    for weight, name in terms or [(Fraction(1), objective.name)]:
        if weight == 0:
            continue
        if name not in known:
            return None
        total += weight * known[name]
    return math.floor(total)


def bounds_after(
    instance: Instance,
    schedule: Schedule,
    objective: Objective,
    before: dict[str, Bound],
    further: Iterable[str],
    seconds: float | None,
) -> dict[str, dict[str, Any]]:
    """Return proven bounds on means that hold for what a schedule does, as ``mean_bounds`` does.

    Those of the objective from before it was made, where they hold for it, and ``further`` ones,
    for all of which there are so many seconds.
    """
    from orsched.data.schedule_classes import allowances_of
    from orsched.models.bounds.mean_bounds import mean_bounds

    holding = before if not allowances_of(instance, schedule) else {}
    asked = dict.fromkeys([*before, *further])
    missing = [name for name in asked if name not in holding]
    share = None if seconds is None else seconds / max(1, len(missing))
    found = mean_bounds(instance, schedule, missing, share) if missing else {}
    every = {name: each.to_dict() for name, each in holding.items()} | found
    return {name: every[name] for name in asked if name in every}


def is_better(
    instance: Instance, one: Schedule, other: Schedule, objective: Objective, slo: SLO | None = None
) -> bool:
    """Return whether a complete schedule has a better value of an objective than another."""
    if objective.is_linear:
        a, b = (objective_value(instance, each, objective) for each in (one, other))
        return a is not None and b is not None and a < b
    values = (objective.value(summarise(instance, each, slo)) for each in (one, other))
    return objective.better(*values)
