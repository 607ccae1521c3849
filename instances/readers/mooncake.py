"""Mooncake traces: JSONL with ``timestamp``, ``input_length``, ``output_length``, ``hash_ids``."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.units import NS_PER_MS
from orsched.data.requests import Prefixes
from orsched.instances.readers.assemble import Columns, assemble
from orsched.instances.readers.hash_ids import hash_ids
from orsched.instances.readers.objects import Fields, read_objects

if TYPE_CHECKING:
    from os import PathLike

    from orsched.instances.readers.report import Trace


def read_mooncake(
    path: str | PathLike[str], *, drop_empty: bool = False, block_tokens: int = 512
) -> Trace:
    """Read a Mooncake trace; times are milliseconds.

    ``hash_ids`` become prefixes with blocks of ``block_tokens`` tokens: either every request has
    ``ceil(input_length / block_tokens)`` of them, or no request has any. Arrivals come in steps
    of about 3 s in the published trace; see ``spread_arrivals``. Raises ``InputError`` as all
    readers.
    """
    size = whole_number(block_tokens, "block_tokens", minimum=1)
    fields, lines = Fields(path), array("q")
    prompts, outputs = array("q"), array("q")
    times = array("q")
    offsets, ids = array("q", [0]), array("q")
    hashed = False
    for line, values in read_objects(path):
        prompts.append(fields.whole(values, "input_length", line))
        outputs.append(fields.whole(values, "output_length", line))
        times.append(fields.time_ns(values, "timestamp", line, NS_PER_MS))
        if not lines:
            hashed = "hash_ids" in values
        if hashed or "hash_ids" in values:
            ids.extend(hash_ids(fields, values, line, size, hashed=hashed))
            offsets.append(len(ids))
        lines.append(line)
    prefixes = _prefixes(str(path), lines, offsets, ids, size) if hashed else None
    found = Columns(
        str(path),
        "mooncake",
        lines,
        prompts,
        outputs,
        "input_length",
        "output_length",
        arrival_ns=times,
        arrival_field="timestamp",
        prefixes=prefixes,
    )
    return assemble(found, drop_empty)


def _prefixes(
    file: str, lines: array[int], offsets: array[int], ids: array[int], size: int
) -> Prefixes:
    """Return the prefixes; an error names the line of the file."""
    try:
        return Prefixes(np.array(offsets), np.array(ids), size)
    except InputError as error:
        line = None if error.row is None else lines[error.row]
        raise InputError(
            error.problem, file=file, row=line, field="hash_ids", remedy=error.remedy
        ) from None
