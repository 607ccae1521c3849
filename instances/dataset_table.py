"""The public data sets (``data/data_sets.csv``): origin, licence, rows, checksum, citation.

All are plain numbers from public repositories. CC-BY-4.0 asks to keep the named source, MIT and
Apache-2.0 their notice. The checksums are those of the files as orsched's developers use them.
"""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import NamedTuple


class DataSet(NamedTuple):
    """One file: ``format`` is the reader's name, or None when it holds no requests."""

    file: str
    title: str
    origin: str
    licence: str
    rows: int
    format: str | None
    sha256: str
    citation: str = ""

    @property
    def attribution(self) -> str:
        """The named source, as a text to pass on with the data."""
        cite = f"; cite {self.citation}" if self.citation else ""
        return f"https://github.com/{self.origin}{cite}"


def _entries() -> list[DataSet]:
    text = files("orsched.instances").joinpath("data", "data_sets.csv").read_text("utf-8")
    _, *rows = csv.reader(text.splitlines())
    return [
        DataSet(file, title, origin, licence, int(count), format or None, sha256, citation)
        for file, title, origin, licence, count, format, sha256, citation in rows
    ]


DATA_SETS = {entry.file.rpartition(".")[0]: entry for entry in _entries()}
"""The data sets by name (the file's name without its suffix)."""
