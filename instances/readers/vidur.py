"""Vidur traces: ``arrived_at,num_prefill_tokens,num_decode_tokens``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.instances.readers import cells
from orsched.instances.readers.assemble import Columns, assemble
from orsched.instances.readers.table import read_table

if TYPE_CHECKING:
    from os import PathLike

    from orsched.instances.readers.report import Trace


def read_vidur(path: str | PathLike[str], *, drop_empty: bool = False) -> Trace:
    """Read a Vidur trace; times are decimal seconds.

    Files of lengths only, without ``arrived_at``, give arrivals at 0 and a note.
    Raises ``InputError`` as all readers.
    """
    table = read_table(
        path,
        {"num_prefill_tokens": cells.whole_numbers, "num_decode_tokens": cells.whole_numbers},
        {"arrived_at": cells.seconds},
    )
    found = Columns(
        str(path),
        "vidur",
        table.lines,
        table.columns["num_prefill_tokens"],
        table.columns["num_decode_tokens"],
        "num_prefill_tokens",
        "num_decode_tokens",
        table.columns.get("arrived_at"),
        "arrived_at",
    )
    return assemble(found, drop_empty)
