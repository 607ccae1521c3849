"""MPS and LP files of a linear model: text by lines, with what its names mean as comments."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol

from orsched.common.errors import InputError
from orsched.common.scalars import require_one_of, require_suffix
from orsched.models.full_mip.linear_solvers import BINARY, CONTINUOUS
from orsched.models.full_mip.programs import Program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orsched.models.full_mip.linear_solvers import LinearModel, Row
    from orsched.models.full_mip.mathopt_solvers import Changed


FORMATS = ("mps", "lp")
CONSTANT = "constant"
"""A column fixed to 1, whose coefficient is the objective's constant: every reader knows it."""


class HasProgram(Protocol):
    """A ``Mip``: what was built of a program."""

    @property
    def program(self) -> Program:
        """The program, which knows of changes."""


def file_lines(program: Program | HasProgram, style: str) -> Iterator[str]:
    """Yield the lines, each with its end, of a program as a file.

    The objective holds its constant: times the unit, which a comment gives, it is the program's
    ``measures`` in nanoseconds. Names have no blanks and fewer than 255 characters. Of a model from
    ``build`` the file has all changes that were made to it; where its objective is another than the
    program's, the file's is that objective, in its own units, or the negative of one that is
    maximised.

    Args:
        program: from ``read_program``; or from ``build``, the ``Mip`` or its ``program``.
        style: ``mps`` (free) or ``lp`` (CPLEX).

    Raises:
        InputError: it is neither, the model was changed into one that is not linear or holds nan,
            or there is no such style.
    """
    require_one_of(style, "format", FORMATS)
    own = program if isinstance(program, Program) else getattr(program, "program", None)
    if not isinstance(own, Program):
        raise InputError(
            f"an object of {type(program).__name__} is not a program",
            field="program",
            remedy="give build(instance) or read_program(instance)",
        )
    changed = None if own.changed is None else own.changed()
    model, constant = own.model, _constant(own)
    if changed is not None:
        model = changed.model
        if not _same_aim(own, changed):
            constant = str(changed.constant)
    mark, lines = ("*", _mps_lines) if style == "mps" else ("\\", _lp_lines)
    yield from (f"{mark} {line}\n" for line in _header(own, changed))
    name = "".join(c if c.isalnum() or c in "-." else "_" for c in own.instance.name)[:100]
    yield from lines(model, f"{own.name}-{name}", constant)


def _same_aim(program: Program, changed: Changed) -> bool:
    """Return whether a changed model still minimises what the program does."""
    same = sorted(changed.model.objective) == sorted(program.model.objective)
    return same and not changed.negated and changed.constant == 0


def _header(program: Program, changed: Changed | None) -> Iterator[str]:
    text = program.instance.name.encode("unicode_escape").decode("ascii")
    yield f"orsched: {program.name} of the instance {text[:200]}"
    yield f"sha256 of the instance: {program.instance.sha256}"
    if changed is not None:
        yield "changed after it was built: variables and rows may be other than the program's"
    if changed is None or _same_aim(program, changed):
        aim = f"minimise; {in_words(program)}"
    else:
        aim = "minimise the negative of" if changed.negated else "minimise"
        aim = f"{aim} an objective that is not the program's"
    yield f"{aim}; the column {CONSTANT}, fixed to 1, carries what is left out"
    for names, meaning in program.legend:
        yield f"{names}: {meaning}"
    yield "i counts requests, j clients, k stages or rounds, l levels, all from 0"


def in_words(program: Program) -> str:
    """Return what the objective is, times the unit of time: a mean is there with its divisor."""
    times = "" if program.divisor == 1 else f"{program.divisor} times "
    unit = f" x {program.unit_ns} ns" if program.unit_ns else ""
    return f"objective{unit} = {times}{program.measures}"


def _constant(program: Program) -> str:
    """Return the objective's constant in units, in digits enough to be exact where it can be."""
    whole, rest = divmod(program.constant_ns, program.unit_ns or 1)
    return f"{whole}" if not rest else repr(program.constant_ns / program.unit_ns)


def _mps_lines(model: LinearModel, name: str, constant: str) -> Iterator[str]:
    rows = [row for row in model.rows if (row.least, row.most) != (None, None)]
    yield f"NAME {name}\nROWS\n N objective\n"
    for row in rows:
        yield f" {_sense(row)} {row.name}\n"
    yield "COLUMNS\n"
    yield from _mps_columns(model, rows)
    yield f" {CONSTANT} objective {constant}\nRHS\n"
    for row in rows:
        side = row.most if _sense(row) == "L" else row.least
        if side:
            yield f" RHS {row.name} {side}\n"
    ranges = [row for row in rows if _is_range(row)]
    if ranges:
        yield "RANGES\n"
    for row in ranges:
        assert row.least is not None
        assert row.most is not None
        yield f" RANGE {row.name} {row.most - row.least}\n"
    yield f"BOUNDS\n FX BOUND {CONSTANT} 1\n"
    for column, low, high in zip(model.names, model.lower, model.upper, strict=True):
        yield f" MI BOUND {column}\n" if low == -inf else f" LO BOUND {column} {low}\n"
        yield f" PL BOUND {column}\n" if high == inf else f" UP BOUND {column} {high}\n"
    yield "ENDATA\n"


def _sense(row: Row) -> str:
    """Return E, G or L; a row with two sides is one of L with a range below it."""
    if row.least is not None and row.least == row.most:
        return "E"
    return "G" if row.most is None else "L"


def _is_range(row: Row) -> bool:
    return row.least is not None and row.most is not None and row.least != row.most


def _mps_columns(model: LinearModel, rows: Iterable[Row]) -> Iterator[str]:
    entries: list[list[tuple[str, int]]] = [[] for _ in model.names]
    for column, value in model.objective:
        entries[column].append(("objective", value))
    for row in rows:
        for column, value in zip(row.columns, row.coefficients, strict=True):
            entries[column].append((row.name, value))
    whole = False
    for name, kind, own in zip(model.names, model.kinds, entries, strict=True):
        if (kind != CONTINUOUS) != whole:
            whole = not whole
            yield f" MARKER 'MARKER' '{'INTORG' if whole else 'INTEND'}'\n"
        for row_name, value in own or [("objective", 0)]:
            yield f" {name} {row_name} {value}\n"
    if whole:
        yield " MARKER 'MARKER' 'INTEND'\n"


def _lp_lines(model: LinearModel, name: str, constant: str) -> Iterator[str]:
    names = model.names
    yield f"\\ {name}\nMinimize\n objective:"
    aim = [(names[column], str(value)) for column, value in model.objective]
    yield from _terms([*aim, (CONSTANT, constant)])
    yield "\nSubject To\n"
    for row in model.rows:
        pairs = zip(row.columns, row.coefficients, strict=True)
        terms = [(names[column], str(value)) for column, value in pairs]
        for label, sense, side in _sides(row):
            yield f" {label}:"
            yield from _terms(terms or [(CONSTANT, "0")])
            yield f" {sense} {side}\n"
    yield f"Bounds\n {CONSTANT} = 1\n"
    for column, low, high in zip(names, model.lower, model.upper, strict=True):
        yield f" {low} <= {column} <= {high}\n"
    for title, inside in (("Generals", (False,)), ("Binaries", (True,))):
        chosen = [
            column
            for column, kind, high in zip(names, model.kinds, model.upper, strict=True)
            if kind != CONTINUOUS and (kind == BINARY and high == 1) in inside
        ]
        if chosen:
            yield f"{title}\n"
            yield from (f" {column}\n" for column in chosen)
    yield "End\n"


def _sides(row: Row) -> list[tuple[str, str, int]]:
    """Return label, sense and side: a row with two different sides becomes two rows."""
    if row.least is not None and row.least == row.most:
        return [(row.name, "=", row.least)]
    found = []
    if row.least is not None:
        found.append((row.name, ">=", row.least))
    if row.most is not None:
        label = f"{row.name}_most" if row.least is not None else row.name
        found.append((label, "<=", row.most))
    return found


def _terms(terms: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a sum, eight terms a line."""
    for place, (name, value) in enumerate(terms):
        if place and place % 8 == 0:
            yield "\n "
        sign = "-" if value.startswith("-") else "+"
        yield f" {sign} {value.removeprefix('-')} {name}"


SUFFIXES = (".mps", ".lp")


def write_model(program: Program | HasProgram, path: str | os.PathLike[str]) -> None:
    """Write a program, or a model with all its changes, as ``file_lines`` has it.

    The suffix says the format: ``.mps`` or ``.lp``. The file is replaced as a whole. Raises
    ``InputError`` as ``file_lines`` does, for another suffix, or where it cannot be written.
    """
    target = Path(path)
    suffix = require_suffix(target, SUFFIXES)
    _write(target, suffix, file_lines(program, suffix.removeprefix(".")))


def _write(target: Path, suffix: str, lines: Iterable[str]) -> None:
    """Write beside the target, then put the file in its place."""
    try:
        with TemporaryDirectory(prefix=".orsched-", dir=target.parent or ".") as folder:
            made = Path(folder, f"model{suffix}")
            with made.open("w", encoding="utf-8", newline="\n") as stream:
                stream.writelines(lines)
            os.replace(made, target)
    except OSError as error:
        raise InputError(
            f"cannot write: {error.strerror}",
            file=str(target),
            remedy="choose a folder that exists and may be written to",
        ) from None
