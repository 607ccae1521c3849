"""Parquet files: columns in the table, everything else as JSON in the schema's metadata."""

from __future__ import annotations

import json
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import required_pandas
from orsched.common.errors import InputError, known_names, unavailable
from orsched.common.scalars import ROWS
from orsched.data.length_quantiles import LEVELS, QUANTILES
from orsched.files.document import require_format, require_object
from orsched.files.instance_document import (
    COLUMNS,
    NAMES,
    instance_from_document,
    instance_header,
    label_names,
)
from orsched.files.schedule_document import (
    OPTIONAL,
    STEP_COLUMNS,
    WORK_COLUMNS,
    schedule_from_document,
    schedule_header,
    work_columns,
)
from orsched.files.text import parse_json, read_bytes

if TYPE_CHECKING:
    from os import PathLike

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

METADATA_KEY = b"orsched"
TABLES = {"steps": STEP_COLUMNS, "work": WORK_COLUMNS}
TEXTS = ("id", "table")
BYTES_A_ROW = 200
"""Unpacked bytes that count as a row: a schedule's have at most 100, beside names of requests."""

LONG_COLUMNS = tuple(dict.fromkeys(STEP_COLUMNS + WORK_COLUMNS))
"""Columns of a schedule's one long table, beside ``table``: steps and work together."""


def instance_to_parquet(instance: Instance) -> bytes:
    """Return an instance as a Parquet file: one row a request."""
    pa = _pyarrow()
    requests = instance.requests
    header = instance_header(instance)
    columns = {
        name: pa.array(getattr(requests, name))
        for name in COLUMNS
        if getattr(requests, name) is not None
    }
    if requests.ids is not None:
        columns["id"] = pa.array(requests.ids, pa.string())
    if requests.weights is not None:
        columns["weight"] = pa.array(requests.weights)
    header |= label_names(requests)
    if requests.predicted_quantiles is not None:
        levels = list(requests.quantile_levels or ())
        starts = pa.array(np.arange(len(requests) + 1) * len(levels), pa.int64())
        values = pa.array(requests.predicted_quantiles.ravel(), pa.int64())
        columns[QUANTILES] = pa.LargeListArray.from_arrays(starts, values)
        header[LEVELS] = levels
    if requests.prefixes is not None:
        offsets = pa.array(requests.prefixes.offsets, pa.int64())
        ids = pa.array(requests.prefixes.ids, pa.int64())
        columns["prefix_ids"] = pa.LargeListArray.from_arrays(offsets, ids)
        header["prefix_block_tokens"] = requests.prefixes.block_tokens
    return _file(pa.table(columns), header)


def instance_from_parquet(raw: bytes) -> Instance:
    """Inverse of ``instance_to_parquet``; raises ``InputError`` that names row and field."""
    table, header = _table(raw)
    require_format(header, "orsched/instance")
    if "requests" in header:
        raise InputError("requests are rows of a Parquet file", field="requests", remedy="drop it")
    numbers = (*COLUMNS, "weight")
    known = [*numbers, "id", QUANTILES, "prefix_ids"]
    _require_columns(table.column_names, known, COLUMNS[:2])
    columns: dict[str, Any] = {n: _numbers(table, n) for n in numbers if n in table.column_names}
    if "id" in table.column_names:
        texts, index = _texts(table, "id")
        columns["ids"] = [texts[i] for i in index.tolist()]
    if QUANTILES in table.column_names:
        columns[QUANTILES] = _rows(*_lists(table, QUANTILES))
    if LEVELS in header:
        columns[LEVELS] = header.pop(LEVELS)
    if "prefix_ids" in table.column_names:
        columns["prefix_offsets"], columns["prefix_ids"] = _lists(table, "prefix_ids")
    if "prefix_block_tokens" in header:
        columns["prefix_block_tokens"] = header.pop("prefix_block_tokens")
    columns |= {names: header.pop(names) for names in NAMES if names in header}
    return instance_from_document({**header, "requests": columns})


def schedule_to_parquet(schedule: Schedule) -> bytes:
    """Return a schedule as a Parquet file: one long table of steps, then work."""
    pa = _pyarrow()
    n, m = len(schedule.steps), len(schedule.work)
    columns = {"table": pa.array(["steps"] * n + ["work"] * m, pa.string())}
    for name in dict.fromkeys(STEP_COLUMNS + work_columns(schedule.work)):
        parts = []
        for owner, count in ((schedule.steps, n), (schedule.work, m)):
            values = getattr(owner, name, None)
            parts.append(pa.nulls(count, pa.int64()) if values is None else pa.array(values))
        columns[name] = pa.concat_arrays(parts)
    return _file(pa.table(columns), schedule_header(schedule))


def schedule_from_parquet(raw: bytes) -> Schedule:
    """Inverse of ``schedule_to_parquet``; raises ``InputError`` that names row and field."""
    table, header = _table(raw)
    require_format(header, "orsched/schedule", "orsched/trace")
    for name in TABLES:
        if name in header:
            raise InputError(f"{name} are rows of a Parquet file", field=name, remedy="drop it")
    known = ["table", *LONG_COLUMNS]
    _require_columns(table.column_names, [*known, *OPTIONAL], known)
    further = tuple(name for name in OPTIONAL if name in table.column_names)
    names, owner = _texts(table, "table")
    strange = np.array([name not in TABLES for name in names], dtype=bool)[owner]
    if strange.any():
        row = int(np.argmax(strange))
        raise InputError(
            f"{names[owner[row]]!r:.60} is not a table",
            row=row,
            field="table",
            remedy="steps or work",
        )
    document: dict[str, Any] = dict(header)
    for name, columns in TABLES.items():
        own = np.array([text == name for text in names], dtype=bool)
        rows = np.flatnonzero(own[owner])
        part = table.take(rows)
        wanted = columns + further if name == "work" else columns
        for column in (*LONG_COLUMNS, *further):
            if column not in wanted and part[column].null_count < len(rows):
                raise InputError(
                    f"rows of {name} have no value here",
                    row=int(np.argmax(part[column].is_valid().to_numpy())),
                    field=f"{name}.{column}",
                    remedy="leave it empty",
                )
        document[name] = {c: _numbers(part, c, f"{name}.{c}") for c in wanted}
    return schedule_from_document(document)


def _file(table: Any, header: dict[str, Any]) -> bytes:
    import pyarrow.parquet as pq

    text = json.dumps(header, ensure_ascii=False, allow_nan=False)
    sink = BytesIO()
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: text.encode()}), sink)
    return sink.getvalue()


def holds_rows(path: str | PathLike[str]) -> bool:
    """Whether a path is that of a Parquet table which orsched did not write, and can be read."""
    if Path(path).suffix.lower() != ".parquet":
        return False
    try:
        schema = import_module("pyarrow.parquet").read_schema(path)
    except (ImportError, OSError, ValueError):
        return False
    return METADATA_KEY not in (schema.metadata or {})


def frame_of(path: str | PathLike[str]) -> Any:
    """Return the rows of a Parquet table as a data frame."""
    return required_pandas() and _read(read_bytes(path)).to_pandas()


def _table(raw: bytes) -> tuple[Any, dict[str, Any]]:
    table = _read(raw)
    text = (table.schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        raise InputError(
            "the metadata has no key 'orsched'",
            field="orsched",
            remedy="give a file that orsched wrote; requests alone go into orsched.load",
        )
    try:
        header = parse_json(text.decode())
    except (InputError, UnicodeDecodeError) as error:
        raise InputError(f"the metadata: {error}", field="orsched", remedy="correct it") from None
    return table, require_object(header, "orsched")


def _read(raw: bytes) -> Any:
    pa = _pyarrow()
    import pyarrow.parquet as pq

    if not raw:
        raise InputError("the file is empty", remedy="write it again from its source")
    try:
        file = pq.ParquetFile(pa.BufferReader(raw))
        _require_unique(file.schema_arrow.names)
        _require_size(file.metadata)
        leaves = {file.schema.column(i).path for i in range(len(file.schema))}
        texts = sorted(leaves.intersection(TEXTS))
        # Texts stay in dictionaries: what many rows share is held once.
        return pq.ParquetFile(pa.BufferReader(raw), read_dictionary=texts).read()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"not a Parquet file, or cut short: {reason:.200}", remedy="write it again"
        ) from None


def _require_size(metadata: Any) -> None:
    """Refuse, before anything is unpacked, what a few bytes can stand for."""
    most, unpacked = metadata.num_rows, 0
    for group in range(metadata.num_row_groups):
        part = metadata.row_group(group)
        for column in range(part.num_columns):
            chunk = part.column(column)
            most = max(most, chunk.num_values)
            unpacked += chunk.total_uncompressed_size
    ROWS.require(max(most, -(-unpacked // BYTES_A_ROW)))


def _require_unique(names: list[str]) -> None:
    for i, name in enumerate(names):
        if name in names[:i]:
            raise InputError("the column appears twice", field=name, remedy="keep one of them")


def _require_columns(names: list[str], known: list[str], required: Any) -> None:
    for name in names:
        if name not in known:
            raise InputError(
                "unknown column", field=name, remedy=known_names(name, known, "known columns: ")
            )
    for name in required:
        if name not in names:
            raise InputError("the column is missing", field=name, remedy="add it")


def _column(table: Any, name: str, field: str) -> Any:
    column = table[name]
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise InputError("the value is missing", row=row, field=field, remedy="every row has one")
    return column


def _numbers(table: Any, name: str, field: str | None = None) -> Any:
    pa = _pyarrow()
    column = _column(table, name, field or name)
    if not pa.types.is_integer(column.type) and len(column):
        raise InputError(
            f"a column of type {column.type}", row=0, field=field or name, remedy="use int64"
        )
    parts = [_buffer(chunk) for chunk in column.chunks if len(chunk)]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _texts(table: Any, name: str) -> tuple[list[str], Any]:
    """Return the different texts of a column, and for each row the index of its own."""
    pa = _pyarrow()
    column = _column(table, name, name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InputError(f"a column of type {column.type}", row=0, field=name, remedy="use texts")
    texts: list[str] = []
    indices = [np.zeros(0, np.int64)]
    for chunk in column.dictionary_encode().chunks:
        if chunk.dictionary.null_count or chunk.indices.null_count:
            raise InputError("a value is missing", field=name, remedy="every row has one")
        indices.append(_buffer(chunk.indices).astype(np.int64) + len(texts))
        texts += chunk.dictionary.to_pylist()
    return texts, np.concatenate(indices)


def _buffer(values: Any) -> Any:
    """Return whole numbers from their buffer: pyarrow's own conversion imports pandas."""
    kind = np.dtype(str(values.type))
    return np.frombuffer(values.buffers()[1], kind)[values.offset :][: len(values)]


def _lists(table: Any, name: str) -> tuple[Any, Any]:
    """Return offsets and values of a column of lists of whole numbers."""
    pa = _pyarrow()
    column = _column(table, name, name)
    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    if not is_list or not pa.types.is_integer(column.type.value_type):
        raise InputError(
            f"a column of type {column.type}", row=0, field=name, remedy="use lists of int64"
        )
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    lengths = [chunk.value_lengths().to_numpy() for chunk in chunks]
    offsets = np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64)
    parts = [chunk.flatten() for chunk in chunks]
    for part, first in zip(parts, np.cumsum([0, *map(len, parts)]), strict=False):
        if part.null_count:
            at = int(first) + int(np.argmax(part.is_null().to_numpy(zero_copy_only=False)))
            row = int(np.searchsorted(offsets, at, side="right")) - 1
            raise InputError("the value is missing", row=row, field=name, remedy="drop the null")
    ids = [part.to_numpy() for part in parts]
    return offsets, np.concatenate(ids) if ids else np.empty(0, np.int64)


def _rows(offsets: Any, values: Any) -> Any:
    """Return lists as rows of one array, or, where they are not of one length, as lists."""
    widths = np.unique(np.diff(offsets))
    if len(widths) == 1:
        return values.reshape(-1, int(widths[0])) if widths[0] else [[]] * (len(offsets) - 1)
    return [part.tolist() for part in np.split(values, offsets[1:-1])] if len(widths) else []


def require_pyarrow() -> None:
    """Raise ``MissingDependencyError`` unless Parquet files can be read and written."""
    _pyarrow()


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise unavailable(
            error, "Parquet files need pyarrow: pip install 'orsched[parquet]', or use JSON"
        ) from None
    return pyarrow
