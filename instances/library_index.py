"""The public instance library: its folder, its instances, and the record of the best known values.

``instances.csv`` has what each instance is and how it was made, ``FAMILY/NAME.json.gz`` those that
no generator makes, ``best/FAMILY.json`` the record. ``index.csv`` follows from the first and last.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import re
import zlib
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError, known_names, nearest
from orsched.files.document import write_bytes, write_text
from orsched.files.instance_document import instance_from_document
from orsched.files.text import locating, parse_json, read_bytes, read_text

if TYPE_CHECKING:
    from orsched.data.instance import Instance

PREFIX = "lib:"
"""How names of the library begin where other names may stand: ``orsched.load("lib:gate")``."""

VARIABLE = "ORSCHED_LIBRARY"
TRACKS = ("clairvoyant", "policy")
UNITS = {
    "makespan": "ns",
    "jct_mean": "ns, sum over requests",
    "ttft_mean": "ns, sum over requests",
    "weighted_tardiness_mean": "ns times weight, sum over requests",
    "slo_attainment": "requests that miss a limit",
}
"""The objectives of rows, each minimised as a whole number, with its unit."""

CLASSES = (("easy", 60), ("medium", 600), ("hard", 3600))
"""Classes of proven rows by the most seconds that schedule and proof took together."""

TOY_REQUESTS = 12
COLUMNS = (
    "instance", "objective", "track", "class", "status", "lower_bound", "upper_bound", "gap",
    "unit", "family", "requests", "workers", "method",
)  # fmt: skip
MAX_BYTES = 2**28
"""Most bytes of an unpacked file."""

_AGAIN = "take the file from the repository again"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


class Listed(NamedTuple):
    """A row of ``instances.csv``. ``allows`` is what schedules may do (``ALLOWANCES``), ``made``
    generator and parameters, {} of a file, ``retired`` why it is not used any more."""

    instance: str
    family: str
    requests: int
    workers: int
    objectives: tuple[str, ...]
    allows: tuple[str, ...]
    made: dict[str, Any]
    sha256: str
    source: str
    licence: str
    retired: str = ""


class Row(NamedTuple):
    """What is known of an instance, an objective and a track; entries are those of the record."""

    listed: Listed
    objective: str
    track: str
    lower: dict[str, Any] | None
    upper: dict[str, Any] | None
    search: dict[str, Any] | None

    @property
    def key(self) -> str:
        """The row's name: instance, objective and track."""
        return f"{self.listed.instance} {self.objective} {self.track}"

    @property
    def values(self) -> tuple[int, int | None]:
        """The proven lower bound, 0 without a certificate, and the best known value."""
        lower, upper = self.lower, self.upper
        return (0 if lower is None else lower["value"]), None if upper is None else upper["value"]

    @property
    def gap(self) -> float | None:
        """(upper - lower) / lower; None where a part lacks, 0 where both are 0."""
        low, high = self.values
        if high is None or (not low and high):
            return None
        return (high - low) / low if low else 0.0

    @property
    def status(self) -> str:
        """``proven`` by a certificate, ``searched`` to the end without one, or ``open``."""
        low, high = self.values
        if high is not None and low == high:
            return "proven"
        searched = self.search is not None and self.search["value"] == high
        return "searched" if searched else "open"

    @property
    def kind(self) -> str:
        """``toy``, ``easy``, ``medium`` or ``hard`` by what it took; ``open`` otherwise."""
        if self.status == "open":
            return "open"
        if self.listed.requests <= TOY_REQUESTS:
            return "toy"
        entries = [e for e in (self.lower, self.upper, self.search) if e is not None]
        took = sum(float(entry["seconds"]) for entry in entries)
        return next((name for name, most in CLASSES if took <= most), "open")

    def cells(self) -> dict[str, Any]:
        """Return the row as ``index.csv`` has it."""
        low, high = self.values
        one, method = self.listed, "" if self.upper is None else self.upper["method"]
        gap = None if self.gap is None else round(self.gap, 6)
        found = (one.instance, self.objective, self.track, self.kind, self.status, low, high, gap,
                 UNITS[self.objective], one.family, one.requests, one.workers, method)  # fmt: skip
        return dict(zip(COLUMNS, found, strict=True))


def folder() -> Path:
    """Return the folder that ``ORSCHED_LIBRARY`` names, or the shipped one; else ``InputError``."""
    named = os.environ.get(VARIABLE)
    if not named:
        return Path(str(files("orsched.instances"))) / "library"
    if not (Path(named) / "instances.csv").is_file():
        raise InputError(
            "holds no instances.csv",
            file=named,
            field=VARIABLE,
            remedy="name the folder instances/library of a checkout of orsched",
        )
    return Path(named)


def listed() -> dict[str, Listed]:
    """Return all instances by name, retired ones too."""
    path = folder() / "instances.csv"
    return _listed(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _listed(path: Path, _: int) -> dict[str, Listed]:
    found = {}
    with locating(path):
        cells: dict[str, Any]
        for number, cells in enumerate(csv.DictReader(io.StringIO(read_text(path))), 1):
            try:
                for name in ("objectives", "allows"):
                    cells[name] = tuple(cells[name].split())
                cells["made"] = dict(json.loads(cells["made"] or "{}"))
                cells |= {name: int(cells[name]) for name in ("requests", "workers")}
                row = Listed(**cells)
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                raise InputError(f"cannot be read: {error}", row=number, remedy=_AGAIN) from None
            if not (_NAME.fullmatch(row.instance) and _NAME.fullmatch(row.family)):
                raise InputError("must be names of a-z, 0-9 and -", row=number, field="instance")
            found[row.instance] = row
    return found


def named(name: str) -> Listed:
    """Return an instance's row by its name, with or without ``lib:``; ``InputError`` if unknown."""
    known = listed()
    plain = name.removeprefix(PREFIX)
    if plain not in known:
        near = known_names(plain, nearest(plain, known, 5), "near: ")
        remedy = "; ".join(filter(None, ("orsched library list shows all", near)))
        raise InputError(f"unknown instance of the library {plain!r}", field="name", remedy=remedy)
    return known[plain]


def load_listed(name: str) -> Instance:
    """Return an instance of the library by its name, with or without ``lib:``.

    Raises ``InputError`` if the name is unknown, its file is not here or is not the published one.
    """
    row = named(name)
    if row.made:
        from orsched.instances.catalog import generate, load_named

        made = dict(row.made)
        generator = made.pop("generator", None)
        found = generate(generator, **made) if generator else load_named(made.get("shipped", ""))
        place, remedy = "instances.csv", "use the numpy of constraints.txt: it drew other numbers"
    else:
        path = folder() / row.family / f"{row.instance}.json.gz"
        place, remedy = str(path), _AGAIN
        found = instance_from_document(unpacked(path))
    if found.sha256 != row.sha256:
        raise InputError(f"{row.instance} is not the published instance", file=place, remedy=remedy)
    return found.replace(name=f"{PREFIX}{row.instance}", source=row.source, licence=row.licence)


def unpacked(path: Path) -> Any:
    """Return the document in a gzip file; ``InputError`` where it is missing, broken or huge."""
    if not path.is_file():
        raise InputError(
            "the file is not here: the wheel holds a part of the library",
            file=str(path),
            remedy=f"set {VARIABLE} to the folder instances/library of a checkout of orsched",
        )
    try:
        with locating(path), gzip.open(io.BytesIO(read_bytes(path))) as stream:
            found = stream.read(MAX_BYTES + 1)
            if len(found) > MAX_BYTES:
                raise InputError(f"must be at most {MAX_BYTES:,} bytes unpacked")
            return parse_json(found.decode())
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        problem = f"is not a gzip file of text: {error}"
        raise InputError(problem, file=str(path), remedy=_AGAIN) from None


def packed(document: Any) -> bytes:
    """Return a document as the bytes of a gzip file, the same for equal documents."""
    return gzip.compress(canonical(document), 9, mtime=0)


def canonical(document: Any) -> bytes:
    """Return a document as JSON without blanks, names in order: what its SHA-256 is taken of."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def digest(document: Any) -> str:
    """Return the SHA-256 of a document."""
    return hashlib.sha256(canonical(document)).hexdigest()


def record(family: str) -> dict[str, dict[str, Any]]:
    """Return the record of a family: for each row ``lower``, ``upper``, ``search``, ``past``."""
    path = folder() / "best" / f"{family}.json"
    if not path.is_file():
        return {}
    with locating(path):
        found = parse_json(read_text(path))
        rows = found.get("rows") if isinstance(found, dict) else None
        if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
            raise InputError("must be a table of rows", field="rows")
        for key, row in rows.items():
            for side in ("lower", "upper", "search"):
                _require_entry(row.get(side), f"rows.{key}.{side}")
        return rows


def _require_entry(entry: Any, field: str) -> None:
    kinds: dict[str, tuple[type, ...]]
    kinds = {"value": (int,), "seconds": (int, float), "method": (str,), "sha256": (str,)}
    if entry is not None:
        for name, kind in kinds.items():
            if not isinstance(entry, dict) or not isinstance(entry.get(name), kind):
                raise InputError(f"must be an entry with {name}", field=field)


def write_record(family: str, rows: dict[str, dict[str, Any]]) -> None:
    """Write the record of a family and the index; a reader never sees half a file."""
    path = folder() / "best" / f"{family}.json"
    document = {"format": "orsched/library", "version": 1, "rows": dict(sorted(rows.items()))}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(document, indent=0, sort_keys=True) + "\n")
    write_text(folder() / "index.csv", index())


def evidence_path(row: Row, side: str) -> Path:
    """Return the file of a row's schedule or certificate, where it has one."""
    what = side if row.track == "clairvoyant" else row.track
    name = f"{row.listed.instance}.{row.objective}.{what}.json.gz"
    return folder() / "best" / row.listed.family / name


def write_evidence(row: Row, side: str, document: Any) -> None:
    """Write the schedule or the certificate of a row."""
    path = evidence_path(row, side)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, packed(document))


def rows(family: str | None = None) -> list[Row]:
    """Return the rows of all instances that are not retired, of one family or of all."""
    chosen = [o for o in listed().values() if family in (None, o.family) and not o.retired]
    records, found = {name: record(name) for name in {o.family for o in chosen}}, []
    for one in chosen:
        own = records[one.family]
        for objective in one.objectives:
            proofs = own.get(f"{one.instance} {objective} clairvoyant", {})
            for track in TRACKS:
                known = own.get(f"{one.instance} {objective} {track}", {})
                entries = proofs.get("lower"), known.get("upper"), known.get("search")
                found.append(Row(one, objective, track, *entries))
    return found


def row_of(name: str, objective: str, track: str) -> Row:
    """Return a row; ``InputError`` names what the library has in place of one that it has not."""
    one = named(name)
    if objective not in one.objectives or track not in TRACKS or one.retired:
        rest = one.retired or f"tracks: {', '.join(TRACKS)}"
        remedy = f"objectives of this instance: {', '.join(one.objectives)}; {rest}"
        problem = f"the library has no row {one.instance} {objective} {track}"
        raise InputError(problem, field="objective", remedy=remedy)
    same = (r for r in rows(one.family) if r.listed == one and r.objective == objective)
    return next(row for row in same if row.track == track)


def index() -> str:
    """Return the text of ``index.csv``, which follows from the instances and the record."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    listed_rows = (row for row in rows() if row.upper is not None or row.track == TRACKS[0])
    writer.writerows(row.cells() for row in listed_rows)
    return out.getvalue()
