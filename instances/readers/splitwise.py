"""Splitwise-sim traces: ``request_id,...,arrival_timestamp,batch_size,prompt_size,token_size``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.errors import InputError
from orsched.instances.readers import cells
from orsched.instances.readers.assemble import Columns, assemble
from orsched.instances.readers.table import read_table

if TYPE_CHECKING:
    from os import PathLike

    from orsched.instances.readers.report import Trace


def read_splitwise(path: str | PathLike[str], *, drop_empty: bool = False) -> Trace:
    """Read a Splitwise-sim trace; times are decimal seconds.

    A row with a batch size other than 1 stands for several requests and is refused.
    Raises ``InputError`` as all readers.
    """
    table = read_table(
        path,
        {
            "request_id": cells.names,
            "arrival_timestamp": cells.seconds,
            "prompt_size": cells.whole_numbers,
            "token_size": cells.whole_numbers,
        },
        {"batch_size": cells.whole_numbers},
    )
    batch = table.columns.get("batch_size")
    if batch is not None and (batch != 1).any():
        row = int(np.argmax(batch != 1))
        raise InputError(
            f"a batch of {batch[row]} is not one request",
            file=str(path),
            row=int(table.lines[row]),
            field="batch_size",
            remedy="write each request as a row of its own with batch_size 1",
        )
    found = Columns(
        str(path),
        "splitwise",
        table.lines,
        table.columns["prompt_size"],
        table.columns["token_size"],
        "prompt_size",
        "token_size",
        table.columns["arrival_timestamp"],
        "arrival_timestamp",
        ids=table.columns["request_id"],
        id_field="request_id",
    )
    return assemble(found, drop_empty)
