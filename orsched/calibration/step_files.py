"""Files of measured steps: what models are fitted to, and runs that they are judged by."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.calibration.measurements import (
    DECODE,
    MIXED,
    PHASES,
    PREFILL,
    Measurements,
    prompts_of,
)
from orsched.common.errors import InputError, known_names
from orsched.common.units import MAX_TIME_NS, NS_PER_S
from orsched.costs import mixed_ns
from orsched.costs.linear import attended_tokens
from orsched.files.document import write_text
from orsched.files.tables import not_csv, parse_header
from orsched.files.text import locating, read_text

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.costs import CostModel

REQUIRED = ("phase", "count", "duration_ns")
OPTIONAL = ("tokens", "longest", "context_sum", "context_max", "run", "cached")
COLUMNS = (*REQUIRED, *OPTIONAL)
UNITS = {"duration_ns": 0, "duration_us": 3, "duration_ms": 6, "duration_s": 9}
"""Columns that the duration may stand in, and the power of ten that makes it nanoseconds."""

TEMPLATE = """\
# Times of a server's steps, one line a step; lines that begin with # are left out. Then
#   orsched calibrate --from rows.csv -o cost.json
#   orsched compare requests.csv --clients 64 --cost cost.json
# phase     prefill: a stage over 'count' prompts; decode: one round of 'count' requests;
#           mixed: a prompt beside such a round (optional)
# count     prompts of the stage, or requests in the round
# duration  of the step: duration_ms here; duration_s, duration_us and duration_ns do as well
# tokens    of all prompts of the stage; longest: of its longest one (one prompt: either will do)
# context_sum, context_max  tokens in the caches of the round's requests: all, and the most of one
#           (optional: without them only models that do not look at contexts can be fitted)
# cached    optional: tokens in the cache before the prompt, where it is a chunk behind others
# run       optional: 0 for a step measured alone, 1, 2, ... for those of the first, second, ... run
# At least five stages and five rounds of different sizes. The numbers below are an example.
phase,count,duration_ms,tokens,longest,context_sum,context_max
prefill,1,33.4,64,64,,
prefill,1,58.3,256,256,,
prefill,2,91.6,512,300,,
prefill,4,158.1,1024,300,,
prefill,8,291.3,2048,400,,
prefill,8,557.5,4096,700,,
decode,1,29.3,,,500,500
decode,4,29.9,,,1600,700
decode,8,30.7,,,4000,800
decode,16,32.4,,,8000,900
decode,32,35.8,,,16000,900
decode,64,42.5,,,32000,1000
"""


class _Lines(NamedTuple):
    """A table of steps: the names in its first line, and the cells of the others."""

    first: int
    names: list[str]
    body: list[tuple[int, dict[str, str]]]  # line number from 1, cells by name


def _read(path: Path) -> _Lines | None:
    """Return the lines that are not empty and no comments; None without any."""
    reader = csv.reader(StringIO(read_text(path), newline=""), strict=True)
    try:
        lines = [
            (reader.line_num, [cell.strip() for cell in line])
            for line in reader
            if line and not line[0].lstrip().startswith("#")
        ]
    except csv.Error as error:
        raise not_csv(error, reader.line_num) from None
    if not lines:
        return None
    (first, cells), body = lines[0], lines[1:]
    names = parse_header(cells, first)
    for row, line in body:
        if len(line) != len(cells):
            raise InputError(
                f"{len(line)} cells, but {len(cells)} columns",
                row=row,
                remedy="give each row one cell for each column",
            )
    return _Lines(first, names, [(row, dict(zip(names, line, strict=False))) for row, line in body])


def _require_names(lines: _Lines, known: tuple[str, ...], needed: tuple[str, ...]) -> None:
    for name in lines.names:
        if name not in known:
            remedy = f"{known_names(name, known)}; orsched calibrate --template shows them"
            raise InputError(f"unknown column {name!r}", row=lines.first, field=name, remedy=remedy)
    for name in needed:
        if name not in lines.names:
            remedy = "add it; orsched calibrate --template shows how"
            raise InputError("the column is missing", row=lines.first, field=name, remedy=remedy)


def _whole(text: str, name: str, row: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= MAX_TIME_NS):
        raise InputError(
            f"{text!r} is not a whole number", row=row, field=name, remedy="give a whole number"
        )
    return int(text)


def write_measurements(measurements: Measurements, path: Path) -> None:
    """Write measurements; ``read_measurements`` gives them back equal."""
    columns = measurements.to_dict()
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(zip(*(columns[name] for name in COLUMNS), strict=True))
    with locating(path):
        write_text(path, text.getvalue())


def read_measurements(path: Path) -> Measurements:
    """Read measurements; the first line names the columns, in any order.

    ``phase``, ``count`` and ``duration_ns`` must be there, or ``duration_us``, ``_ms`` or ``_s`` in
    its place, with a fraction. A column left out and an empty cell are 0; of a single prompt
    ``tokens`` and ``longest`` are the same, so that one is enough. Lines that begin with # are left
    out (``TEMPLATE`` has such).
    """
    with locating(path):
        lines = _read(path)
        if lines is None:
            raise InputError("the file is empty", remedy="orsched calibrate --template prints one")
        renamed = [name if name not in UNITS else "duration_ns" for name in lines.names]
        if renamed.count("duration_ns") > 1:
            twice = [name for name in lines.names if name in UNITS]
            raise InputError(
                "the column appears twice", row=lines.first, field=twice[0], remedy="keep one"
            )
        known = (*COLUMNS, *(name for name in UNITS if name not in COLUMNS))
        needed = tuple(name for name in REQUIRED if name not in renamed)
        _require_names(lines, known, needed)
        columns: dict[str, list[Any]] = {
            column: [_cell(name, cells[name], row) for row, cells in lines.body]
            for name, column in zip(lines.names, renamed, strict=True)
        }
        _fill_single_prompts(columns)
        try:
            return Measurements.from_dict(columns)
        except InputError as error:
            if error.row is None:
                raise
            row = lines.body[error.row][0]
            raise InputError(
                error.problem, row=row, field=error.field, remedy=error.remedy
            ) from None


def _cell(name: str, text: str, row: int) -> str | int:
    if name == "phase":
        return text
    if name in UNITS and name != "duration_ns":
        return _duration_ns(name, text, row)
    return 0 if not text and name in OPTIONAL else _whole(text, name, row)


def _duration_ns(name: str, text: str, row: int) -> int:
    """Return a duration with a fraction as whole nanoseconds, the nearest."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not 0 < value < Decimal(10) ** 12:
        raise InputError(
            f"{text!r} is not a duration above 0",
            row=row,
            field=name,
            remedy="give a duration above 0",
        )
    return round(value.scaleb(UNITS[name]))


def _fill_single_prompts(columns: dict[str, list[Any]]) -> None:
    """Let ``tokens`` and ``longest`` of one prompt stand for each other."""
    size = len(columns["phase"])
    tokens, longest = (columns.setdefault(name, [0] * size) for name in ("tokens", "longest"))
    for row, phase in enumerate(columns["phase"]):
        if phase == MIXED or (phase == PREFILL and columns["count"][row] == 1):
            tokens[row] = tokens[row] or longest[row]
            longest[row] = longest[row] or tokens[row]


_OF = {
    PREFILL: ("prompts", "tokens", "longest"),
    DECODE: ("rounds", "active", "context_sum", "context_max"),
    MIXED: ("active", "context_sum", "context_max", "prompts", "tokens", "longest"),
}
_BEFORE = ("cached", "attended")
_NEEDED = ("phase", "start_ns", "end_ns")
_OF_STEPS = (*_NEEDED, *dict.fromkeys(name for names in _OF.values() for name in names), *_BEFORE)


class RunStep(NamedTuple):
    """A step of a run, or a run of rounds."""

    phase: str  # prefill, decode or mixed
    start_ns: int
    end_ns: int
    rounds: int = 1  # how many, in phase decode
    active: int = 0  # of the (first) round, and the next two
    context_sum: int = 0
    context_max: int = 0
    prompts: int = 0
    tokens: int = 0  # of the prompts in the step
    longest: int = 0  # tokens of the longest prompt
    cached: int = 0  # tokens in the cache before them, added up
    attended: int = 0  # tokens that the prompt tokens attend to, added up; 0: not known

    def predicted_ns(self, cost: CostModel) -> int:
        """Return what a cost model says of it; prompts are as equal as their longest allows."""
        load = (self.active, self.context_sum, self.context_max)
        if self.phase == DECODE:
            return cost.rounds_ns(self.rounds, *load)
        prompts = prompts_of(self.prompts, self.tokens, self.longest)
        return mixed_ns(cost, prompts, *load, self._before(prompts))

    def _before(self, prompts: list[int]) -> list[int]:
        """Return the tokens cached before each prompt: as many before each token as on average.

        That is exact for one prompt. Where the step has several and ``attended`` is not known, most
        of the tokens may be of those with nothing before them: then nothing is counted.
        """
        if not self.cached:
            return []
        if self.attended:
            mean = (self.attended - attended_tokens(prompts)) // self.tokens
            return [max(0, mean)] * len(prompts)
        return [self.cached] if len(prompts) == 1 else []


@dataclass(frozen=True)
class Verdict:
    """What a run took, and what a cost model says of it; sums in ns by phase that the run has."""

    file: str  # of the run's steps
    measured_ns: dict[str, int]
    predicted_ns: dict[str, int]

    @property
    def error(self) -> float:
        """Share by which the prediction of the whole run is above what was measured."""
        return sum(self.predicted_ns.values()) / sum(self.measured_ns.values()) - 1

    def to_dict(self) -> dict[str, Any]:
        """Return file, measured_s, predicted_s, error, and the last three of each phase."""
        return {
            "file": self.file,
            "measured_s": sum(self.measured_ns.values()) / NS_PER_S,
            "predicted_s": sum(self.predicted_ns.values()) / NS_PER_S,
            "error": self.error,
            "phases": {
                phase: {
                    "measured_s": measured / NS_PER_S,
                    "predicted_s": self.predicted_ns[phase] / NS_PER_S,
                    "error": self.predicted_ns[phase] / measured - 1,
                }
                for phase, measured in self.measured_ns.items()
            },
        }


def judge(cost: CostModel, file: str, steps: list[RunStep]) -> Verdict:
    """Return what a cost model says of a run beside what it took."""
    measured: dict[str, int] = {}
    predicted: dict[str, int] = {}
    for phase in PHASES:
        found = [step for step in steps if step.phase == phase]
        if found:
            measured[phase] = sum(step.end_ns - step.start_ns for step in found)
            predicted[phase] = sum(step.predicted_ns(cost) for step in found)
    return Verdict(file, measured, predicted)


def read_steps(path: Path) -> list[RunStep]:
    """Read the steps of a run: CSV with ``phase``, ``start_ns``, ``end_ns`` and what is in a step.

    Columns may be in any order; what a phase does not use may be empty or left out, ``cached`` and
    ``attended`` by all (``RunStep``).
    """
    with locating(path):
        lines = _read(path)
        if lines is not None:
            _require_names(lines, _OF_STEPS, _NEEDED)
        if lines is None or not lines.body:
            raise InputError("the file has no step", remedy="one line a step")
        return [_step(cells, row) for row, cells in lines.body]


def _step(line: dict[str, str], row: int) -> RunStep:
    phase = line["phase"]
    if phase not in PHASES:
        raise InputError(
            f"unknown phase {phase!r}", row=row, field="phase", remedy=f"known: {', '.join(PHASES)}"
        )
    names = ("start_ns", "end_ns", *_OF[phase])
    found = {name: _whole(line.get(name) or "", name, row) for name in names}
    least = {"end_ns": found["start_ns"] + 1, "start_ns": 0, "context_sum": 0, "context_max": 0}
    for name, value in found.items():
        if value < least.get(name, 1):
            raise InputError(
                f"{value} is too small",
                row=row,
                field=name,
                remedy=f"give at least {least.get(name, 1)}",
            )
    if phase != DECODE:
        count, tokens, longest = (found[name] for name in _OF[PREFILL])
        if not longest + count - 1 <= tokens <= count * longest:
            raise InputError(
                f"no {count} prompts with the longest of {longest} have {tokens} tokens",
                row=row,
                field="tokens",
                remedy="correct the number of tokens, or the longest",
            )
        found |= {name: _whole(line.get(name) or "0", name, row) for name in _BEFORE}
    return RunStep(phase, **found)
