"""The table of a study: one row a cell, a column for each choice and each result."""

from __future__ import annotations

import csv
import io
import json
import logging
from dataclasses import asdict
from math import fsum
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.calibration.intervals import Interval, mean_interval
from orsched.common.errors import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from orsched.planning.study.plan import Cell

_LOG = logging.getLogger(__name__)

TABLES = ("table.csv", "table.parquet")

RUN = "run_"
"""Columns whose names begin so hold wall-clock figures: all that differs between two runs."""

FIRST = (
    "cell", "instance", "workers", "arrivals", "predictions", "policy", "information", "seed",
    "status", "error",
)  # fmt: skip
CHOICES = (
    "instance_", "workers_", "arrivals_", "predictions_", "failures_", "autoscale_", "concurrency",
    "param_",
)  # fmt: skip
"""Prefixes of columns with arguments of an instance, a split, laws and a policy's parameters."""


def rows_of(
    cells: Sequence[Cell], records: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return one row for each finished cell, in order; all rows have the same columns."""
    rows = [_row(cell, records[cell.key]) for cell in cells if cell.key in records]
    names: dict[str, None] = dict.fromkeys(FIRST)
    for prefix in CHOICES:
        found = {name for row in rows for name in row if name.startswith(prefix)}
        names |= dict.fromkeys(sorted(found))
    # Failed cells lack the results, and policies may report different ones.
    names |= dict.fromkeys(n for row in rows for n in row if not n.startswith(RUN))
    names |= dict.fromkeys(sorted({n for row in rows for n in row if n.startswith(RUN)}))
    # A table that is undefined in one row is None there and has columns of its own elsewhere.
    tables = {n[:i] for n in names for i in range(len(n)) if n[i] == "_"}
    kept = {n for row in rows for n, value in row.items() if value is not None} | {*FIRST}
    names = {n: None for n in names if n not in tables or n in kept}
    return [{name: row.get(name) for name in names} for row in rows]


def _row(cell: Cell, record: Mapping[str, Any]) -> dict[str, Any]:
    from orsched.data.links import read_split
    from orsched.instances.arrivals import read_arrivals
    from orsched.instances.failures import read_failures
    from orsched.instances.predictions import read_predictor

    content = cell.content
    workers = content["workers"]
    split = read_split(workers) if isinstance(workers, str) else None
    many = len(workers) if isinstance(workers, list) else workers
    row: dict[str, Any] = {
        "cell": cell.key,
        "instance": cell.instance.label,
        "workers": many if split is None else split.workers,
        "arrivals": content["arrivals"],
        "predictions": content["predictions"],
        "policy": cell.policy.label,
        "information": record.get("information"),
        "seed": content["seed"],
        "status": record["status"],
        "error": record.get("error"),
    }
    instance = content["instance"]
    sample = {"sample": instance["sample"]} if "sample" in instance else {}
    row |= _flat("instance", {**instance.get("arguments", {}), **sample})
    if split is not None:
        row |= _flat("workers", {"split": split.name, **split.link_values})
    row |= _flat("arrivals", _law(content["arrivals"], read_arrivals))
    row |= _flat("predictions", _law(content["predictions"], read_predictor))
    row |= _flat("failures", _law(content.get("failures"), read_failures))
    row |= _flat("autoscale", content.get("autoscale") or {})
    row |= _flat("", {"concurrency": most} if (most := content.get("concurrency")) else {})
    row |= _flat("param", content["policy"]["parameters"])
    row |= {"objective": content["objective"]} if "objective" in content else {}
    row |= _flat("", record.get("results", {}))
    return row | _flat("run", record["run"])


def _law(spec: str | None, read: Callable[[str], Any]) -> dict[str, Any]:
    if spec is None:
        return {}
    law = read(spec)
    values: dict[str, Any] = asdict(law)
    return {"law": law.law, **values}


def _flat(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables as one, names joined by underscores; lists as JSON texts."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{prefix}_{name}" if prefix else name
        if isinstance(value, dict):
            found |= _flat(key, value)
        elif isinstance(value, (list, tuple)):
            found[key] = json.dumps(value)
        else:
            found[key] = value
    return found


def write_tables(rows: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Write ``table.csv`` and, with pyarrow, ``table.parquet``, each in full or not at all."""
    from orsched.files.document import write_bytes, write_text
    from orsched.files.text import warn_of_formulas

    text, parquet = (folder / name for name in TABLES)
    warn_of_formulas((value for row in rows for value in row.values()), str(text))
    write_text(text, csv_text(rows))
    content = _parquet(rows)
    if content is not None:
        write_bytes(parquet, content)


def arrive_over_time(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether requests arrive over time in some cell: by a law, or in the instance itself.

    Cells of before this was kept do not say it of the instance.
    """
    return any(row["arrivals"] is not None or row.get("last_arrival_ns") for row in rows)


def csv_text(rows: Sequence[Mapping[str, Any]], *, run_columns: bool = True) -> str:
    """Return rows as CSV; without the run columns it is the same for any run of a study."""
    names = [
        name for name in (rows[0] if rows else FIRST) if run_columns or not name.startswith(RUN)
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _parquet(rows: Sequence[Mapping[str, Any]]) -> bytes | None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        _LOG.warning("%s is written, %s is not: it needs pip install 'orsched[parquet]'", *TABLES)
        return None
    names = list(rows[0]) if rows else list(FIRST)
    sink = io.BytesIO()
    pq.write_table(pa.table({name: _column([row[name] for row in rows]) for name in names}), sink)
    return sink.getvalue()


def _column(values: list[Any]) -> Any:
    """Return a column of one type: numbers, truth values, or else texts."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds == {int} and all(-(2**63) <= v < 2**63 for v in values if v is not None):
        return pa.array(values, pa.int64())
    if kinds and kinds <= {int, float}:
        return pa.array([None if v is None else float(v) for v in values], pa.float64())
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    return pa.array([None if v is None else str(v) for v in values], pa.string())


class Group(NamedTuple):
    """The interval of one column over the seeds of one combination of choices."""

    choice: tuple[Any, ...]
    interval: Interval


def over_seeds(
    rows: Sequence[Mapping[str, Any]], value: str, choices: Sequence[str] | None = None
) -> list[Group]:
    """Return mean and 95 % confidence interval of a column over the seeds, group by group.

    Groups are the rows with equal ``choices`` (default: all columns of choices that differ
    somewhere), in the order of the table; failed cells and undefined values are left out.
    Raises ``InputError`` for a column that is missing or holds no numbers.
    """
    names = varying(rows) if choices is None else choices
    require_numbers(rows, value)
    for name in names:
        _require_column(rows, name, "choices")
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if row["status"] == "ok" and row[value] is not None:
            groups.setdefault(tuple(row[name] for name in names), []).append(row[value])
    return [Group(choice, mean_interval(values)) for choice, values in groups.items()]


def paired(rows: Sequence[Mapping[str, Any]], value: str, policy: str, other: str) -> list[Group]:
    """Return the relative difference of two policies on equal workloads, over the seeds.

    ``(policy - other) / other`` of a column, seed by seed: below 0 the first has less. Groups are
    the choices beside policy and its parameters; a policy with several parameters is averaged
    over them first. Raises ``InputError`` for a missing policy or column.
    """
    require_numbers(rows, value)
    for name in (policy, other):
        if name not in {row["policy"] for row in rows}:
            raise InputError(
                f"unknown policy {name!r} in the table",
                field="policy",
                remedy="name a policy of the study",
            )
    names = [n for n in varying(rows) if n != "policy" and not n.startswith("param_")]
    sides: dict[str, dict[tuple[Any, ...], list[float]]] = {policy: {}, other: {}}
    for row in rows:
        if row["policy"] in sides and row["status"] == "ok" and row[value] is not None:
            key = (*(row[name] for name in names), row["seed"])
            sides[row["policy"]].setdefault(key, []).append(row[value])
    groups: dict[tuple[Any, ...], list[float]] = {}
    for key, values in sides[policy].items():
        base = sides[other].get(key)
        if base is not None and any(base):
            mean, against = fsum(values) / len(values), fsum(base) / len(base)
            groups.setdefault(key[:-1], []).append((mean - against) / against)
    return [Group(choice, mean_interval(values)) for choice, values in groups.items()]


def varying(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns of choices that differ between rows, the seed not among them."""
    first = [n for n in FIRST if n not in ("cell", "seed", "status", "error", "information")]
    names: Iterable[str] = rows[0] if rows else ()
    first.append("objective")
    chosen = [n for n in names if n in first or n.startswith(CHOICES)]
    return [name for name in chosen if len({row[name] for row in rows}) > 1]


def independent(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """Return those columns whose values do not follow from the ones kept before; the first stay."""
    kept: list[str] = []
    for name in dict.fromkeys(names):
        pairs = {(*(row[n] for n in kept), row[name]) for row in rows}
        if len(kept) < 2 or len(pairs) > len({pair[:-1] for pair in pairs}):
            kept.append(name)
    return kept


def _require_column(rows: Sequence[Mapping[str, Any]], name: object, field: str) -> None:
    if rows and not (isinstance(name, str) and name in rows[0]):
        near = nearest(name, rows[0], 3)
        remedy = f"did you mean {' or '.join(near)}?" if near else "see the header of table.csv"
        raise InputError(f"the table has no column {name!r}", field=field, remedy=remedy)


def require_numbers(rows: Sequence[Mapping[str, Any]], name: str, field: str = "column") -> None:
    """Raise ``InputError`` unless a column exists and holds numbers."""
    _require_column(rows, name, field)
    for row in rows:
        value = row[name]
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise InputError(
                f"the column {name!r} holds no numbers", field=field, remedy="e.g. makespan_ns"
            )
