"""Azure LLM inference traces: ``TIMESTAMP,ContextTokens,GeneratedTokens``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.instances.readers import cells
from orsched.instances.readers.assemble import Columns, assemble
from orsched.instances.readers.table import read_table

if TYPE_CHECKING:
    from os import PathLike

    from orsched.instances.readers.report import Trace


def read_azure(path: str | PathLike[str], *, drop_empty: bool = False) -> Trace:
    """Read an Azure trace of 2023 (seven decimals) or 2024 (offset, or ``T``).

    Timestamps are converted exactly, in integers. Raises ``InputError`` as all readers.
    """
    table = read_table(
        path,
        {
            "TIMESTAMP": cells.timestamps,
            "ContextTokens": cells.whole_numbers,
            "GeneratedTokens": cells.whole_numbers,
        },
    )
    found = Columns(
        str(path),
        "azure",
        table.lines,
        table.columns["ContextTokens"],
        table.columns["GeneratedTokens"],
        "ContextTokens",
        "GeneratedTokens",
        table.columns["TIMESTAMP"],
        "TIMESTAMP",
    )
    return assemble(found, drop_empty)
