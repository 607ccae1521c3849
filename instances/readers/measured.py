"""Measured vLLM runs: ``id,arrival_s,prompt_tokens,output_tokens,queued_s,...``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.instances.readers import cells
from orsched.instances.readers.assemble import Columns, assemble
from orsched.instances.readers.table import read_table

if TYPE_CHECKING:
    from os import PathLike

    from orsched.instances.readers.report import Trace


def read_measured(path: str | PathLike[str], *, drop_empty: bool = False) -> Trace:
    """Read the requests of a measured run; times are decimal seconds.

    The measured times (``queued_s``, ...) are not part of the requests, and their clock has
    another zero point than ``arrival_s``. Raises ``InputError`` as all readers.
    """
    table = read_table(
        path,
        {
            "id": cells.names,
            "arrival_s": cells.seconds,
            "prompt_tokens": cells.whole_numbers,
            "output_tokens": cells.whole_numbers,
        },
    )
    found = Columns(
        str(path),
        "measured",
        table.lines,
        table.columns["prompt_tokens"],
        table.columns["output_tokens"],
        "prompt_tokens",
        "output_tokens",
        table.columns["arrival_s"],
        "arrival_s",
        ids=table.columns["id"],
    )
    return assemble(found, drop_empty)
