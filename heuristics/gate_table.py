"""The table of a learned gate and its file: JSON that is checked in full; nothing in it is run."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orsched.columns import shown
from orsched.errors import InputError
from orsched.scalars import is_number

if TYPE_CHECKING:
    import os

FORMAT, VERSION = "orsched/gate", 1
SIGNS = ("idle", "waited", "lot")
"""What a gate looks at, as ``LearnedGate`` works them out; each is 1 where a rule says prefill."""
FIELDS = (
    "format", "version", "weights", "queue_edges", "decoding_edges", "thresholds", "trained",
)  # fmt: skip
LARGEST = 1e6
"""The largest weight and threshold."""
MOST_EDGES = 16


@dataclass(frozen=True)
class GateTable:
    """When to prefill: where the weighted signs reach the threshold of the state.

    Attributes:
        weights: of each of ``SIGNS``, at least 0.
        queue_edges: where classes of the queue that a stage would leave behind begin, over the
            clients, strictly increasing.
        decoding_edges: where classes of the decoding clients begin, over the clients.
        thresholds: by whether arrivals are expected, class of the queue, class of decoding.
    """

    weights: tuple[float, ...]
    queue_edges: tuple[float, ...]
    decoding_edges: tuple[float, ...]
    thresholds: tuple[tuple[tuple[float, ...], ...], ...]

    def threshold(self, arrivals: bool, queue: float, decoding: float) -> float:
        """Return the threshold of a state."""
        row = self.thresholds[arrivals][bisect_right(self.queue_edges, queue)]
        return row[bisect_right(self.decoding_edges, decoding)]

    def to_document(self) -> dict[str, Any]:
        """Return the table as a JSON object."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "weights": dict(zip(SIGNS, self.weights, strict=True)),
            "queue_edges": list(self.queue_edges),
            "decoding_edges": list(self.decoding_edges),
            "thresholds": [[list(row) for row in rows] for rows in self.thresholds],
        }


def table_from(document: object) -> GateTable:
    """Return the table of a JSON object; raises ``InputError`` at the field that is wrong."""
    from orsched.files.document import require_format, require_object

    values = require_format(document, FORMAT)
    for name in values:
        if name not in FIELDS:
            remedy = f"the fields are {', '.join(FIELDS)}"
            raise InputError("is unknown", field=shown(name), remedy=remedy)
    weights = require_object(values.get("weights"), "weights")
    for name in weights:
        if name not in SIGNS:
            remedy = f"one of {', '.join(SIGNS)}"
            raise InputError(f"{shown(name)} is no sign", field="weights", remedy=remedy)
    found = tuple(_number(weights.get(name), f"weights.{name}") for name in SIGNS)
    if not any(found):
        raise InputError("all are 0", field="weights", remedy="give one that is above 0")
    queue, decoding = _edges(values, "queue_edges"), _edges(values, "decoding_edges")
    regimes = _list(values.get("thresholds"), "thresholds", 2)
    thresholds = []
    for place, rows in enumerate(regimes):
        field = f"thresholds[{place}]"
        made = []
        for at, row in enumerate(_list(rows, field, len(queue) + 1)):
            here = f"{field}[{at}]"
            cells = enumerate(_list(row, here, len(decoding) + 1))
            made.append(tuple(_number(cell, f"{here}[{column}]") for column, cell in cells))
        thresholds.append(tuple(made))
    return GateTable(found, queue, decoding, tuple(thresholds))


def _list(value: object, field: str, length: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != length:
        what = f"a list of {len(value)}" if isinstance(value, list) else "no list"
        remedy = f"a list of {length}: the edges make the classes"
        raise InputError(f"is {what}", field=field, remedy=remedy)
    return value


def _number(value: object, field: str) -> float:
    if not is_number(value) or not 0 <= value <= LARGEST:
        remedy = f"0 to {LARGEST:g}"
        raise InputError(f"{shown(value)} is no number from {remedy}", field=field, remedy=remedy)
    return float(value)


def _edges(values: dict[str, Any], field: str) -> tuple[float, ...]:
    edges = values.get(field)
    if not isinstance(edges, list) or len(edges) > MOST_EDGES:
        remedy = f"at most {MOST_EDGES} numbers that increase"
        raise InputError("is no such list", field=field, remedy=remedy)
    found = tuple(_number(edge, f"{field}[{place}]") for place, edge in enumerate(edges))
    for place, (low, high) in enumerate(itertools.pairwise(found)):
        if high <= low:
            where = f"{field}[{place + 1}]"
            raise InputError(f"{high:g} is not above {low:g}", field=where, remedy="sort them")
    return found


def load_gate(path: str | os.PathLike[str]) -> GateTable:
    """Return the table of a file; raises ``InputError`` that names the file and the field."""
    from orsched.files.text import locating, parse_json, read_text

    with locating(path):
        return table_from(parse_json(read_text(path)))


def save_gate(
    table: GateTable, path: str | os.PathLike[str], trained: dict[str, Any] | None = None
) -> None:
    """Write a table to a JSON file, whole or not at all; ``trained`` says on what."""
    from orsched.files.atomic import write_text
    from orsched.files.text import dump_json

    more = {} if trained is None else {"trained": trained}
    write_text(path, dump_json({**table.to_document(), **more}))
