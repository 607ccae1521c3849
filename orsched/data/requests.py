"""Requests: the columnar table of inference jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import IntColumn, int_column, shown
from orsched.common.errors import InputError
from orsched.common.registry import attached
from orsched.common.units import MAX_TIME_NS, MAX_TOKENS, NS_PER_S, seconds_column, seconds_text
from orsched.data.length_quantiles import LEVELS, QUANTILES, medians, read_levels, read_quantiles
from orsched.data.prefixes import Prefixes as Prefixes
from orsched.data.service_classes import LABELLED, MAX_CLASSES, label_column

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from orsched.common.columns import IntColumn


NONE = -1
"""Parent of a first turn, and delay of a request that arrives at its own time."""


def parent_column(values: ArrayLike | None, n: int) -> IntColumn | None:
    """Return the parents of n requests as rows, ``NONE`` for first turns; None where all are."""
    if values is None:
        return None
    remedy = "the row of another request, or -1 for the first turn of a conversation"
    parent = int_column(values, "parent", minimum=NONE, maximum=n - 1, length=n, remedy=remedy)
    first, _ = conversations(parent)
    circular = parent[first] != NONE
    if circular.any():
        raise InputError(
            "the parents form a circle: no request of it is the first",
            row=int(np.argmax(circular)),
            field="parent",
            remedy="leave the parent of the first turn out",
        )
    return parent if (parent != NONE).any() else None


def delay_column(values: ArrayLike | None, parent: IntColumn | None, n: int) -> IntColumn | None:
    """Return the delays of n requests, ``NONE`` for own arrival times; None where all are."""
    if values is None:
        return None
    delay = int_column(
        values, "delay_ns", minimum=NONE, maximum=MAX_TIME_NS, length=n,
        below="delays are 0 or longer; -1: the request arrives at its own time",
    )  # fmt: skip
    alone = delay != NONE if parent is None else (delay != NONE) & (parent == NONE)
    if alone.any():
        raise InputError(
            "a delay without a parent",
            row=int(np.argmax(alone)),
            field="delay_ns",
            remedy="name the request whose end it follows (parent), or leave the delay out",
        )
    return delay if (delay != NONE).any() else None


def conversations(parent: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Return the first turn of each request's conversation, and how many turns are before it."""
    first = np.where(parent == NONE, np.arange(len(parent)), parent)
    depth = (parent != NONE).astype(np.int64)
    for _ in range(len(parent).bit_length()):
        depth, first = depth + depth[first], first[first]
    return first, depth


def with_all_before(
    parent: IntColumn, kept: np.ndarray[Any, np.dtype[np.bool_]]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return the requests that are kept and all of whose turns before are: others are not sent."""
    up, found = np.where(parent == NONE, np.arange(len(parent)), parent), kept.copy()
    for _ in range(len(parent).bit_length()):
        found &= found[up]
        up = up[up]
    return found


def taken_parents(parent: IntColumn, kept: IntColumn) -> IntColumn:
    """Return the parents of the rows that are kept; a turn without its parent is a first one."""
    place = np.full(len(parent) + 1, NONE, np.int64)
    place[kept] = np.arange(len(kept))  # the last place is where NONE points to
    return place[parent[kept]]


INTERACTIVE = 0
BATCH = 1
SERVICE_CLASSES = ("interactive", "batch")
_COLUMNS = (
    "prompt_tokens", "output_tokens", "arrival_ns", "predicted_tokens", "service_class", *LABELLED,
    "deadline_ns", QUANTILES, "weights", "delay_ns",
)  # fmt: skip
_OPTIONAL = (
    "predicted_tokens", QUANTILES, "ids", "prefixes", *LABELLED, "deadline_ns", "weights", "parent",
)  # fmt: skip

MAX_WEIGHT = 1_000_000
"""Largest weight of a request: sums of weighted times stay within what solvers can count."""

WEIGHT_REMEDY = f"whole numbers from 0 to {MAX_WEIGHT}: multiply fractions by a power of ten"


@dataclass(frozen=True, eq=False)
class Requests:
    """n requests, one row each; every column is a read-only int64 array of length n.

    A prediction is a length, a distribution over lengths (quantiles), or both. Where only a
    distribution is given, its median is the length.

    Attributes:
        prompt_tokens: N^p, at least 1.
        output_tokens: N^d, the true output length, at least 1.
        arrival_ns: arrival times in nanoseconds (default: all 0).
        predicted_tokens: predicted output lengths, at least 1, or None.
        service_class: place in the classes of the instance, by default 0 interactive, 1 batch
            (default: all 1 when all arrive at 0, else all 0).
        ids: unique names, or None when the row numbers are the names.
        prefixes: cache-block identifiers of the prompts, or None.
        tenant: whose requests they are: whole numbers, or names, which are stored as places in
            ``tenants``; None where all are one tenant's.
        tenants: the names that the numbers of ``tenant`` stand for, or None.
        group, groups: likewise, which requests are samples of one prompt; None without groups.
        deadline_ns: limits on the time from arrival to finish, in place of that of the request's
            class where they are above 0; None where no request has one of its own.
        weights: how much each request counts in ``weighted_jct_mean``, whole numbers from 0, not
            all 0; None where all count the same. Files have them as the column ``weight``.
        parent: row of the request whose prompt and answer begin this one's prompt, -1 for the first
            turn of a conversation; None where no request has one.
        delay_ns: time from the parent's end to the arrival (think or tool time), which is never
            before ``arrival_ns``; -1 for a request that arrives at its own time.
        arrival_s, deadline_s: the same in seconds, in place of ``arrival_ns`` and ``deadline_ns``:
            rounded exactly to nanoseconds.

    Raises ``InputError`` if a value is wrong; it names row, field and remedy.
    """

    prompt_tokens: IntColumn
    output_tokens: IntColumn
    _: KW_ONLY
    arrival_ns: IntColumn = None  # type: ignore[assignment]
    predicted_tokens: IntColumn | None = None
    service_class: IntColumn = None  # type: ignore[assignment]
    ids: tuple[str, ...] | None = field(default=None, repr=False)
    prefixes: Prefixes | None = field(default=None, repr=False)
    tenant: IntColumn | None = field(default=None, repr=False)
    tenants: tuple[str, ...] | None = field(default=None, repr=False)
    group: IntColumn | None = field(default=None, repr=False)
    groups: tuple[str, ...] | None = field(default=None, repr=False)
    deadline_ns: IntColumn | None = field(default=None, repr=False)
    predicted_quantiles: IntColumn | None = field(default=None, repr=False)
    quantile_levels: tuple[float, ...] | None = field(default=None, repr=False)
    weights: IntColumn | None = field(default=None, repr=False)
    parent: IntColumn | None = field(default=None, repr=False)
    delay_ns: IntColumn | None = field(default=None, repr=False)
    if TYPE_CHECKING:
        # What type checkers are to know: columns are given as anything like an array and read as
        # arrays, and the columns of seconds, to a dataclass no attributes, are some.
        def __init__(
            self,
            prompt_tokens: ArrayLike,
            output_tokens: ArrayLike,
            *,
            arrival_ns: ArrayLike | None = None,
            predicted_tokens: ArrayLike | None = None,
            service_class: ArrayLike | None = None,
            ids: Sequence[str] | None = None,
            prefixes: Prefixes | None = None,
            tenant: ArrayLike | None = None,
            tenants: Sequence[str] | None = None,
            group: ArrayLike | None = None,
            groups: Sequence[str] | None = None,
            deadline_ns: ArrayLike | None = None,
            predicted_quantiles: ArrayLike | None = None,
            quantile_levels: ArrayLike | None = None,
            weights: ArrayLike | None = None,
            parent: ArrayLike | None = None,
            delay_ns: ArrayLike | None = None,
            arrival_s: ArrayLike | None = None,
            deadline_s: ArrayLike | None = None,
        ) -> None: ...

        @property
        def arrival_s(self) -> np.ndarray[Any, np.dtype[np.float64]]:
            """Arrival times in seconds."""
            ...

        @property
        def deadline_s(self) -> np.ndarray[Any, np.dtype[np.float64]] | None:
            """Limits on the time from arrival to finish in seconds, or None."""
            ...

    else:
        arrival_s: InitVar[ArrayLike | None] = None
        deadline_s: InitVar[ArrayLike | None] = None

    def __post_init__(  # type: ignore[override]
        self, arrival_s: ArrayLike | None, deadline_s: ArrayLike | None
    ) -> None:
        put = object.__setattr__
        prompts = _token_column(self.prompt_tokens, "prompt_tokens", None)
        n = len(prompts)
        put(self, "prompt_tokens", prompts)
        put(self, "output_tokens", _token_column(self.output_tokens, "output_tokens", n))
        arrivals = _times(self.arrival_ns, arrival_s, "arrival", n)
        put(
            self,
            "arrival_ns",
            int_column(np.zeros(n, np.int64), "arrival_ns") if arrivals is None else arrivals,
        )
        put(self, "parent", parent_column(self.parent, n))
        put(self, "delay_ns", delay_column(self.delay_ns, self.parent, n))
        self._read_quantiles(n)
        if self.predicted_tokens is not None:
            predicted = _token_column(self.predicted_tokens, "predicted_tokens", n)
            put(self, "predicted_tokens", predicted)
        classes: ArrayLike | None = self.service_class
        if classes is None:
            over_time = self.arrival_ns.any() or self.delay_ns is not None
            classes = np.full(n, INTERACTIVE if over_time else BATCH, np.int64)
        put(
            self,
            "service_class",
            int_column(
                classes,
                "service_class",
                maximum=MAX_CLASSES - 1,
                length=n,
                remedy="0 interactive, 1 batch, or places in the instance's classes",
            ),
        )
        for name in LABELLED:
            self._read_labels(name, n)
        put(self, "deadline_ns", _times(self.deadline_ns, deadline_s, "deadline", n))
        if self.weights is not None:
            put(self, "weights", _weight_column(self.weights, n))
        if self.ids is not None:
            put(self, "ids", _unique_ids(self.ids, n))
        if self.prefixes is not None:
            _require_prefixes(self.prefixes, prompts)

    def _read_quantiles(self, n: int) -> None:
        """Check the distributions; where no length is predicted beside them, take the median."""
        quantiles, levels = self.predicted_quantiles, self.quantile_levels
        if quantiles is None or levels is None:
            given, missing = (LEVELS, QUANTILES) if quantiles is None else (QUANTILES, LEVELS)
            if not (quantiles is None and levels is None):
                raise InputError(f"is given without {missing}", field=given, remedy="give both")
            return
        read = read_levels(levels)
        found = read_quantiles(quantiles, read, n)
        object.__setattr__(self, LEVELS, read)
        object.__setattr__(self, QUANTILES, found)
        if self.predicted_tokens is None:
            object.__setattr__(self, "predicted_tokens", medians(found, read))

    def _read_labels(self, name: str, n: int) -> None:
        values, names = getattr(self, name), getattr(self, f"{name}s")
        if values is None and names is not None:
            raise InputError(
                f"names of {name}s without the column '{name}'", field=f"{name}s", remedy="add it"
            )
        if values is not None:
            for field_name, found in zip(
                (name, f"{name}s"), label_column(values, names, n, name), strict=True
            ):
                object.__setattr__(self, field_name, found)

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Requests):
            return NotImplemented
        return all(_same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if len(self) == 0:
            return "Requests: none"
        columns = (self.prompt_tokens, self.output_tokens)
        spans = [f"{int(column.min()):,} to {int(column.max()):,}" for column in columns]
        last = int(self.arrival_ns.max()) / NS_PER_S
        given = [name for name in _OPTIONAL if getattr(self, name) is not None]
        more = f"; with {', '.join(given)}" if given else ""
        return (
            f"Requests: {len(self):,}, prompts of {spans[0]} tokens, outputs of {spans[1]}, "
            f"arrivals until {seconds_text(last)} s{more}"
        )

    def id_of(self, request: int) -> str:
        """Return the name of a row."""
        return str(request) if self.ids is None else self.ids[request]

    def tenant_name(self, tenant: int) -> str:
        """Return the name of a tenant by its number."""
        return str(tenant) if self.tenants is None else self.tenants[tenant]

    def take(self, rows: ArrayLike) -> Requests:
        """Return the given rows, in the given order, as new requests."""
        index = np.asarray(rows)
        index = index.astype(np.int64) if index.size == 0 else index
        kept = np.arange(len(self))[index]
        taken = {
            name: column[kept] for name in _COLUMNS if (column := getattr(self, name)) is not None
        }
        if self.parent is not None:
            taken["parent"] = taken_parents(self.parent, kept)
            if self.delay_ns is not None:
                taken["delay_ns"] = np.where(taken["parent"] == NONE, NONE, taken["delay_ns"])
        return Requests(
            **taken,
            ids=None if self.ids is None else tuple(self.ids[int(r)] for r in kept),
            prefixes=None if self.prefixes is None else self.prefixes.take(kept),
            tenants=self.tenants,
            groups=self.groups,
            quantile_levels=self.quantile_levels,
        )

    def refined(self, block_tokens: int) -> Requests:
        """Return the requests with their prefixes in smaller blocks; see ``Prefixes.refined``."""
        if self.prefixes is None:
            return self
        return self.replace(prefixes=self.prefixes.refined(block_tokens, self.prompt_tokens))

    def replace(self, **changes: Any) -> Requests:
        """Return a copy with some columns replaced and everything validated again.

        A prediction is replaced as a whole: a new length takes the old quantiles away, new
        quantiles the old length, unless both are given.
        """
        if "predicted_tokens" in changes:
            changes = {QUANTILES: None, **changes}
        elif changes.get(QUANTILES) is not None:
            changes["predicted_tokens"] = None
        if changes.get(QUANTILES, 0) is None:
            changes.setdefault(LEVELS, None)
        for name in ("arrival", "deadline"):
            if changes.setdefault(f"{name}_s", None) is not None:
                changes.setdefault(f"{name}_ns", None)
        return replace(self, **changes)

    @classmethod
    def from_pandas(cls, frame: pd.DataFrame) -> Requests:
        """Return the requests of a data frame, one row each; the index plays no part.

        Columns may have all names, units and dates that a CSV file of requests may have; a warning
        names those that are not used. Raises ``InputError`` for a column that is missing.
        """
        found: Requests = attached("requests_from_frame")(frame)
        return found


def _times(
    given_ns: ArrayLike | None, given_s: ArrayLike | None, name: str, n: int
) -> IntColumn | None:
    """Return a column of times, of which nanoseconds or seconds are given; None for neither."""
    if given_s is not None:
        seconds = seconds_column(given_s, f"{name}_s", n)
        if given_ns is None:
            return seconds
        if not isinstance(given_s, _ReadSeconds):
            raise InputError(
                f"{name}s are given twice", field=f"{name}_s", remedy="keep one of them"
            )
    if given_ns is None:
        return None
    return int_column(
        given_ns, f"{name}_ns", maximum=MAX_TIME_NS, length=n, below="times start at 0"
    )


class _ReadSeconds(np.ndarray[Any, np.dtype[np.float64]]):
    """What ``arrival_s`` returns; ``dataclasses.replace`` gives it back beside ``arrival_ns``."""


def _in_seconds(name: str, words: str) -> property:
    """Return a property that reads a column of nanoseconds in seconds."""

    def read(self: Requests) -> _ReadSeconds | None:
        column = getattr(self, f"{name}_ns")
        return None if column is None else (column / NS_PER_S).view(_ReadSeconds)

    return property(read, doc=words)


for _name, _words in (
    ("arrival", "Arrival times in seconds."),
    ("deadline", "Limits on the time from arrival to finish in seconds, or None."),
):
    setattr(Requests, f"{_name}_s", _in_seconds(_name, _words))


def _token_column(values: ArrayLike, name: str, length: int | None) -> IntColumn:
    below = "every request has at least one token; leave failed requests out"
    if name == "predicted_tokens":
        below = "predict at least one token for each request"
    return int_column(
        values,
        name,
        minimum=1,
        maximum=MAX_TOKENS,
        length=length,
        below=below,
    )


def _weight_column(values: ArrayLike, length: int) -> IntColumn:
    return int_column(
        values,
        "weight",
        maximum=MAX_WEIGHT,
        length=length,
        remedy=WEIGHT_REMEDY,
    )


def _unique_ids(ids: Iterable[str], n: int) -> tuple[str, ...]:
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InputError("must be a list of texts", field="ids", remedy="one text per request")
    names = tuple(ids)
    if len(names) != n:
        raise InputError(
            f"{len(names)} values where {n} are expected",
            field="ids",
            remedy="all columns have one value per row",
        )
    seen: set[str] = set()
    for row, name in enumerate(names):
        if not isinstance(name, str) or not name or "\0" in name:  # no table of text holds NUL
            raise InputError(
                f"{shown(name)} is not a name", row=row, field="ids", remedy="give a text"
            )
        if name in seen:
            raise InputError(
                f"{name!r} appears twice", row=row, field="ids", remedy="ids are unique"
            )
        seen.add(name)
    return names


def _require_prefixes(prefixes: object, prompts: IntColumn) -> None:
    if not isinstance(prefixes, Prefixes):
        raise InputError("must be Prefixes", field="prefixes")
    if len(prefixes) != len(prompts):
        raise InputError(
            f"{len(prefixes.offsets)} offsets for {len(prompts)} requests",
            field="prefix_offsets",
            remedy="give one offset per request and one more",
        )
    prefixes.require_within(prompts)


def _same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b))
    return bool(a is b or a == b)
