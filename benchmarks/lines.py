"""Lines of library code by room, held against a budget, or beside an earlier revision.

python -m benchmarks.lines [REVISION] [--check]

``lines`` are all lines of the Python files but those of examples in docstrings, which are tests;
``code`` are those that hold more than a comment or a docstring. ``--check`` fails where a room has
more than its budget, as ``make lint`` does. A budget only falls: a change that needs more lines
takes others out, or says in the same commit which room gives up as many.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tarfile
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.speed.section import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("orsched", "models", "heuristics", "instances", "runner")
EMPTY = (
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
)  # fmt: skip
EXAMPLE = re.compile(r"(?:^ *Examples?::?\n)?^\n^ *>>> .*(?:\n *[^ \n\"].*)*", re.M)
"""An example in a docstring, with its heading and the empty line before it."""
LONG, MANY = 60, 8
"""Lines of a function and parameters, above which it counts."""


class Room(NamedTuple):
    """Folders that share a budget.

    Attributes:
        folders: which.
        lines: the most lines that it may have: those of today.
        goal: lines that it is to come down to.
        files: the most files.
    """

    folders: tuple[str, ...]
    lines: int
    goal: int
    files: int


ROOMS = {
    "common, costs, data": Room(
        ("orsched/common", "orsched/costs", "orsched/data", "orsched/extending"), 8_610, 6_500, 40
    ),
    "simulator": Room(("orsched/simulator",), 4_775, 4_300, 15),
    "metrics, checker, certificates": Room(
        ("orsched/metrics", "orsched/checker", "orsched/certificates"), 11_735, 9_700, 44
    ),
    "solving": Room(("orsched/solving",), 3_205, 2_600, 12),
    "files and instances": Room(("orsched/files", "instances"), 8_475, 8_300, 34),
    "models": Room(("models",), 21_015, 19_300, 82),
    "heuristics": Room(("heuristics",), 11_040, 9_500, 44),
    "command line": Room(("orsched/cli",), 8_095, 6_000, 30),
    "views": Room(("orsched/views",), 5_355, 5_400, 20),
    "runner and calibration": Room(("runner", "orsched/calibration"), 15_695, 14_200, 61),
    "papers": Room(("orsched/papers",), 2_830, 2_880, 11),
    "planning, prediction": Room(("orsched/planning", "orsched/prediction"), 9_930, 9_200, 42),
}
"""The rooms; files directly in ``orsched/`` are the door and count in none."""
LONG_FUNCTIONS = 25
"""The most functions with more than ``LONG`` lines or ``MANY`` parameters."""


class Counts(NamedTuple):
    """What files hold; ``long`` are functions above ``LONG`` lines or ``MANY`` parameters."""

    files: int = 0
    lines: int = 0
    code: int = 0
    functions: int = 0
    long: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return both together."""
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))


def count(source: str) -> Counts:
    """Return what one file holds."""
    tree = ast.parse(source)
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in EMPTY:
            held |= set(range(token.start[0], token.end[0] + 1))
    functions = long = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions += 1
            long += _is_long(node, _of_examples(ast.get_docstring(node) or ""))
        text = getattr(getattr(node, "value", None), "value", None)
        if isinstance(node, ast.Expr) and isinstance(text, str):
            held -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = len(source.splitlines()) - _of_examples(source)
    return Counts(1, lines, len(held), functions, long)


def _of_examples(source: str) -> int:
    return sum(len(found[0].splitlines()) for found in EXAMPLE.finditer(source))


def _is_long(node: ast.FunctionDef | ast.AsyncFunctionDef, shown: int) -> bool:
    given = node.args
    parameters = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    many = len(parameters) - (parameters[:1] in (["self"], ["cls"]))
    return (node.end_lineno or node.lineno) - node.lineno + 1 - shown > LONG or many > MANY


def room_of(path: str) -> str:
    """Return the room of a file; ``door`` for those directly in ``orsched/``."""
    for name, room in ROOMS.items():
        if any(path.startswith(f"{folder}/") for folder in room.folders):
            return name
    return "door" if path.count("/") == 1 else "/".join(path.split("/")[:2])


def by_room(files: Iterator[tuple[str, str]]) -> dict[str, Counts]:
    """Return counts by room, of files given as path and text."""
    found: dict[str, Counts] = {}
    for path, source in files:
        if path.split("/")[0] in FOLDERS and path.endswith(".py"):
            room = room_of(path)
            found[room] = found.get(room, Counts()).plus(count(source))
    return found


def now() -> Iterator[tuple[str, str]]:
    """Yield the library's files as they are, links not followed."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name.split("/")[:1] != ["orsched"] or name.split("/")[1] not in FOLDERS:
                yield name, path.read_text()


def at(revision: str) -> Iterator[tuple[str, str]]:
    """Yield the files of a revision."""
    done = subprocess.run(
        ["git", "archive", revision, *FOLDERS], cwd=ROOT, capture_output=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(done.stderr.decode().strip())
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None and member.name.endswith(".py"):
                yield member.name, content.read().decode()


def rows(ours: dict[str, Counts], before: dict[str, Counts] | None) -> list[dict[str, object]]:
    """Return a row for each room and one for all."""
    total, earlier = Counts(), Counts()
    found: list[dict[str, object]] = []
    for name in [*ROOMS, *sorted({*ours, *(before or {})} - set(ROOMS))]:
        here, there = ours.get(name, Counts()), (before or {}).get(name, Counts())
        total, earlier = total.plus(here), earlier.plus(there)
        found.append(_row(name, here, None if before is None else there))
    return [*found, _row("all", total, None if before is None else earlier)]


def _row(name: str, here: Counts, there: Counts | None) -> dict[str, object]:
    row: dict[str, object] = {"room": name, **here._asdict()}
    if name in ROOMS:
        row |= {"budget": ROOMS[name].lines, "goal": ROOMS[name].goal}
    if there is not None:
        row |= {"lines before": there.lines, "change": here.lines - there.lines}
    return row


def exceeded(ours: dict[str, Counts]) -> list[str]:
    """Return a line for each room that has more than its budget."""
    found = []
    for name, room in ROOMS.items():
        for what, most in (("lines", room.lines), ("files", room.files)):
            here = getattr(ours.get(name, Counts()), what)
            if here > most:
                found.append(f"{name}: {here:,} {what}, the budget is {most:,}")
    if (long := sum(each.long for each in ours.values())) > LONG_FUNCTIONS:
        said = f"functions above {LONG} lines or {MANY} parameters"
        found.append(f"{long} {said}, the budget is {LONG_FUNCTIONS}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line; print the table, or check it."""
    parser = argparse.ArgumentParser(prog="lines", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("revision", nargs="?", help="a commit to compare with")
    parser.add_argument("--check", action="store_true", help="fail where a budget is exceeded")
    given = parser.parse_args(arguments)
    ours = by_room(now())
    if given.check:
        faults = exceeded(ours)
        print("\n".join(faults) or f"{sum(each.lines for each in ours.values()):,} lines: within")
        return 1 if faults else 0
    before = None if given.revision is None else by_room(at(given.revision))
    print("\n".join(table(rows(ours, before))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
