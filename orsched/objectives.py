"""Objectives: by which figure methods are compared, and the words for the best one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orsched.errors import InputError
from orsched.flat_figures import FIGURES, flat_figures
from orsched.near_names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orsched.instance import Instance


@dataclass(frozen=True)
class Objective:
    """A figure by which results are compared.

    Attributes:
        name: as it is given, e.g. ``jct_mean``.
        column: name of the figure in rows, e.g. ``jct_mean_s``.
        words: what the best one is called, e.g. ``least mean JCT``.
        largest: whether more is better.
    """

    name: str
    column: str
    words: str
    largest: bool = False

    @property
    def of_limits(self) -> bool:
        """Whether the figure exists only where requests have limits."""
        return self.name in ("slo_attainment", "goodput_per_s")

    def value(self, result: Any) -> float | None:
        """Return the figure of a ``Result``, of a row, or of a schedule's ``results``."""
        if not isinstance(result, Mapping):
            result = result.schedule.results
        if self.column not in result and "makespan_ns" in result:
            return flat_figures(result)[self.column]
        value: float | None = result.get(self.column)
        return value

    def better(self, a: float | None, b: float | None) -> bool:
        """Return whether the figure a is better than b; a missing one is never better."""
        if a is None or b is None:
            return a is not None and b is None
        return a > b if self.largest else a < b

    def best(self, results: Iterable[Any]) -> list[int]:
        """Return the places of the best results, all that have the same figure; [] for none."""
        values = [self.value(each) for each in results]
        defined = [value for value in values if value is not None]
        if not defined:
            return []
        top = max(defined) if self.largest else min(defined)
        return [place for place, value in enumerate(values) if value == top]


_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "jct": "JCT"}
_WORDS = {
    "makespan": "shortest",
    "itl_max": "smallest gap between tokens",
    "gap": "smallest gap",
    "bound": "largest bound",
    "slo_attainment": "best attainment",
    "goodput_per_s": "most goodput",
    "tokens_per_s": "most tokens/s",
    "slot_utilization": "best utilization",
    **{f"{name}_mean": f"least mean {word}" for name, word in _NAMES.items()},
    **{
        f"{name}_{figure}": f"least {figure} {word}"
        for name, word in _NAMES.items()
        for figure in ("p50", "p99")
    },
}
_LARGEST = ("bound", "slo_attainment", "goodput_per_s", "tokens_per_s", "slot_utilization")

OBJECTIVES = {
    name: Objective(name, column, _WORDS[name], name in _LARGEST)
    for column in FIGURES
    for name in (column if column.endswith("_per_s") else column.removesuffix("_s"),)
}
"""All objectives by name: the figures of rows, without the unit of times."""


def objective_named(name: str | Objective) -> Objective:
    """Return the objective of a name, as ``jct_mean`` or as rows have it, ``jct_mean_s``.

    Raises ``InputError`` for an unknown name, with the nearest one.
    """
    if isinstance(name, Objective):
        return name
    for each in OBJECTIVES.values():
        if name in (each.name, each.column):
            return each
    raise InputError(
        f"{name!r} is no objective",
        field="objective",
        remedy=did_you_mean(name, OBJECTIVES) or f"known: {', '.join(OBJECTIVES)}",
    )


def fitting_objective(instance: Instance, results: Sequence[Any]) -> Objective:
    """Return the objective by which results on an instance are best compared.

    With limits (an SLO, or those of classes) it is the attainment, or the mean JCT where several
    results attain them alike; without, the makespan where all
    requests arrive together and the mean JCT where they do not: then the makespan is mostly that of
    the last arrival.

    Args:
        instance: the problem.
        results: of ``solve``, or rows, or what schedules report.
    """
    return fitting(results, over_time=arrives_over_time(instance))


def fitting(results: Sequence[Any], *, over_time: bool) -> Objective:
    """Return what ``fitting_objective`` does, told whether requests arrive over time."""
    attainment = OBJECTIVES["slo_attainment"]
    shares = [share for share in map(attainment.value, results) if share is not None]
    if len(shares) == 1 or len(set(shares)) > 1:
        return attainment
    if shares:  # all attain the limits alike
        return OBJECTIVES["jct_mean"]
    return OBJECTIVES["jct_mean" if over_time else "makespan"]


def arrives_over_time(instance: Instance) -> bool:
    """Return whether the requests do not all arrive at once."""
    arrivals = instance.requests.arrival_ns
    return len(arrivals) > 0 and int(arrivals.max()) > int(arrivals.min())


def arrivals_decide(instance: Instance, makespan_ns: int) -> bool:
    """Return whether a makespan is the last arrival's: at most 5 % of it come after.

    Then no method can end more than 5 % sooner, and makespans tell little about methods.
    """
    last = int(instance.requests.arrival_ns.max(initial=0))
    return last > 0 and 20 * (makespan_ns - last) <= makespan_ns
