"""Columns of arrival times, whatever their unit: seconds since the start, Unix times, dates."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, DecimalException
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.errors import InputError
from orsched.common.units import MAX_TIME, MAX_TIME_NS, NS_PER_MS, NS_PER_S, NS_PER_US
from orsched.instances.readers import cells
from orsched.instances.readers.cells import CellError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

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

    Attributes:
        unit_ns: that of the column's name, or the one that the size of the first time implies.
        words: what was taken for what, for the report.
        guessed: whether the name said no unit.
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
            return cells.whole_numbers(column, MAX_TIME_NS, "give whole nanoseconds, 0 or more")
        unit = self.unit_ns or NS_PER_S
        named = not self.guessed
        return np.array([_time(i, cell, unit, named) for i, cell in enumerate(column)], np.int64)

    def _decide(self, cell: str) -> None:
        if _DATE.match(cell):
            self.dates, self.words, self.unit_ns = True, "dates", self.unit_ns or NS_PER_S
            return
        size = abs(_number(0, cell))
        self.unit_ns = NS_PER_S
        for least, unit, words, _ in _UNITS:
            if size >= least:
                self.unit_ns, self.words = unit, f"Unix times in {words}"
                return


def _number(index: int, cell: str) -> Decimal:
    text = cell.strip()
    try:
        if "_" in text or not text.isascii():  # which Decimal reads
            raise DecimalException
        number = Decimal(text)
    except DecimalException:
        raise CellError(index, *cells.no_number(cell, "is not a time", _REMEDY)) from None
    if not number.is_finite():
        raise CellError(index, f"{text} is not a finite time", _REMEDY)
    return number


def _time(index: int, cell: str, unit_ns: int, named: bool) -> int:
    number = _number(index, cell)
    try:
        return cells.time_ns(number, unit_ns)
    except ValueError as error:
        remedy = next(
            (
                f"the largest time is {MAX_TIME}"
                if named and unit == unit_ns
                else f"a Unix time in {words}? Then say so: a name that ends in _{short}"
                for least, unit, words, short in _UNITS
                if number >= least
            ),
            _REMEDY,
        )
        raise CellError(index, str(error), remedy) from None


def settle(
    times: NDArray[np.int64], how: Times, name: str, lines: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[str]]:
    """Return arrivals, and in words what was done to the times of the column ``name``.

    Dates, Unix times and times of a column that names no unit count from the earliest one; seconds
    or nanoseconds by name are taken as they are, unless they count from 1970.

    Raises:
        InputError: some times count from 1970 and others do not, or they span over 2**61 ns.
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
