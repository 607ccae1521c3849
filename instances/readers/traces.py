"""What readers give: requests with an account of every row, and the rules that all share."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.errors import InputError
from orsched.common.units import MAX_TIME, MAX_TIME_NS
from orsched.data.requests import Prefixes, Requests
from orsched.files.tables import NO_ROW
from orsched.instances.streams import stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

logger = logging.getLogger("orsched.instances.readers")

DROP_REMEDY = "pass drop_empty (--drop-empty) to leave failed requests out, counted"


@dataclass(frozen=True)
class ReadReport:
    """Account of a file that was read: ``rows == kept + sum(dropped.values())``.

    Attributes:
        file: the file as it was named.
        format: name of its format.
        rows: requests in the file.
        kept: requests that were returned.
        dropped: reason -> number of requests left out, which happens only when asked for, or where
            the tool that wrote the file does not count them.
        notes: what else a reader of the numbers should know, a sentence each.
        priorities: the different values of a column of priorities, smallest first: a request's
            class is the place of its own in them.
        concurrency: the most requests that a benchmark had at once; None: not limited, or unknown.
    """

    file: str
    format: str
    rows: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    priorities: tuple[int, ...] = ()
    concurrency: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {**asdict(self), "notes": list(self.notes), "priorities": list(self.priorities)}

    def __str__(self) -> str:
        lost = "".join(f", {count} left out ({reason})" for reason, count in self.dropped.items())
        notes = "".join(f"; {note}" for note in self.notes)
        count = f"{self.kept} of {self.rows} requests"
        return f"{self.file}, format {self.format}: {count}{lost}{notes}"


class Trace(NamedTuple):
    """Requests from a file, in the order of the file, and the report on reading it."""

    requests: Requests
    report: ReadReport


@dataclass
class Columns:
    """What a reader has found in a file, one value a request; tokens may still be 0.

    ``rows`` are the line numbers (or array rows) for messages, ``prompt_field`` and
    ``output_field`` the file's own names of the columns, ``failed`` the reason for each request
    that the file itself calls failed ("" for the others), ``apart`` those of them that its tool
    does not count, which are left out.
    """

    file: str
    format: str
    rows: Sequence[int] | NDArray[np.int64]
    prompt_tokens: Any
    output_tokens: Any
    prompt_field: str
    output_field: str
    _: KW_ONLY
    arrival_ns: Any = None
    arrival_field: str = "arrival"
    ids: list[str] | None = None
    id_field: str = "id"
    prefixes: Prefixes | None = None
    group: Any = None
    parent: Any = None
    delay_ns: Any = None
    failed: list[str] | None = None
    apart: frozenset[int] = frozenset()
    notes: list[str] = field(default_factory=list)


def assemble(columns: Columns, drop_empty: bool = False) -> Trace:
    """Return requests and report.

    Requests keep the order of the file. Arrivals count from the earliest one in the file, in
    integer nanoseconds. A request without prompt or output tokens is an error, or, with
    ``drop_empty``, left out and counted by its reason. Raises ``InputError`` if a request is empty,
    names appear twice, or times span over 2**61 ns.
    """
    prompts = np.asarray(columns.prompt_tokens, np.int64)
    outputs = np.asarray(columns.output_tokens, np.int64)
    n = len(prompts)
    if n == 0:
        raise InputError("holds no request", file=columns.file, remedy=NO_ROW)
    arrivals = _relative(columns)
    names = _names(columns)
    reasons = left_out(columns, prompts, outputs, drop_empty)
    if reasons:
        prompts, outputs = np.maximum(prompts, 1), np.maximum(outputs, 1)
    requests = Requests(
        prompts, outputs, arrival_ns=arrivals, ids=names, prefixes=columns.prefixes,
        group=columns.group, parent=columns.parent, delay_ns=columns.delay_ns,
    )  # fmt: skip
    return kept(columns, requests, reasons)


def left_out(
    columns: Columns, prompts: NDArray[np.int64], outputs: NDArray[np.int64], drop_empty: bool
) -> dict[int, str]:
    """Return row -> why it is not a request; raises ``InputError`` if none may be left out."""
    reasons = _reasons(columns, prompts, outputs)
    wrong = reasons.keys() - columns.apart
    if wrong and not drop_empty:
        raise _refusal(columns, prompts, min(wrong), reasons)
    return reasons


def kept(columns: Columns, requests: Requests, reasons: dict[int, str]) -> Trace:
    """Return the requests without those left out, if any is left, and the logged report."""
    n = len(requests)
    if len(reasons) == n:
        raise InputError(
            f"no request is left: all {n} are empty or failed",
            file=columns.file,
            field=columns.output_field,
            remedy="check that the columns are the right ones",
        )
    if reasons:
        requests = requests.take(np.setdiff1d(np.arange(n), list(reasons)))
    dropped = dict(sorted(Counter(reasons.values()).items()))
    report = ReadReport(
        columns.file, columns.format, n, len(requests), dropped, tuple(columns.notes)
    )
    logger.log(logging.WARNING if dropped else logging.INFO, "%s", report)
    return Trace(requests, report)


def _relative(columns: Columns) -> NDArray[np.int64]:
    if columns.arrival_ns is None:
        columns.notes.append("no arrival times: all requests arrive at 0")
        return np.zeros(len(columns.rows), np.int64)
    times = np.asarray(columns.arrival_ns, np.int64)
    if int(times.max()) - int(times.min()) > MAX_TIME_NS:
        raise InputError(
            f"the times of the file span more than {MAX_TIME}",
            file=columns.file,
            row=int(columns.rows[int(np.argmax(times))]),
            field=columns.arrival_field,
            remedy="check the years",
        )
    if (times[1:] < times[:-1]).any():
        columns.notes.append("rows are not in order of arrival (kept in the order of the file)")
    relative: NDArray[np.int64] = times - times.min()
    return relative


def _names(columns: Columns) -> tuple[str, ...] | None:
    ids = columns.ids
    if ids is None or all(name == str(row) for row, name in enumerate(ids)):
        return None
    seen: dict[str, int] = {}
    for row, name in enumerate(ids):
        if name in seen:
            raise InputError(
                f"the name {name!r} appears twice, first in row {int(columns.rows[seen[name]])}",
                file=columns.file,
                row=int(columns.rows[row]),
                field=columns.id_field,
                remedy="names of requests are unique",
            )
        seen[name] = row
    return tuple(ids)


def _reasons(
    columns: Columns, prompts: NDArray[np.int64], outputs: NDArray[np.int64]
) -> dict[int, str]:
    """Row -> why it is not a request."""
    reasons: dict[int, str] = {}
    for row in np.flatnonzero((prompts == 0) | (outputs == 0)).tolist():
        if not prompts[row] and not outputs[row]:
            reasons[row] = "has no tokens at all"
        else:
            reasons[row] = "has no output tokens" if prompts[row] else "has no prompt tokens"
    for row, reason in enumerate(columns.failed or ()):
        if reason:
            reasons[row] = reason
    return reasons


def _refusal(
    columns: Columns, prompts: NDArray[np.int64], row: int, reasons: dict[int, str]
) -> InputError:
    many = f" ({len(reasons)} of {len(prompts)} requests are empty or failed)"
    return InputError(
        f"the request {reasons[row]}{many}",
        file=columns.file,
        row=int(columns.rows[row]),
        field=columns.output_field if prompts[row] else columns.prompt_field,
        remedy=DROP_REMEDY,
    )


def spread_arrivals(requests: Requests, seed: int | None = None) -> Requests:
    """Return requests whose equal arrival times are spread up to the next distinct time.

    Clocks that tick in steps (Mooncake's of about 3 s, BurstGPT's of 1 s) give many requests one
    time, which makes gaps look bursty. The g requests of one step of width w arrive, in the
    order of rows, at ``k w / g`` after its start, k = 0..g-1, or with a seed at g sorted uniform
    times inside it. The last step is as wide as the median step. All integers; a file with one
    time only is returned as it is.
    """
    times, inverse, counts = np.unique(requests.arrival_ns, return_inverse=True, return_counts=True)
    if len(times) < 2:
        return requests
    widths = np.diff(times)
    widths = np.append(widths, np.sort(widths)[len(widths) // 2])
    order = np.argsort(inverse, kind="stable")
    first = np.repeat(np.cumsum(counts) - counts, counts)
    place = np.arange(len(requests)) - first
    step = inverse[order]
    if seed is None:
        offset = widths[step] // counts[step] * place
    else:
        draws = stream("spread-arrivals", seed).random(len(requests))
        draws = draws[np.lexsort((draws, step))]
        offset = np.floor(draws * widths[step]).astype(np.int64)
    spread = np.empty(len(requests), np.int64)
    spread[order] = times[step] + offset
    return requests.replace(arrival_ns=spread)
