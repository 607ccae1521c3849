"""Lower bounds on weighted mean tardiness and maximum lateness: those of some of the requests.

Which requests: for lateness, those due by a moment and released at or after another; for tardiness,
those that would be late by some amount alone, or early by less (``orsched.checker.due_bounds``).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.checker.due_bounds import Due, inner_objective, parts_hold
from orsched.metrics.objective_values import MAX_LATENESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orsched.certificates.context import Context
    from orsched.data.instance import Instance

PARTS = (1.0, 0.75, 0.5, 0.9, 0.3, 0.15, 0.05)
"""Shares of the requests that are tried: those with the least slack, or the first due dates."""


def due_certificates(
    context: Context,
    objective: str,
    prove: Callable[[Instance, str], dict[str, Any]],
    out_of_time: Callable[[], bool],
) -> Iterator[dict[str, Any]]:
    """Yield certificates of lower bounds on tardiness or lateness, each above the last.

    Args:
        context: of the instance, prompts without what a cache may hold.
        objective: ``weighted_tardiness_mean`` or ``lateness_max``.
        prove: returns a bound on an objective of a part of the instance, as in a schedule file.
        out_of_time: asked before each candidate but the first.
    """
    due = Due(context)
    best = due.certificate({"bound": "arrivals", "objective": objective})
    yield best
    if not context.has_floors:
        return
    choices = _late(due) if objective == MAX_LATENESS else _tardy(due)
    if not parts_hold(context.instance):
        choices = islice(choices, 1)  # each request alone
    for choice in choices:
        if out_of_time():
            return
        claim = {"objective": objective, **choice}
        places = due.places(claim)
        if len(places):
            claim["inner"] = prove(due.part(places), inner_objective(objective))
        found = due.certificate(claim)
        if found["value_ns"] > best["value_ns"]:
            best = found
            yield best


def _tardy(due: Due) -> Iterator[dict[str, Any]]:
    """Yield choices for tardiness: nothing together, then those that are late the most."""
    yield {"bound": "tardy"}
    late = np.sort(due.late[due.dates.weights > 0])[::-1]
    for part in PARTS:
        yield {"bound": "tardy", "late_ns": int(late[max(0, round(part * len(late)) - 1)])}


def _late(due: Due) -> Iterator[dict[str, Any]]:
    """Yield choices for lateness: the one that is late the most alone, then the first due dates."""
    yield {"bound": "late"}
    first, dates = int(due.arrivals.min()), np.sort(due.dates.due_ns)
    for part in PARTS:
        moment = int(dates[max(0, round(part * len(dates)) - 1)])
        yield {"bound": "late", "released_ns": first, "due_ns": moment}
