"""Proven bounds on the mean JCT and the mean TTFT, beside the schedules that they hold for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.data.schedule_classes import allowances_of
from orsched.models.bounds.bounds import bound
from orsched.models.bounds.latency_bounds import OBJECTIVES
from orsched.solving.objectives import other_name

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


def require_objectives(names: object) -> tuple[str, ...]:
    """Return the names of objectives on which bounds are asked for, each once.

    ``makespan``, whose bound is always there, may be among them. Raises ``InputError``.
    """
    known = ("makespan", *OBJECTIVES)
    found = (names,) if isinstance(names, str) else tuple(names)  # type: ignore[arg-type]
    found = tuple(other_name(name) for name in found)
    for name in found:
        if name not in known:
            raise InputError(
                f"there is no bound on {name!r}", field="bounds", remedy=", ".join(known)
            )
    return tuple(name for name in OBJECTIVES if name in found)


def mean_bounds(
    instance: Instance, schedule: Schedule, objectives: Iterable[str], time_limit: float | None
) -> dict[str, dict[str, Any]]:
    """Return a proven bound on each objective that holds for what the schedule does.

    By objective, each with ``name``, ``value_ns`` and ``certificate``, as in a schedule file.
    Nothing on an empty instance.

    Args:
        instance, schedule: the problem and a valid schedule.
        objectives: names from ``require_objectives``.
        time_limit: seconds for each.
    """
    if len(instance) == 0:
        return {}
    allows = allowances_of(instance, schedule)
    kinds = tuple(type(worker.cost) for worker in instance.workers)  # one file may fit several
    found = {}
    for objective in objectives:
        key = (instance.sha256, kinds, objective, allows)
        if time_limit is not None:
            found[objective] = bound(instance, objective, time_limit, allows).to_dict()
            continue
        if key not in _KEPT:
            _KEPT[key] = bound(instance, objective, None, allows).to_dict()
            if len(_KEPT) > _MOST_KEPT:
                del _KEPT[next(iter(_KEPT))]
        found[objective] = _KEPT[key]
    return found


_KEPT: dict[tuple[Hashable, ...], dict[str, Any]] = {}
"""Bounds that no clock has cut short: the methods of a comparison share them."""

_MOST_KEPT = 8
