"""Tables of served configurations, each a description of which column holds what."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from orsched.calibration.gpus import TABLES as TABLE_FILES
from orsched.common.errors import InputError
from orsched.common.units import NS_PER_MS, NS_PER_S
from orsched.files import cells
from orsched.files.tables import chosen, read_chosen
from orsched.views.planning_charts import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from orsched.files.tables import Parser


@dataclass(frozen=True)
class Served:
    """One configuration that was served in closed loop: requests of a size, so many in flight.

    ``tensor``, ``pipeline``, ``data`` and ``expert`` are as in ``Layout`` (tp, pp, dp, ep).
    """

    id: str
    model: str
    gpu: str = ""  # "": the table does not say, as of the next two
    precision: str = ""
    engine: str = ""
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1
    prompt_tokens: int = 1
    output_tokens: int = 1
    concurrency: int = 1  # of all replicas
    requests: int | None = None  # how many were sent; None: the table does not say
    statistic: str = "mean"  # that TTFT and TPOT are over the requests
    measured: Mapping[str, float] = field(default_factory=dict)
    refused: str = ""  # why the row is left out


def _or(parse: Callable[[Sequence[str]], Any], empty: str = "0") -> Parser:
    """Return a parser that reads an empty cell as ``empty``."""
    return lambda column: parse([cell.strip() or empty for cell in column])


_COUNT = partial(cells.whole_numbers, maximum=2**20)
_PARSERS: dict[str, Parser] = {
    "text": list, "count": _or(_COUNT), "whole": cells.whole_numbers, "s": _or(cells.seconds),
    "size": partial(_COUNT, minimum=1, remedy="give a number of at least 1"),
    "ms": _or(partial(cells.seconds, unit_ns=NS_PER_MS)),
}  # fmt: skip
_IN_FLIGHT = re.compile(r"\bsilicon_concurrency=([1-9][0-9]{0,5})\b")
_RUN = re.compile(
    r"(?:_(?P<precision>fp8|fp4|bf16|int4))?_(?P<engine>vllm|sglang|trtllm)"
    r"_(?P<layout>tp|tep|dep)(?P<gpus>[1-9][0-9]{0,2})(?:_|$)"
)


def _silicon(row: dict[str, Any]) -> dict[str, Any]:
    said, each = _IN_FLIGHT.search(row["source"]), max(1, row["concurrency"]) * max(1, row["data"])
    refused = "" if row["mode"] == "agg" else "prefill and decode on different GPUs"
    return {"concurrency": int(said[1]) if said else each, "refused": refused}


def _token_position(row: dict[str, Any]) -> dict[str, Any]:
    told = _RUN.search(row["id"])
    if told is None:
        return {"refused": "the name of the run does not tell its GPUs"}
    other = row["completed"] != row["requests"] or row["rate"].strip().lower() != "inf"
    gpus, apart = int(told["gpus"]), told["layout"] == "dep"
    return {
        "precision": told["precision"] or "", "engine": told["engine"], "statistic": "median",
        "tensor": 1 if apart else gpus, "data": gpus if apart else 1,
        "expert": 1 if told["layout"] == "tp" else gpus,
        "prompt_tokens": round(row["prompt_tokens"] / row["requests"]),
        "output_tokens": round(row["output_tokens"] / row["requests"]),
        "refused": "requests failed, or arrived at a rate" if other else "",
    }  # fmt: skip


_REMEDY = "give rows with silicon_tpot_ms (AIConfigurator) or median_tpot (InferenceX)"
_DERIVED = {"silicon": _silicon, "token-position": _token_position}
TABLES = json.loads(TABLE_FILES.joinpath("served.json").read_text("utf-8"))  # columns of fields


def read_served(path: str | PathLike[str]) -> list[Served]:
    """Return the configurations of a table; ``InputError``: another table, a wrong cell or id."""
    kinds: list[str] = []

    def choose(header: list[str]) -> Mapping[str, Parser]:
        kinds.extend(name for name, each in TABLES.items() if each["told_by"] in header)
        if not kinds:
            raise InputError("is not a table of served configurations", remedy=_REMEDY)
        columns = TABLES[kinds[0]]["columns"].values()
        return chosen(header, {column: _PARSERS[kind] for column, kind in columns}, {})

    table = read_chosen(path, choose)
    columns = TABLES[kinds[0]]["columns"]
    values = zip(*(list(table.columns[column]) for column, _ in columns.values()), strict=True)
    found: dict[str, Served] = {}
    for line, row in zip(table.lines.tolist(), values, strict=True):
        each = _served(dict(zip(columns, row, strict=True)), kinds[0])
        if not each.id.strip() or each.id in found:
            said = "appears twice" if each.id.strip() else "is empty"
            raise InputError(
                f"the id {each.id!r} {said}", file=str(path), row=line, field=columns["id"][0],
                remedy="give each row an id of its own",
            )  # fmt: skip
        found[each.id] = each
    return list(found.values())


def _served(row: dict[str, Any], kind: str) -> Served:
    """Return a row as its kind of table reads it; counts that are 0 or empty are 1."""
    row = {name: value if isinstance(value, str) else int(value) for name, value in row.items()}
    measured = {name: row.pop(name) / NS_PER_S for name in METRICS if row.get(name)}
    known = {n: v for n, v in (row | _DERIVED[kind](row)).items() if n in Served.__annotations__}
    known = {n: max(1, v) if isinstance(v, int) else v for n, v in known.items()}
    return Served(**known, measured=measured)
