"""BurstGPT traces: ``Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type``."""

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


def read_burstgpt(path: str | PathLike[str], *, drop_empty: bool = False) -> Trace:
    """Read a BurstGPT trace.

    Times are seconds (whole ones in the published files, so requests share arrival times; see
    ``spread_arrivals``). Failed requests stand in it with 0 tokens: ``drop_empty`` leaves them
    out. The total, where there is one, must be the sum of request and response.
    Raises ``InputError`` as all readers.
    """
    table = read_table(
        path,
        {
            "Timestamp": cells.seconds,
            "Request tokens": cells.whole_numbers,
            "Response tokens": cells.whole_numbers,
        },
        {"Total tokens": cells.whole_numbers},
    )
    prompts, outputs = table.columns["Request tokens"], table.columns["Response tokens"]
    total = table.columns.get("Total tokens")
    if total is not None and (total != prompts + outputs).any():
        row = int(np.argmax(total != prompts + outputs))
        raise InputError(
            f"{total[row]} is not {prompts[row]} + {outputs[row]}",
            file=str(path),
            row=int(table.lines[row]),
            field="Total tokens",
            remedy="the total is request plus response; correct the row",
        )
    found = Columns(
        str(path),
        "burstgpt",
        table.lines,
        prompts,
        outputs,
        "Request tokens",
        "Response tokens",
        table.columns["Timestamp"],
        "Timestamp",
    )
    return assemble(found, drop_empty)
