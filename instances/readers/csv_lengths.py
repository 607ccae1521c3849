"""CSV traces with a row a request: Azure, BurstGPT, Splitwise-sim, Vidur, vLLM runs, lengths."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.errors import InputError
from orsched.instances.readers import cells
from orsched.instances.readers.assemble import Columns, assemble
from orsched.instances.readers.table import read_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from orsched.instances.readers.report import Trace
    from orsched.instances.readers.table import Parser, Table


class CsvFormat(NamedTuple):
    """Names of the columns of a format; further columns are left alone.

    Attributes:
        name: of the format.
        prompt, output: columns of token counts.
        arrival: column of arrival times; None: all requests arrive at 0.
        times: parser of that column.
        may_lack_times: whether there are files without arrival times, which get a note.
        id: column of the requests' names, which comes first; None: they have none.
        verified: a further column of whole numbers, where there is one.
        verify: given the table, a fault of that column: mask of the rows, the problem of a row,
            and the remedy.
    """

    name: str
    prompt: str
    output: str
    arrival: str | None = None
    times: Parser = cells.seconds
    may_lack_times: bool = False
    id: str | None = None
    verified: str | None = None
    verify: Callable[[Table], tuple[Any, Callable[[int], str], str]] | None = None


def read_csv(form: CsvFormat, path: str | PathLike[str], *, drop_empty: bool = False) -> Trace:
    """Read a trace of a format. Raises ``InputError`` as all readers."""
    required: dict[str, Parser] = {} if form.id is None else {form.id: cells.names}
    optional: dict[str, Parser] = {}
    if form.arrival is not None:
        (optional if form.may_lack_times else required)[form.arrival] = form.times
    required |= {form.prompt: cells.whole_numbers, form.output: cells.whole_numbers}
    if form.verified is not None:
        optional[form.verified] = cells.whole_numbers
    table = read_table(path, required, optional)
    if form.verify is not None and form.verified in table.columns:
        wrong, problem, remedy = form.verify(table)
        if wrong.any():
            row = int(np.argmax(wrong))
            line, field = int(table.lines[row]), form.verified
            raise InputError(problem(row), file=str(path), row=line, field=field, remedy=remedy)
    found = Columns(
        str(path),
        form.name,
        table.lines,
        table.columns[form.prompt],
        table.columns[form.output],
        form.prompt,
        form.output,
        arrival_ns=table.columns.get(form.arrival or ""),
        arrival_field=form.arrival or "",
        ids=table.columns.get(form.id or ""),
        id_field=form.id or "",
    )
    return assemble(found, drop_empty)


def _totals(table: Table) -> tuple[Any, Callable[[int], str], str]:
    """The total, where there is one, must be the sum of request and response."""
    named = ("Total tokens", "Request tokens", "Response tokens")
    total, prompts, outputs = (table.columns[name] for name in named)
    return (
        total != prompts + outputs,
        lambda row: f"{total[row]} is not {prompts[row]} + {outputs[row]}",
        "the total is request plus response; correct the row",
    )


def _single(table: Table) -> tuple[Any, Callable[[int], str], str]:
    """A row with a batch size other than 1 stands for several requests and is refused."""
    batch = table.columns["batch_size"]
    return (
        batch != 1,
        lambda row: f"a batch of {batch[row]} is not one request",
        "write each request as a row of its own with batch_size 1",
    )


_AZURE = CsvFormat("azure", "ContextTokens", "GeneratedTokens", "TIMESTAMP", cells.timestamps)
_BURSTGPT = CsvFormat(
    "burstgpt", "Request tokens", "Response tokens", "Timestamp",
    verified="Total tokens", verify=_totals,
)  # fmt: skip
_MEASURED = CsvFormat("measured", "prompt_tokens", "output_tokens", "arrival_s", id="id")
_PAIRS = CsvFormat("pairs", "prompt_tokens", "answer_tokens", id="id")
_SPLITWISE = CsvFormat(
    "splitwise", "prompt_size", "token_size", "arrival_timestamp", id="request_id",
    verified="batch_size", verify=_single,
)  # fmt: skip
_VIDUR = CsvFormat(
    "vidur", "num_prefill_tokens", "num_decode_tokens", "arrived_at", may_lack_times=True
)

read_azure = partial(read_csv, _AZURE)
"""Azure traces of 2023 (seven decimals) or 2024 (offset, or ``T``), converted in integers."""

read_burstgpt = partial(read_csv, _BURSTGPT)
"""BurstGPT traces. Times are seconds, whole ones in the published files, so that requests share
them: see ``spread_arrivals``. Failed requests have 0 tokens: ``drop_empty`` leaves them out."""

read_measured = partial(read_csv, _MEASURED)
"""Measured vLLM runs. Their further times (``queued_s``, ...) are no part of the requests, and are
of a clock with another zero point than ``arrival_s``."""

read_pairs = partial(read_csv, _PAIRS)
"""Length pairs without arrival times: counts of GSM8K, ShareGPT and arXiv are stored so."""

read_splitwise = partial(read_csv, _SPLITWISE)
"""Splitwise-sim traces, with times in decimal seconds."""

read_vidur = partial(read_csv, _VIDUR)
"""Vidur traces, with times in decimal seconds, or files of lengths only."""
