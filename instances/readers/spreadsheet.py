"""The first sheet of a spreadsheet (.xlsx) as rows of text, with the row numbers that it shows."""

from __future__ import annotations

import zipfile
from datetime import date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orsched.errors import InputError, unavailable
from orsched.instances.readers.table import Table, table_of
from orsched.limits import ROWS
from orsched.near_names import file_hint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from orsched.instances.readers.table import Choice

SUFFIXES = (".xlsx", ".xlsm")
OTHER = (".xls", ".ods", ".numbers")
_MOST_BYTES = 500_000_000
"""Of a spreadsheet when it is unpacked: a few bytes can stand for billions."""

_AS_CSV = "save the sheet as CSV (UTF-8)"


def is_spreadsheet(path: str | PathLike[str]) -> bool:
    """Whether a path is that of a spreadsheet; ``InputError`` for kinds that are not read."""
    suffix = Path(path).suffix.lower()
    if suffix in OTHER:
        raise InputError(
            f"spreadsheets of the kind {suffix} are not read",
            file=str(path),
            remedy=f"save it as .xlsx, or {_AS_CSV}",
        )
    return suffix in SUFFIXES


def read_sheet(path: str | PathLike[str], choose: Choice) -> Table:
    """Read the columns of the first sheet that ``choose`` picks from its header, as ``read_table``.

    Raises:
        InputError: the file is no such table, or a cell is wrong; names row and column.
        MissingDependencyError: openpyxl is not installed.
    """
    rows = _Rows(path)
    try:
        return table_of(rows, choose, str(path))
    finally:
        rows.close()


class _Rows:
    """The rows of the first sheet; ``line_num`` is the number beside the row."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._file = str(path)
        self._book = _opened(path)
        self.line_num = 0
        self._rows = iter(self._book.worksheets[0].iter_rows(values_only=True))

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        try:
            values = next(self._rows)
        except StopIteration:
            raise
        except Exception as error:  # of a file that is no sheet inside
            raise _damaged(self._file, error) from None
        self.line_num += 1
        ROWS.require(self.line_num, self._file)
        return [cell_text(value) for value in values]

    def close(self) -> None:
        """Close the file, and the part of it that is being read."""
        self._rows.close()
        self._book.close()


def _opened(path: str | PathLike[str]) -> Any:
    file = str(path)
    try:
        with zipfile.ZipFile(path) as parts:
            size = sum(part.file_size for part in parts.infolist())
    except FileNotFoundError:
        raise InputError("there is no such file", file=file, remedy=file_hint(file)) from None
    except (OSError, zipfile.BadZipFile) as error:
        raise _damaged(file, error) from None
    if size > _MOST_BYTES:
        raise InputError(f"unpacks to {size:,} bytes", file=file, remedy=_AS_CSV)
    try:
        import openpyxl
    except ImportError as error:
        raise unavailable(
            error,
            f"{file}: spreadsheets need openpyxl: pip install 'orsched[excel]', or {_AS_CSV}",
        ) from None
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        book.worksheets[0].reset_dimensions()
    except Exception as error:
        raise _damaged(file, error) from None
    return book


def _damaged(file: str, error: Exception) -> InputError:
    words = " ".join(str(error).split())
    return InputError(
        f"is no spreadsheet that can be read ({type(error).__name__}: {words:.80})",
        file=file,
        remedy=_AS_CSV,
    )


def cell_text(value: Any) -> str:
    """Return a cell as CSV would have it: whole numbers without a fraction, dates in ISO form."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, (date, time)):
        return value.isoformat()
    return str(value)
