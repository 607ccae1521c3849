"""Requests of one's own: CSV, JSON lines or a spreadsheet, under names that people use."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError
from orsched.common.units import MAX_TIME, MAX_TIME_NS, NS_PER_MS, NS_PER_S, NS_PER_US
from orsched.data.requests import SERVICE_CLASSES, Requests
from orsched.data.service_classes import MAX_CLASSES
from orsched.files import cells
from orsched.files.cells import CellError
from orsched.files.parquet import frame_of, holds_rows
from orsched.files.request_columns import (
    COLUMNS,
    PREFIX_COLUMNS,
    level_of,
    parser_of,
    requests_from_frame,
    requests_of,
    require_frame,
    with_labels,
)
from orsched.files.tables import FRAME, NO_ROW, Table, read_chosen, table_of_frame
from orsched.instances.readers.headings import ARRIVAL, Matched, match, require
from orsched.instances.readers.traces import Columns, ReadReport, Trace, kept, left_out

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from decimal import Decimal
    from os import PathLike

    from numpy.typing import NDArray

    from orsched.files.tables import Parser

FORMAT = "requests"
UNUSED = "columns not used"
_LOG = logging.getLogger("orsched")
_SHOWN = 6
_TEXTS = ("prompt", "conversation", "instruction")
"""Columns of prompts: what a predictor reads, lengths stand in others."""


def read_own(
    path: str | PathLike[str],
    *,
    drop_empty: bool = False,
    classes: Sequence[str] = SERVICE_CLASSES,
) -> Trace:
    """Read requests whose columns are named as people name them (``headings.ALIASES``).

    CSV with commas, semicolons or tabs, JSON lines, Parquet, or the first sheet of a spreadsheet.
    Arrivals are seconds, or in the unit that the column's name ends in; dates, Unix times and times
    of a column that names no unit count from the earliest one, which the report says. ``classes``
    are the names of the service classes. Columns that stand for nothing are named in the report;
    for one that is missing the error names the one to rename.
    """
    reading = _Reading(str(path), classes)
    try:
        choose, own = reading.choose, holds_rows(path)
        table = table_of_frame(frame_of(path), choose, path) if own else read_chosen(path, choose)
        return reading.trace(table, drop_empty)
    except InputError as error:
        raise error.located(file=str(path)) from None


def read_frame(
    frame: Any, *, drop_empty: bool = False, classes: Sequence[str] = SERVICE_CLASSES
) -> Trace:
    """Read the requests of a data frame, a row each, under the names that ``read_own`` takes.

    Dates are read as such. Rows in messages count from 0, whatever the index is.
    """
    if "prefix_ids" in frame.columns:  # which orsched alone writes, under its own names
        report = ReadReport(FRAME, FORMAT, len(frame), len(frame))
        return Trace(requests_from_frame(frame, classes), report)
    reading = _Reading(FRAME, classes)
    try:
        return reading.trace(table_of_frame(frame, reading.choose), drop_empty)
    except InputError as error:
        raise error.located(file=FRAME) from None


def requests_of_frame(frame: Any, classes: Sequence[str] = SERVICE_CLASSES) -> Requests:
    """Return the requests of a data frame; a warning names the columns that are not used.

    Orsched's own columns are read as ``requests_from_frame`` has them, others as ``read_frame``.
    """
    require_frame(frame)
    own = (*COLUMNS, *PREFIX_COLUMNS)
    if all(name in own or level_of(name) is not None for name in frame.columns):
        return requests_from_frame(frame, classes)
    requests, report = read_frame(frame, classes=classes)
    if report.priorities:
        raise InputError(
            "priorities are read as classes of an instance",
            field="priority",
            remedy="use orsched.load(frame, clients=...), which adds the classes",
        )
    for note in report.notes:
        if note.startswith(UNUSED):
            _LOG.warning("%s: %s", FRAME, note)
    return requests


class _Reading:
    """One file: which column holds what, and the requests of its cells."""

    def __init__(self, file: str, classes: Sequence[str]) -> None:
        self.file = file
        self.classes = classes
        self.times: Times | None = None
        self.matched = Matched({}, [])

    def choose(self, header: list[str]) -> dict[str, Parser]:
        """Return the parsers of the columns that are read; raises ``InputError``."""
        self.matched = match(header)
        require(self.matched)
        return {heading.name: self._parser(t) for t, heading in self.matched.found.items()}

    def _parser(self, target: str) -> Parser:
        if target == ARRIVAL:
            self.times = Times(self.matched.found[target].unit_ns)
            return self.times
        return _PRIORITIES if target == "priority" else parser_of(target, self.classes)

    def trace(self, table: Table, drop_empty: bool) -> Trace:
        """Return the requests of a table, and the report."""
        if not len(table):
            raise InputError("holds no request", remedy=NO_ROW)
        names = {target: heading.name for target, heading in self.matched.found.items()}
        values = {target: table.columns[name] for target, name in names.items()}
        notes = []
        if self.times is None:
            notes.append("no arrival times: all requests arrive at 0")
        else:
            arrivals = values.pop(ARRIVAL)
            values["arrival_ns"], said = settle(arrivals, self.times, names[ARRIVAL], table.lines)
            notes += said
        texts = [name for name in self.matched.unused if name.strip().lower() in _TEXTS]
        unused = [name for name in self.matched.unused if name not in texts]
        if texts:
            notes.append(f"{_listed(texts)}: read by --predict alone")
        if unused:
            notes.append(f"{UNUSED}: {_listed(unused)}")
        priorities: tuple[int, ...] = ()
        if "priority" in values:
            priorities, values["service_class"] = self._levels(values.pop("priority"), names)
            notes.append(
                f'"{names["priority"]}" is read as classes, the smallest first '
                "(--param policy=priority serves them in this order)"
            )
        prompts, outputs = values["prompt_tokens"], values["output_tokens"]
        found = Columns(
            self.file, FORMAT, table.lines, prompts, outputs,
            names["prompt_tokens"], names["output_tokens"], notes=notes,
        )  # fmt: skip
        reasons = left_out(found, prompts, outputs, drop_empty)
        if reasons:
            values["prompt_tokens"] = np.maximum(prompts, 1)
            values["output_tokens"] = np.maximum(outputs, 1)
        requests = requests_of(with_labels(values), table.lines, names)
        trace = kept(found, requests, reasons)
        return trace._replace(report=replace(trace.report, priorities=priorities))

    def _levels(
        self, column: NDArray[np.int64], names: Mapping[str, str]
    ) -> tuple[tuple[int, ...], NDArray[np.int64]]:
        """Return the different priorities, smallest first, and the place of each row's."""
        levels, places = np.unique(column, return_inverse=True)
        if len(levels) > MAX_CLASSES:
            raise InputError(
                f"{len(levels):,} different priorities, at most {MAX_CLASSES:,} are told apart",
                field=names["priority"],
                remedy="give fewer levels, or remove the column",
            )
        return tuple(levels.tolist()), places.astype(np.int64)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} others" if len(names) > _SHOWN else ""
    return ", ".join(f"{name:.40}" for name in names[:_SHOWN]) + more


_PRIORITIES = partial(
    cells.whole_numbers,
    minimum=-(2**63),
    maximum=2**63 - 1,
    remedy="give whole numbers, the smallest for the most urgent; or rename the column to class, "
    "with --class NAME for each name",
)
"""Whole numbers of either sign: the smallest is the most urgent, as in vLLM."""


EPOCH_NS = 10**17
"""Times from here on (March 1973) count from 1970: no run is three years long."""

_UNITS = (
    (10**17, 1, "nanoseconds", "ns"), (10**14, NS_PER_US, "microseconds", "us"),
    (10**11, NS_PER_MS, "milliseconds", "ms"), (10**8, NS_PER_S, "seconds", "s"),
)  # fmt: skip
"""From which size on a number is a Unix time in which unit: from 1973 on in each."""
_DATE = re.compile(r"\s*\d{4}-\d\d?-\d\d?[ T]", re.ASCII)
_REMEDY = (
    "give seconds since the start, a Unix time or 2023-11-16 18:17:03.98; "
    "arrival_ms, arrival_us or arrival_ns as the column's name says another unit"
)


class Times:
    """The parser of one column of times; the first cell decides what all of them are.

    ``unit_ns`` is that of the column's name, or the one that the size of the first time implies;
    ``words`` say what was taken for what, for the report; ``guessed``: the name said no unit.
    """

    def __init__(self, unit_ns: int | None) -> None:
        self.unit_ns = unit_ns
        self.guessed = unit_ns is None
        self.dates = False
        self.words = "seconds"

    def __call__(self, column: Sequence[str]) -> NDArray[np.int64]:
        """Return nanoseconds; raises ``CellError``."""
        if self.unit_ns is None or (not self.dates and _DATE.match(column[0])):
            self._decide(column[0])
        if self.dates:
            return cells.timestamps(column)
        if self.unit_ns == 1:
            return parser_of("arrival_ns", ())(column)  # type: ignore[no-any-return]
        unit = self.unit_ns or NS_PER_S
        try:
            return cells.seconds(column, unit, "is not a time", _REMEDY)
        except CellError as error:
            if not error.problem.endswith("too large for a time"):
                raise
            size = cells.number(error.index, column[error.index], "", "")
            raise CellError(error.index, error.problem, self._of_another_unit(size, unit)) from None

    def _of_another_unit(self, size: Decimal, unit_ns: int) -> str:
        for least, unit, words, short in _UNITS:
            if size >= least:
                if not self.guessed and unit == unit_ns:
                    return f"the largest time is {MAX_TIME}"
                return f"a Unix time in {words}? Then say so: a name that ends in _{short}"
        return _REMEDY

    def _decide(self, cell: str) -> None:
        if _DATE.match(cell):
            self.dates, self.words, self.unit_ns = True, "dates", self.unit_ns or NS_PER_S
            return
        number = cells.number(0, cell, "is not a time", _REMEDY)
        self.unit_ns = NS_PER_S
        for least, unit, words, _ in _UNITS:
            if number.is_finite() and abs(number) >= least:
                self.unit_ns, self.words = unit, f"Unix times in {words}"
                return


def settle(
    times: NDArray[np.int64], how: Times, name: str, lines: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[str]]:
    """Return arrivals, and in words what was done to the times of the column ``name``.

    Dates, Unix times and times of a column that names no unit count from the earliest one; seconds
    or nanoseconds by name are taken as they are, unless they count from 1970. Raises ``InputError``
    if only some times count from 1970, or they span over 2**61 ns.
    """
    low, high = int(times.min()), int(times.max())
    if high - low > MAX_TIME_NS:
        raise InputError(
            f"the times of the file span more than {MAX_TIME}",
            row=int(lines[int(np.argmax(times))]),
            field=name,
            remedy="check the years",
        )
    notes = []
    if how.guessed and not how.dates and low < EPOCH_NS <= high:
        raise InputError(
            "some of the times count from 1970, this one does not",
            row=int(lines[int(np.argmin(times))]),
            field=name,
            remedy="give all of them in the same way",
        )
    if how.dates or low >= EPOCH_NS:
        words = how.words if how.dates or how.guessed else "Unix times"
        first = datetime.fromtimestamp(low // NS_PER_S, UTC).strftime("%Y-%m-%d %H:%M:%S")
        notes.append(f'"{name}" holds {words}: shifted so that the first, {first} UTC, is 0')
    elif how.guessed:
        moved = ", shifted so that the first is 0" if low else ""
        notes.append(f'"{name}" is taken for seconds{moved} (arrival_ms is milliseconds)')
    else:
        low = 0
    if (times[1:] < times[:-1]).any():
        notes.append("rows are not in order of arrival (kept in the order of the file)")
    return times - low, notes
