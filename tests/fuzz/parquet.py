"""Mutation of Parquet files: columns, types, rows, metadata, bytes."""

import json
from io import BytesIO

from tests.fuzz.mutate import json_bytes, mutated


def mutated_table(raw, dice):
    """Return the bytes of a table with one or two changes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(BytesIO(raw))
    for _ in range(dice.choice((1, 1, 2))):
        change = dice.choice((_cell, _cell, _column, _kind, _rows, _metadata, _nulls))
        try:
            table = change(table, dice)
        except (pa.ArrowException, ValueError, OverflowError, TypeError):
            continue
    sink = BytesIO()
    how = {"compression": dice.choice(("snappy", "zstd", "none", "gzip")),
           "row_group_size": dice.choice((None, None, 1, 3))}  # fmt: skip
    try:
        pq.write_table(table, sink, **how)
    except (pa.ArrowException, ValueError):
        return _damaged(raw, dice)
    content = sink.getvalue()
    return _damaged(content, dice) if dice.random() < 0.4 else content


def _cell(table, dice):
    import pyarrow as pa

    place = dice.randrange(table.num_columns)
    values = table.column(place).to_pylist()
    row = dice.randrange(len(values))
    kind = table.schema.field(place).type
    if pa.types.is_string(kind):
        values[row] = dice.choice(("", "\0", "steps", "work", "x" * 10**5, "\x1b[2J"))
    elif pa.types.is_integer(kind):
        values[row] = dice.choice((0, -1, 1, 2**31, 2**62, 2**63 - 1, -(2**63), None))
    else:
        values[row] = dice.choice(([], [2**62], [0] * 1000, None, [None]))
    return table.set_column(place, table.column_names[place], pa.array(values, kind))


def _column(table, dice):
    place = dice.randrange(table.num_columns)
    name, column = table.column_names[place], table.column(place)
    draw = dice.random()
    if draw < 0.4:
        return table.remove_column(place)
    if draw < 0.7:
        other = dice.choice((*table.column_names, "extra", "", "id", "prefix_ids"))
        return table.set_column(place, other, column)
    return table.append_column(dice.choice((name, "stay", "extra")), column)


def _kind(table, dice):
    import pyarrow as pa

    place = dice.randrange(table.num_columns)
    kind = dice.choice((
        pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.string(), pa.large_string(),
        pa.binary(), pa.bool_(), pa.timestamp("ns"), pa.decimal128(38, 0), pa.date32(),
        pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.int64()), pa.null(), pa.float16(),
    ))  # fmt: skip
    column = table.column(place).combine_chunks()
    if pa.types.is_null(kind):
        column = pa.nulls(len(column))
    elif pa.types.is_list(kind):
        column = pa.array([[value] for value in column.to_pylist()])
    elif dice.random() < 0.2:
        column = pa.StructArray.from_arrays([column], ["x"])
    else:
        column = column.cast(kind)
    return table.set_column(place, table.column_names[place], column)


def _rows(table, dice):
    import pyarrow as pa

    draw = dice.randrange(4)
    if draw < 2:
        return table.slice(0, draw * (len(table) // 2))
    if draw == 2:
        return table.take(dice.sample(range(len(table)), len(table)))
    return pa.concat_tables([table] * dice.choice((2, 3, 100)))


def _nulls(table, dice):
    import pyarrow as pa

    place = dice.randrange(table.num_columns)
    nulls = pa.nulls(len(table), table.schema.field(place).type)
    return table.set_column(place, table.column_names[place], nulls)


def _metadata(table, dice):
    metadata = dict(table.schema.metadata or {})
    header = json.loads(metadata.get(b"orsched", b"{}"))
    if dice.random() < 0.15:
        metadata.pop(b"orsched", None)
    else:
        metadata[b"orsched"] = json_bytes(mutated(header, dice) if header else header, dice)
    return table.replace_schema_metadata(metadata)


def _damaged(content, dice):
    """Flip bytes; the footer, which says what is where, more often than its share."""
    content = bytearray(content)
    for _ in range(dice.choice((1, 2, 8))):
        near_end = max(0, len(content) - 1500) if dice.random() < 0.6 else 0
        if len(content) > near_end:
            content[dice.randrange(near_end, len(content))] = dice.randrange(256)
    if dice.random() < 0.1:
        content = content[: dice.randrange(len(content) + 1)]
    return bytes(content)
