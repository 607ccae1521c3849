"""The first sheet of a spreadsheet (.xlsx) as rows of text, with the row numbers that it shows."""

from __future__ import annotations

import re
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError, file_hint, unavailable
from orsched.common.scalars import ROWS
from orsched.files.cells import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

SUFFIXES = (".xlsx", ".xlsm")
OTHER = (".xls", ".ods", ".numbers")
_MOST_BYTES = 500_000_000
"""Of a spreadsheet when it is unpacked: a few bytes can stand for billions."""

_LAST_ROW = 2**20
"""The format's own limit."""

_TEXT = re.compile(rb"[<:]si[\s/>]")
"""Begins one of the texts that the cells share, of which each takes memory before any is read."""

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


@contextmanager
def sheet_rows(path: str | PathLike[str]) -> Iterator[_Rows]:
    """Give the rows of a spreadsheet's first sheet, as texts, unless it is too large unpacked."""
    rows = _Rows(path)
    try:
        yield rows
    finally:
        rows.close()


class _Rows:
    """The rows of the first sheet; ``line_num`` is the number beside the row."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._file = str(path)
        self._book = _opened(path)
        self.line_num = 0
        self._cells = self._width = 0
        sheet = self._book.worksheets[0]
        # A row beyond the last that there can be ends the sheet before the rows up to it are made.
        self._rows = sheet.iter_rows(max_row=_LAST_ROW + 1, values_only=True)

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
        if self.line_num > _LAST_ROW:
            raise InputError(
                "has a row beyond the last that a spreadsheet can have",
                file=self._file,
                row=self.line_num,
                remedy=_AS_CSV,
            )
        self._cells += len(values)
        ROWS.require(self._cells, what="cells")
        end = len(values)
        while end > self._width and values[end - 1] is None:
            end -= 1
        self._width = self._width or end
        return [text_of(value) for value in values[:end]]

    def close(self) -> None:
        """Close the file, and the part of it that is being read."""
        self._rows.close()
        self._book.close()


def _opened(path: str | PathLike[str]) -> Any:
    file = str(path)
    try:
        with zipfile.ZipFile(path) as parts:
            size = sum(part.file_size for part in parts.infolist())
            if size <= _MOST_BYTES:
                ROWS.require(_shared_texts(parts), what="texts that cells share")
    except FileNotFoundError:
        raise InputError("the file does not exist", file=file, remedy=file_hint(file)) from None
    except InputError:
        raise
    except Exception as error:  # what zipfile raises of a damaged file is not one kind
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


def _shared_texts(parts: zipfile.ZipFile) -> int:
    """Count the texts that cells share, piece by piece."""
    found = 0
    for part in parts.infolist():
        with parts.open(part) as stream:
            end = b""
            while piece := stream.read(2**20):
                found += len(_TEXT.findall(end + piece))
                end = piece[-3:]
    return found


def _damaged(file: str, error: Exception) -> InputError:
    words = " ".join(str(error).split())
    return InputError(
        f"is not a spreadsheet that can be read ({type(error).__name__}: {words:.80})",
        file=file,
        remedy=_AS_CSV,
    )
