"""Whom requests come from: service classes with limits on latency, tenants that share, groups."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.columns import IntColumn, int_column, shown
from orsched.common.errors import InputError, known_names
from orsched.common.parameters import read_list_of_pairs
from orsched.common.units import MAX_TOKENS, NS_PER_S, seconds_to_ns, time_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike


LABELLED = ("tenant", "group")
"""Columns of numbers that may stand for names, which the column with an ``s`` behind holds."""


def label_column(
    values: ArrayLike | Sequence[str], names: Iterable[str] | None, n: int, field: str
) -> tuple[IntColumn, tuple[str, ...] | None]:
    """Return the numbers of n requests' tenants or groups, and the names that they stand for.

    ``values`` are whole numbers, places in ``names`` where these are given, or texts, which are
    numbered in the order of their first request.
    """
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    if (
        names is None
        and isinstance(listed, (list, tuple))
        and any(isinstance(value, str) for value in listed)
    ):
        return _numbered(listed, n, field)
    texts = None if names is None else _names(names, field)
    remedy = None if texts is None else f"numbers are places in {field}s, from 0"
    column = int_column(
        listed,
        field,
        maximum=MAX_TOKENS if texts is None else len(texts) - 1,
        length=n,
        remedy=remedy,
    )
    return column, texts


def _numbered(values: Sequence[object], n: int, field: str) -> tuple[IntColumn, tuple[str, ...]]:
    places: dict[str, int] = {}
    for row, value in enumerate(values):
        if not isinstance(value, str):
            raise InputError(
                f"{shown(value)} is among names",
                row=row,
                field=field,
                remedy=f"give every {field} a name, or every one a number",
            )
        if value not in places:
            _require_name(value, row, field, field)
            places[value] = len(places)
    column = int_column([places[str(value)] for value in values], field, length=n)
    return column, tuple(places)


def _names(names: Iterable[str], field: str) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, (list, tuple)):
        raise InputError(
            "must be a list of texts", field=f"{field}s", remedy=f"one text per {field}"
        )
    seen: set[str] = set()
    for row, name in enumerate(names):
        _require_name(name, row, f"{field}s", field)
        if name in seen:
            raise InputError(
                f"{name!r} appears twice", row=row, field=f"{field}s", remedy="names are unique"
            )
        seen.add(name)
    return tuple(names)


def _require_name(name: object, row: int, field: str, what: str) -> None:
    """Refuse anything but a name; digits alone would be read as a number in a table."""
    wrong = not isinstance(name, str) or not name or name != name.strip() or name.isdecimal()
    if wrong or "\0" in str(name):  # no table of text holds NUL
        raise InputError(
            f"{shown(name)} is not a name of a {what}",
            row=row,
            field=field,
            remedy="give numbers alone, or texts that are not numbers",
        )


Limits = tuple[int | None, int | None]
"""Limits on TTFT and TPOT in nanoseconds, None where there is none."""


_LIMIT = re.compile(
    r"(?:(.+):)?(ttft|tpot|itl|stall|jct|e2e)_(mean|max|p\d{1,2}(?:\.\d)?)\s*<=\s*(\d[^_]*)"
)


class FigureLimit(NamedTuple):
    """The most that a figure of a whole run may be, such as the 99th percentile of TTFT.

    Attributes:
        metric: ``ttft``, ``tpot``, ``itl`` (all gaps between tokens), ``stall``, ``jct``.
        figure: ``mean``, ``max``, or a nearest-rank percentile such as ``p99.9``.
        service_class: whose requests; None: all that are not bulk.
    """

    metric: str
    figure: str
    limit_ns: int
    service_class: str | None = None

    @property
    def name(self) -> str:
        """The figure with its class: ``itl_p95``, ``chat:ttft_p99``."""
        return f"{self.service_class or ''}:{self.metric}_{self.figure}".removeprefix(":")

    @property
    def share(self) -> Fraction:
        """The share of values that must keep the limit; 0 for a mean."""
        return Fraction({"mean": "0", "max": "100"}.get(self.figure, self.figure[1:])) / 100

    def __str__(self) -> str:
        return f"{self.name}<={(Decimal(self.limit_ns) / NS_PER_S).normalize():f}"


def _read_limits(text: str) -> tuple[FigureLimit, ...]:
    """Return the limits of a text such as ``ttft_p99<=2,chat:itl_p95<=0.05``."""
    found: dict[str, FigureLimit] = {}
    for part in text.split(","):
        try:
            kind, metric, figure, limit = _LIMIT.fullmatch(part.strip()).groups()  # type: ignore
            limit_ns = seconds_to_ns(float(limit), "slo")
            new = FigureLimit("jct" if metric == "e2e" else metric, figure, limit_ns, kind)
            if found.setdefault(new.name, new) is not new or not (new.share or figure == "mean"):
                raise ValueError
        except (AttributeError, ValueError):
            raise InputError(
                f"{shown(part)} is not a limit on a figure of a run, or is given twice",
                field="slo",
                remedy="ttft, tpot, itl, stall or e2e, with mean, max or a percentile, in seconds: "
                "'ttft_p99<=2,itl_p95<=0.05'",
            ) from None
    return tuple(found.values())


@dataclass(frozen=True, init=False)
class SLO:
    """A service-level objective: limits on the TTFT and TPOT of each request, and on figures.

    ``SLO(ttft_s=2, tpot_s=0.05)``; a request of one token keeps each TPOT. Limits on figures
    (``FigureLimit``): ``SLO("ttft_p99<=2,chat:itl_p95<=0.05")``. Any may be left out.

    Attributes:
        ttft_ns, tpot_ns: the limits in whole nanoseconds, None where there is none.
        figures: the limits on figures of the run.

    Raises ``InputError`` if no limit is given, one is given twice, or one is not a time.
    """

    ttft_ns: int | None
    tpot_ns: int | None
    figures: tuple[FigureLimit, ...]

    def __init__(
        self,
        text: str | Iterable[FigureLimit] = (),
        *,
        ttft_s: float | None = None,
        tpot_s: float | None = None,
        ttft_ns: int | None = None,
        tpot_ns: int | None = None,
    ) -> None:
        given = _read_limits(text) if isinstance(text, str) else text
        figures = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        if not all(isinstance(each, FigureLimit) for each in figures):
            raise InputError(
                f"{text!r:.60} is not limits", field="slo", remedy="SLO('ttft_p99<=2')"
            )
        object.__setattr__(self, "figures", figures)
        object.__setattr__(self, "ttft_ns", time_ns(ttft_ns, ttft_s, "slo.ttft"))
        object.__setattr__(self, "tpot_ns", time_ns(tpot_ns, tpot_s, "slo.tpot"))
        if self.limits_ns == (None, None) and not self.figures:
            raise InputError("no limit is given", field="slo", remedy="SLO(ttft_s=2, tpot_s=0.05)")

    @property
    def limits_ns(self) -> Limits:
        """Both limits on each request in nanoseconds."""
        return self.ttft_ns, self.tpot_ns


def require_slo(value: object, classes: Sequence[ServiceClass]) -> None:
    """Raise ``InputError`` for what is neither None nor an SLO of classes of the instance."""
    if value is not None and not isinstance(value, SLO):
        raise InputError(
            f"{value!r} is not an SLO", field="slo", remedy="SLO(ttft_s=2, tpot_s=0.05), or None"
        )
    names = [None, *(kind.name for kind in classes if classes != DEFAULT_CLASSES)]
    for limit in () if value is None else value.figures:
        if limit.service_class not in names:
            known = f"known: {', '.join(map(str, names[1:])) or 'none, the instance has none'}"
            problem = f"unknown class {limit.service_class!r}"
            raise InputError(problem, field="slo", remedy=known)


LIMITS = ("ttft", "tpot", "deadline")
FIELDS = ("name", *(f"{limit}_ns" for limit in LIMITS), "bulk")
MAX_CLASSES = 1_000
"""Most service classes of an instance."""


@dataclass(frozen=True, init=False)
class ServiceClass:
    """A class of requests by name, with the limits that they are to be served within.

    Token i of a request of the class is in time at ``ttft + i * tpot`` after its arrival (i from 0;
    Echo, arXiv 2504.03651), the whole request at ``deadline`` after it. Limits are given in seconds
    and stored in nanoseconds, None where there is none.

    Attributes:
        name: unique among the classes of an instance.
        ttft_ns, tpot_ns: limits on the time to the first token and for each further one.
        deadline_ns: limit on the time from arrival to finish.
        bulk: whether the class is work that fills gaps, measured by its throughput; by default
            every class without limits on TTFT and TPOT but ``interactive``.

    Raises ``InputError`` if the name is empty, or a limit is not a time.
    """

    name: str
    ttft_ns: int | None
    tpot_ns: int | None
    deadline_ns: int | None
    bulk: bool

    def __init__(
        self,
        name: str,
        ttft_s: float | None = None,
        tpot_s: float | None = None,
        deadline_s: float | None = None,
        bulk: bool | None = None,
        *,
        ttft_ns: int | None = None,
        tpot_ns: int | None = None,
        deadline_ns: int | None = None,
    ) -> None:
        put = object.__setattr__
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise InputError(f"{shown(name)} is not a name", field="name", remedy="give a text")
        put(self, "name", name)
        seconds, stored = (ttft_s, tpot_s, deadline_s), (ttft_ns, tpot_ns, deadline_ns)
        for limit, in_s, in_ns in zip(LIMITS, seconds, stored, strict=True):
            put(self, f"{limit}_ns", time_ns(in_ns, in_s, limit))
        if bulk is None:
            bulk = self.ttft_ns is None and self.tpot_ns is None and name != "interactive"
        if not isinstance(bulk, bool):
            raise InputError(
                f"{shown(bulk)} is not a truth value",
                field="bulk",
                remedy="true, false",
            )
        put(self, "bulk", bulk)

    @property
    def has_limits(self) -> bool:
        """Whether the class has any limit."""
        return (self.ttft_ns, self.tpot_ns, self.deadline_ns) != (None, None, None)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; ``from_dict`` gives the class back."""
        return {name: getattr(self, name) for name in FIELDS}

    @classmethod
    def from_dict(cls, values: object) -> ServiceClass:
        """Inverse of ``to_dict``; raises ``InputError`` that names the field."""
        if not isinstance(values, dict):
            raise InputError("must be an object", remedy="see the file formats")
        for name in values:
            if name not in FIELDS:
                raise InputError(
                    f"a class has no field {shown(name)}",
                    field=str(name),
                    remedy=known_names(name, FIELDS, "known fields: "),
                )
        if "name" not in values:
            raise InputError("a class needs the field 'name'", field="name", remedy="add it")
        return cls(**values)


DEFAULT_CLASSES = (ServiceClass("interactive"), ServiceClass("batch"))
"""The classes of an instance that names none."""


def priority_classes(priorities: Iterable[int]) -> tuple[ServiceClass, ...]:
    """Return a class without limits for each priority, such as ``priority-10``."""
    return tuple(ServiceClass(f"priority-{each}", bulk=False) for each in priorities)


def read_class(spec: str) -> ServiceClass:
    """Return the class that a text such as ``interactive:ttft=1,tpot=0.05`` stands for.

    Optional behind the name: ``ttft``, ``tpot`` and ``deadline`` in seconds and
    ``bulk=true`` or ``false``. Raises ``InputError`` for anything else.
    """
    name, _, rest = spec.partition(":")
    given = read_list_of_pairs(rest, "class")
    known = {**{limit: f"{limit}_s" for limit in LIMITS}, "bulk": "bulk"}
    for parameter in given:
        if parameter not in known:
            raise InputError(
                f"a class has no limit {parameter!r}",
                field="class",
                remedy=f"{known_names(parameter, known)}; e.g. interactive:ttft=1,tpot=0.05",
            )
    try:
        return ServiceClass(name, **{known[item]: value for item, value in given.items()})
    except InputError as error:
        place = "class" if error.field == "name" else f"class.{error.field}"
        raise InputError(
            error.problem, field=place, remedy=error.remedy or "e.g. interactive:ttft=1,tpot=0.05"
        ) from None


def with_specs(
    classes: Sequence[ServiceClass], specs: Iterable[str | ServiceClass]
) -> tuple[ServiceClass, ...]:
    """Return classes with those of the specifications put in by name, each once; new ones last."""
    found = {known.name: known for known in classes}
    named: set[str] = set()
    for spec in specs:
        new = spec if isinstance(spec, ServiceClass) else read_class(spec)
        if new.name in named:
            raise InputError(f"{new.name!r} is given twice", field="class", remedy="give it once")
        named.add(new.name)
        found[new.name] = new
    return tuple(found.values())


def checked_classes(classes: object) -> tuple[ServiceClass, ...]:
    """Return the classes of an instance, validated; raises ``InputError``."""
    if not isinstance(classes, (list, tuple)) or not classes:
        raise InputError("must be one or more service classes", field="classes")
    if len(classes) > MAX_CLASSES:
        raise InputError(f"more than {MAX_CLASSES} classes", field="classes", remedy="merge some")
    names: set[str] = set()
    for row, item in enumerate(classes):
        if not isinstance(item, ServiceClass):
            raise InputError(
                f"{shown(item)} is not a service class",
                row=row,
                field="classes",
                remedy="give ServiceClass(name, ...)",
            )
        if item.name in names:
            raise InputError(
                f"{item.name!r} appears twice", row=row, field="classes", remedy="names are unique"
            )
        names.add(item.name)
    return tuple(classes)
