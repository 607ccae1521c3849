"""Lines of library code by folder, now or beside an earlier revision.

python -m benchmarks.lines [REVISION]

``lines`` are all lines of the Python files; ``code`` are those that hold more than a comment or a
docstring.
"""

from __future__ import annotations

import argparse
import ast
import io
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


class Counts(NamedTuple):
    """What a folder holds."""

    files: int = 0
    lines: int = 0
    code: int = 0
    functions: int = 0

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
    functions = 0
    for node in ast.walk(tree):
        functions += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        text = getattr(getattr(node, "value", None), "value", None)
        if isinstance(node, ast.Expr) and isinstance(text, str):
            held -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return Counts(1, len(source.splitlines()), len(held), functions)


def by_folder(files: Iterator[tuple[str, str]]) -> dict[str, Counts]:
    """Return counts by folder, two levels deep, of files given as path and text."""
    found: dict[str, Counts] = {}
    for path, source in files:
        parts = path.split("/")
        if parts[0] in FOLDERS and path.endswith(".py"):
            folder = "/".join(parts[:-1][:2])
            found[folder] = found.get(folder, Counts()).plus(count(source))
    return dict(sorted(found.items()))


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
    """Return a row for each folder and one for all."""
    total, earlier = Counts(), Counts()
    found: list[dict[str, object]] = []
    for folder in sorted({*ours, *(before or {})}):
        here, there = ours.get(folder, Counts()), (before or {}).get(folder, Counts())
        total, earlier = total.plus(here), earlier.plus(there)
        found.append(_row(folder, here, None if before is None else there))
    return [*found, _row("all", total, None if before is None else earlier)]


def _row(folder: str, here: Counts, there: Counts | None) -> dict[str, object]:
    row: dict[str, object] = {"folder": folder, **here._asdict()}
    if there is not None:
        row |= {"lines before": there.lines, "change": here.lines - there.lines}
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(prog="lines", description=__doc__.splitlines()[0])
    parser.add_argument("revision", nargs="?", help="a commit to compare with")
    given = parser.parse_args(arguments).revision
    before = None if given is None else by_folder(at(given))
    print("\n".join(table(rows(by_folder(now()), before))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
