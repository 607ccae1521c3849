"""Records of requests: one row each, under the names that DynoSim's records use."""

from __future__ import annotations

import csv
import io
import json
import os
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.errors import InputError, unavailable
from orsched.common.scalars import require_suffix
from orsched.common.units import NS_PER_MS
from orsched.data.schedule import DECODE, INVALID, PREFILL
from orsched.metrics.timeline import Timeline
from orsched.metrics.timeline_rows import before
from orsched.metrics.token_times import request_times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

TIMES = (
    "arrival_time_ms", "first_admit_ms", "first_token_ms", "last_token_ms", "ttft_ms",
    "e2e_latency_ms", "itl_ms",
)  # fmt: skip
COUNTS = (
    "input_length", "requested_output_length", "output_length", "reused_input_tokens",
    "prefill_worker_idx", "decode_worker_idx", "client", "restarts", "invalid_tokens",
)  # fmt: skip
STAYS = "stay_worker_idx"
"""The column with the worker of each stay: a list, in CSV with spaces between."""

COLUMNS = ("request_id", *TIMES, *COUNTS, STAYS)
"""Names of the columns, in order."""

_MISSING = -1
_CHUNK = 10_000


def record_columns(line: Timeline) -> dict[str, IntColumn]:
    """Return the columns but ``request_id``, one row a request; -1 where there is no value.

    The ``_ms`` columns hold whole nanoseconds here. ``itl_ms`` is the mean time per token after
    the first, rounded down; ``requested_output_length`` is N^d and ``output_length`` the tokens
    yielded, fewer where a run was stopped: such a request has no last token. The workers of prefill
    and decode, where they are one value, are those of the last stay.
    """
    instance, schedule = line.instance, line.schedule
    table, times = instance.requests, request_times(instance, schedule, line)
    first, finish, arrival = times["first_token_ns"], times["finish_ns"], table.arrival_ns
    served = finish >= 0
    done = served & (line.yielded >= table.output_tokens)
    itl = (finish - first) // np.maximum(table.output_tokens - 1, 1)
    work, steps = schedule.work, schedule.steps
    prefilled = np.zeros(len(table), np.int64)
    own = work.phase == PREFILL
    np.add.at(prefilled, work.request[own], work.tokens[own])
    workers = {}
    for phase in (PREFILL, DECODE):
        rows = np.flatnonzero(work.phase == phase)
        workers[phase] = np.full(len(table), _MISSING, np.int64)
        workers[phase][work.request[rows]] = steps.worker[work.first_step[rows]]

    stays, invalid = np.zeros(len(table), np.int64), np.zeros(len(table), np.int64)
    np.add.at(stays, line.stay_request, 1)
    held = np.flatnonzero(work.phase == INVALID)
    np.add.at(invalid, work.request[held], line.row_rounds[held])

    def known(values: IntColumn, where: Any = served) -> IntColumn:
        return np.where(where, values, _MISSING)

    return {
        "arrival_time_ms": arrival,
        "first_admit_ms": times["prefill_start_ns"],
        "first_token_ms": first,
        "last_token_ms": known(finish, done),
        "ttft_ms": known(first - arrival, first >= 0),
        "e2e_latency_ms": known(finish - arrival, done),
        "itl_ms": known(itl, done & (table.output_tokens > 1)),
        "input_length": table.prompt_tokens,
        "requested_output_length": table.output_tokens,
        "output_length": np.minimum(line.yielded, table.output_tokens),
        "reused_input_tokens": np.where(served, np.maximum(table.prompt_tokens - prefilled, 0), 0),
        "prefill_worker_idx": workers[PREFILL],
        "decode_worker_idx": workers[DECODE],
        "client": times["client"],
        "restarts": np.maximum(stays - 1 - _came(line), 0),
        "invalid_tokens": invalid,
    }


def _came(line: Timeline) -> IntColumn:
    """Return how many stays of each request began with a cache that came over a link."""
    sent = line.schedule.transfers
    many = len(line.instance)
    return np.bincount(np.zeros(0, np.int64) if sent is None else sent.request, minlength=many)


def write_records(instance: Instance, schedule: Schedule, path: str | os.PathLike[str]) -> None:
    """Write one record a request as CSV, JSONL or Parquet, by suffix, in order of the rows.

    Times are milliseconds: exact decimals in CSV and JSONL, the nearest float in Parquet. A missing
    value is empty, null. Equal input gives equal bytes. Raises ``InputError`` for another suffix, a
    name that is not valid Unicode or a file that cannot be written, ``MissingDependencyError`` for
    Parquet without pyarrow.
    """
    suffix = require_suffix(os.fspath(path), WRITERS)
    line = Timeline(instance, schedule)
    stays = before(np.bincount(line.stay_request, minlength=len(instance)))
    WRITERS[suffix](_Records(_names(instance), record_columns(line), line.stay_worker, stays), path)


def milliseconds(ns: int) -> str:
    """Return nanoseconds, at least 0, as exact decimal milliseconds."""
    return f"{ns // NS_PER_MS}.{ns % NS_PER_MS:06d}"


def _names(instance: Instance) -> list[str]:
    ids = instance.requests.ids
    if ids is None:
        return [str(row) for row in range(len(instance))]
    for row, name in enumerate(ids):
        if not name.isascii() and any("\ud800" <= c <= "\udfff" for c in name):
            raise InputError(
                f"{name!r} is not valid Unicode", row=row, field="ids", remedy="rename the request"
            )
    return list(ids)


class _Records(NamedTuple):
    """Names, columns, and the workers ``stay_worker[offset[r] : offset[r + 1]]`` of request r."""

    names: list[str]
    columns: dict[str, IntColumn]
    stay_worker: IntColumn
    offset: IntColumn

    def rows(self, missing: str, between: str, form: str) -> Iterator[list[str]]:
        """Return the rows as texts; ``form`` holds a list, whose items have ``between`` between."""
        for start in range(0, len(self.names), _CHUNK):
            texts = [self.names[start : start + _CHUNK]]
            for name in (*TIMES, *COUNTS):
                values = self.columns[name][start : start + _CHUNK].tolist()
                shown: Callable[[int], str] = milliseconds if name in TIMES else str
                texts.append([missing if v == _MISSING else shown(v) for v in values])
            borders = self.offset[start : start + _CHUNK + 1].tolist()
            workers = self.stay_worker[borders[0] : borders[-1]].tolist()
            lists = (workers[a - borders[0] : b - borders[0]] for a, b in pairwise(borders))
            texts.append([form.format(between.join(map(str, each))) for each in lists])
            yield from (list(row) for row in zip(*texts, strict=True))


def _write_csv(records: _Records, path: str | os.PathLike[str]) -> None:
    from orsched.files.document import write_text
    from orsched.files.text import warn_of_formulas

    def lines() -> Iterator[str]:
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in records.rows("", " ", "{}"):
            writer.writerow(row)
            if buffer.tell() > 1_000_000:
                yield buffer.getvalue()
                buffer.seek(0)
                buffer.truncate()
        yield buffer.getvalue()

    warn_of_formulas(records.names, os.fspath(path))
    write_text(path, lines())


def _write_jsonl(records: _Records, path: str | os.PathLike[str]) -> None:
    from orsched.files.document import write_text

    def lines() -> Iterator[str]:
        for name, *row in records.rows("null", ",", "[{}]"):
            pairs = zip(COLUMNS[1:], row, strict=True)
            fields = ",".join(f'"{key}":{value}' for key, value in pairs)
            yield f'{{"request_id":{json.dumps(name)},{fields}}}\n'

    write_text(path, lines())


def _write_parquet(records: _Records, path: str | os.PathLike[str]) -> None:
    from orsched.files.document import opened

    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise unavailable(
            error, "Parquet files need pyarrow: pip install 'orsched[parquet]', or use CSV or JSONL"
        ) from None
    arrays = [pa.array(records.names, pa.string())]
    for name in (*TIMES, *COUNTS):
        values: Any = records.columns[name]
        missing = values == _MISSING
        arrays.append(pa.array(values / NS_PER_MS if name in TIMES else values, mask=missing))
    arrays.append(
        pa.ListArray.from_arrays(pa.array(records.offset, pa.int32()), records.stay_worker)
    )
    with opened(path, binary=True) as stream:
        parquet.write_table(pa.table(arrays, names=list(COLUMNS)), stream)


WRITERS = {".csv": _write_csv, ".jsonl": _write_jsonl, ".parquet": _write_parquet}
"""The format of each suffix."""
