"""Length pairs without arrival times: ``id,prompt_tokens,answer_tokens``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.instances.readers import cells
from orsched.instances.readers.assemble import Columns, assemble
from orsched.instances.readers.table import read_table

if TYPE_CHECKING:
    from os import PathLike

    from orsched.instances.readers.report import Trace


def read_pairs(path: str | PathLike[str], *, drop_empty: bool = False) -> Trace:
    """Read length pairs (GSM8K, ShareGPT and arXiv counts are stored so); all arrive at 0.

    Raises ``InputError`` as all readers.
    """
    table = read_table(
        path,
        {
            "id": cells.names,
            "prompt_tokens": cells.whole_numbers,
            "answer_tokens": cells.whole_numbers,
        },
    )
    found = Columns(
        str(path),
        "pairs",
        table.lines,
        table.columns["prompt_tokens"],
        table.columns["answer_tokens"],
        "prompt_tokens",
        "answer_tokens",
        ids=table.columns["id"],
    )
    return assemble(found, drop_empty)
