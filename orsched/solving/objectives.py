"""Objectives: what methods minimise or are compared by, and the words for the best one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError, known_names
from orsched.metrics.flat_figures import FIGURES, flat_figures

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orsched.data.instance import Instance


class Share(NamedTuple):
    """A term of a weighted sum: a weight from 0, and the objective that it multiplies."""

    weight: Fraction
    objective: Objective


@dataclass(frozen=True)
class Objective:
    """A figure by which results are compared, or a weighted sum of some of them.

    Attributes:
        name: as it is given, e.g. ``jct_mean``.
        column: name of the figure in rows, e.g. ``jct_mean_s``.
        words: what the best one is called, e.g. ``least mean JCT``.
        largest: whether more is better.
        shares: the terms of a weighted sum; () for a figure.
    """

    name: str
    column: str
    words: str
    largest: bool = False
    shares: tuple[Share, ...] = ()

    @property
    def title(self) -> str:
        """The figure in words, e.g. ``mean JCT``."""
        return "makespan" if self.is_makespan else _TITLES.get(self.name, self.name)

    @property
    def is_makespan(self) -> bool:
        """Whether it is the makespan alone, which every method knows."""
        return self.name == "makespan"

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the figures that it is made of: its own, unless it is a weighted sum."""
        return tuple(share.objective.name for share in self.shares) or (self.name,)

    @property
    def is_linear(self) -> bool:
        """Whether it is a sum of the makespan and times of requests, each times a weight."""
        return all(name in LINEAR for name in self.parts)

    @property
    def is_time(self) -> bool:
        """Whether it is given in seconds."""
        return self.is_linear or (self.column.endswith("_s") and "per_s" not in self.column)

    @property
    def of_due_dates(self) -> bool:
        """Whether the figure exists only where requests have deadlines."""
        return self.name in OF_DUE_DATES

    @property
    def of_limits(self) -> bool:
        """Whether the figure exists only where requests have limits."""
        return self.name in ("slo_attainment", "goodput_per_s")

    def value(self, result: Any) -> float | None:
        """Return the figure of a ``Result``, of a row, or of a schedule's ``results``; times are
        seconds; None where the figure is not defined."""
        if self.shares:
            return _total((share.weight, share.objective.value(result)) for share in self.shares)
        if not isinstance(result, Mapping):
            if self.column == "gap":  # of the objective that the result was made for
                gap: float | None = result.gap
                return gap
            result = result.schedule.results
        if self.column not in result and "makespan_ns" in result:
            return flat_figures(result)[self.column]
        value: float | None = result.get(self.column)
        return value

    def bound(self, bounds: Mapping[str, float]) -> float | None:
        """Return the bound that follows from those on figures, by name; None where one lacks."""
        known = {ALIASES.get(name, name): value for name, value in bounds.items()}
        if self.name == "slo_attainment":
            return known.get(self.name, 1.0)
        if not self.shares:
            return known.get(self.name)
        return _total((s.weight, known.get(s.objective.name)) for s in self.shares if s.weight)

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

    def best_by_information(
        self, results: Sequence[Any], told: Sequence[str] | None = None
    ) -> list[tuple[str, list[int]]]:
        """Return the places of the best results of each class of information, none first. What
        knows more cannot be deployed where that is not known, and competes with its like. ``told``
        are the classes of results that do not say it themselves."""
        classes: dict[str, list[int]] = {}
        for place, each in enumerate(results):
            name = _information(each) if told is None else told[place]
            classes.setdefault(name, []).append(place)
        found = []
        for name in sorted(classes, key=lambda name: _CLASSES.get(name, len(_CLASSES))):
            places = classes[name]
            best = self.best(results[place] for place in places)
            if best:
                found.append((name, [places[number] for number in best]))
        return found


_CLASSES = {"none": 0, "predicted": 1, "clairvoyant": 2}


def _total(terms: Iterable[tuple[Fraction, float | None]]) -> float | None:
    """Return a weighted sum; None where a term lacks."""
    parts = [(float(weight), value) for weight, value in terms]
    if any(value is None for _, value in parts):
        return None
    return sum(weight * value for weight, value in parts if value is not None)


def _information(result: Any) -> str:
    """Return what the method of a result or a row knew of output lengths."""
    row = isinstance(result, Mapping)
    return str(result.get("information") if row else result.schedule.information)


LINEAR = ("makespan", "jct_mean", "ttft_mean", "weighted_jct_mean")
"""Objectives that are sums of times, of which weighted sums can be taken."""

PERCENTILES = {f"{name}_p{percent}": percent for name in ("ttft", "jct") for percent in (50, 99)}
"""Percentiles that have bounds, by name: results are judged by them, and no method seeks them."""

OF_DUE_DATES = ("weighted_tardiness_mean", "lateness_max")
"""Objectives that exist only where requests have deadlines."""

MINIMISED = (*LINEAR, *OF_DUE_DATES, "slo_attainment")
"""Objectives that methods can be made for; of all others only figures are reported."""

ALIASES = {"mean_jct": "jct_mean", "mean_ttft": "ttft_mean"}  # those of bounds and certificates

MOST_DECIMALS, MOST_DIGITS = 9, 9

_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "jct": "JCT"}
_WORDS = {
    "makespan": "shortest",
    "weighted_jct_mean": "least weighted mean JCT",
    "weighted_tardiness_mean": "least weighted mean tardiness",
    "lateness_max": "least maximum lateness",
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
    **{f"itl_{figure}": f"least {figure} ITL" for figure in ("p50", "p95", "p99")},
    **{f"stall_{figure}": f"least {figure} stall" for figure in ("p50", "p99")},
}
_TITLES = {
    "slo_attainment": "attainment",
    **{
        name: words.partition(" ")[2] for name, words in _WORDS.items() if words.startswith("least")
    },
}
_LARGEST = ("bound", "slo_attainment", "goodput_per_s", "tokens_per_s", "slot_utilization")

OBJECTIVES = {
    name: Objective(name, column, _WORDS[name], name in _LARGEST)
    for column in FIGURES
    for name in (column if column.endswith("_per_s") else column.removesuffix("_s"),)
}  # all objectives by name: the figures of rows, without the unit of times


def objective_named(name: str | Objective, known: Iterable[str] = OBJECTIVES) -> Objective:
    """Return the objective of a name, as ``jct_mean`` or as rows have it, ``jct_mean_s``.
    ``mean_jct`` and ``mean_ttft``, the names of bounds, are understood, and weighted sums of times:
    ``0.3*makespan+0.7*jct_mean``. Raises ``InputError`` for an unknown name, with the nearest of
    the ``known`` ones, and for weights that are none."""
    if isinstance(name, Objective):
        return name
    if isinstance(name, str) and ("*" in name or "+" in name):
        return _weighted_sum(name)
    wanted = ALIASES.get(name, name) if isinstance(name, str) else name
    for each in OBJECTIVES.values():
        if wanted in (each.name, each.column):
            return each
    raise InputError(
        f"{name!r:.60} is not an objective",
        field="objective",
        remedy=known_names(name, (*known, "0.5*makespan+0.5*jct_mean")),
    )


def minimised(name: str | Objective) -> Objective:
    """Return the objective of a name if a method can be asked for it, or judged by a bound on it;
    else raise ``InputError``."""
    found = objective_named(name, MINIMISED)
    if not found.shares and found.name not in (*MINIMISED, *PERCENTILES):
        raise InputError(
            f"{found.name} is reported and compared, but no method is made for it",
            field="objective",
            remedy=f"one of {', '.join(MINIMISED)}, or a weighted sum of the times among them",
        )
    return found


def other_name(name: str) -> str:
    """Return how bounds name an objective: ``mean_jct`` for ``jct_mean``; other names stay."""
    return next((other for other, own in ALIASES.items() if own == name), name)


def named_as_bounds(objective: Objective) -> tuple[str, ...]:
    """Return the parts of an objective by the names of bounds: ``mean_jct``, ``mean_ttft``, ...;
    all but the makespan."""
    bounded = (*MINIMISED[1:], *PERCENTILES)
    return tuple(other_name(name) for name in bounded if name in objective.parts)


_TERM = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*\*\s*([a-z0-9_]+)\s*")


def _weighted_sum(text: str) -> Objective:
    """Return the objective of a text such as ``0.3*makespan+0.7*jct_mean``."""
    example = "write weights from 0 before names, such as 0.3*makespan+0.7*jct_mean"
    shares: list[Share] = []
    for term in text.split("+"):
        match = _TERM.fullmatch(term) if len(term) < 200 else None
        if match is None:
            raise InputError(
                f"{term.strip()!r:.60} is not a term of a weighted sum",
                field="objective",
                remedy=example,
            )
        figure = objective_named(match[2])
        if figure.name not in LINEAR:
            raise InputError(
                f"{figure.name} has no place in a weighted sum of times",
                field="objective",
                remedy=f"terms are times: {', '.join(LINEAR)}",
            )
        if figure in (share.objective for share in shares):
            raise InputError(
                f"{figure.name} appears twice", field="objective", remedy="add its weights up"
            )
        shares.append(Share(_weight(match[1]), figure))
    if not any(share.weight for share in shares):
        raise InputError("all weights are 0", field="objective", remedy=example)
    return weighted_sum(shares)


def weighted_sum(shares: Iterable[tuple[Fraction, Objective]]) -> Objective:
    """Return the weighted sum of objectives that are sums of times, with decimal weights."""
    terms = tuple(Share(weight, objective) for weight, objective in shares)
    name = "+".join(f"{_decimal(term.weight)}*{term.objective.name}" for term in terms)
    return Objective(name, name, f"least {name}", shares=terms)


def _weight(text: str) -> Fraction:
    whole, _, decimals = text.partition(".")
    if len(whole.lstrip("0")) > MOST_DIGITS or len(decimals.rstrip("0")) > MOST_DECIMALS:
        raise InputError(
            f"the weight {text} has too many digits",
            field="objective",
            remedy=f"at most {MOST_DIGITS} before the point and {MOST_DECIMALS} behind it",
        )
    return Fraction(f"{whole or 0}.{decimals or 0}")


def _decimal(weight: Fraction) -> str:
    """Return a weight as it is written, without zeros that say nothing."""
    whole, rest = divmod(weight * 10**MOST_DECIMALS, 10**MOST_DECIMALS)
    return f"{whole}.{int(rest):0{MOST_DECIMALS}d}".rstrip("0").rstrip(".")


MAKESPAN = OBJECTIVES["makespan"]


def fitting_objective(instance: Instance, results: Sequence[Any]) -> Objective:
    """Return the objective by which results on an instance are best compared: with limits (an SLO,
    or those of classes) the attainment, or the mean JCT where several results attain them equally;
    without, the makespan where all requests arrive together and the mean JCT where they do not:
    then the makespan is mostly that of the last arrival. Results are those of ``solve``, rows, or
    what schedules report."""
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
    if instance.arrivals_follow:
        return True
    return len(arrivals) > 0 and int(arrivals.max()) > int(arrivals.min())


def arrivals_decide(instance: Instance, makespan_ns: int) -> bool:
    """Return whether a makespan is the last arrival's: at most 5 % of it come after. Then no method
    can end more than 5 % sooner, and makespans tell little about methods."""
    last = int(instance.requests.arrival_ns.max(initial=0))
    return last > 0 and 20 * (makespan_ns - last) <= makespan_ns
