"""The ledger of readings: what five papers say, and what orsched makes of it.

python -m benchmarks.readings [--papers FOLDER]

checks docs/results-data/readings/PAPER.csv and prints how many readings each paper has; the page
*Readings* shows the files (``benchmarks.write_results``). A row is a numbered equation, a setting
or a statement: what it says, how it is read here, the code that holds it as ``module:name``, a test
of that code as ``path::name``, and a verdict. Its place is a section with the first words of the
sentence, at most ten, or, for what the paper does not state, the terms that were searched for, each
with the number of times that it occurs. ``--papers`` names a folder with the texts, PAPER.txt:
places are looked up there, and every numbered equation must have a row.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.speed.section import table
from benchmarks.write_results import ROOT, read

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EQUATIONS = {"pang": 43, "scls": 12, "ssjf": 0, "mico": 0, "echo": 8}
"""The papers, and how many numbered equations each has."""
VERDICTS = (
    "as printed", "repaired", "read as", "not implemented", "not stated", "rerun",
)  # fmt: skip
MOST_WORDS = 10
QUOTED = re.compile(r'(\S+) "(.+)"')
SEARCHED = re.compile(r'"([^"]+)" \((\d+)\)')
_FOLDERS = {"models", "heuristics", "instances", "runner"}


class Reading(NamedTuple):
    """A row of the ledger; ``what`` is ``(3)``, ``setting 2`` or ``statement 5``."""

    what: str
    place: str
    says: str
    here: str
    code: str
    test: str
    verdict: str


def readings(paper: str) -> list[Reading]:
    """Return the rows of a paper."""
    return [Reading(*(cell.strip("`") for cell in row)) for row in read("readings", paper).rows[1:]]


def numbered(text: str) -> int:
    """Return how many equations a text numbers: the n of the longest run (1) to (n). Texts with
    formulas in TeX have numbers at ends of lines, others anywhere."""
    found = r"(?:\((\d+)\)|\\tag\{(\d+)\})"
    pattern = found + r"\$*\s*$" if "$" in text else found
    numbers = {int(one or two) for one, two in re.findall(pattern, text, re.M)}
    count = 0
    while count + 1 in numbers:
        count += 1
    return count


def faults(paper: str, rows: Sequence[Reading], text: str | None = None) -> Iterator[str]:
    """Yield what is wrong with the rows of a paper; places are looked up in a text if it is given.

    >>> list(faults("echo", [Reading("setting 1", "", "a", "b", "", "", "read as")]))[:2]
    ['echo, setting 1: place is empty', 'echo, setting 1: code is empty']
    """
    numbers = [row.what for row in rows if row.what.startswith("(")]
    wanted = [f"({n})" for n in range(1, EQUATIONS[paper] + 1)]
    if numbers != wanted:
        yield f"{paper}: equations are {', '.join(numbers)}; they should be (1) to {wanted[-1:]}"
    if text is not None and numbered(text) != EQUATIONS[paper]:
        yield f"{paper}: the text numbers {numbered(text)} equations, not {EQUATIONS[paper]}"
    plain = None if text is None else " ".join(text.split())
    for row in rows:
        for fault in (*_of_row(row), *_of_place(row, plain)):
            yield f"{paper}, {row.what}: {fault}"


def _of_row(row: Reading) -> Iterator[str]:
    for name in ("place", "says", "here", "code", "test"):
        if not getattr(row, name):
            yield f"{name} is empty"
    if row.verdict not in VERDICTS:
        yield f"the verdict {row.verdict!r} is not one of: {', '.join(VERDICTS)}"
    if row.code and not exists(*row.code.partition(":")[::2]):
        yield f"no code {row.code}"
    path, _, name = row.test.partition("::")
    if row.test and not (name.startswith("test_") and _defines(ROOT / path, name)):
        yield f"no test {row.test}"


def _of_place(row: Reading, text: str | None) -> Iterator[str]:
    searched = SEARCHED.findall(row.place) if row.place.startswith("searched ") else []
    if (row.verdict == "not stated") != bool(searched):
        yield "what is not stated names the terms that were searched for, and nothing else does"
    for term, count in searched:
        if text is not None and text.count(term) != int(count):
            yield f"{term!r} occurs {text.count(term)} times"
    quoted = QUOTED.fullmatch(row.place)
    if quoted is None:
        if row.place and not searched:
            yield "the place is no section with a quotation"
        return
    if len(quoted[2].split()) > MOST_WORDS:
        yield f"quotes more than {MOST_WORDS} words"
    if text is not None and quoted[2] not in text:
        yield f"the text has no {quoted[2]!r}"


def exists(module: str, name: str) -> bool:
    """Whether a module defines a name, by its source: a class, a function, a constant, a method."""
    parts = module.removeprefix("orsched.").split(".")
    own = ("orsched.", "benchmarks.")
    folder = ROOT if parts[0] in _FOLDERS or module.startswith(own[1]) else ROOT / "orsched"
    path = folder.joinpath(*parts)
    files = [path.with_suffix(".py"), path / "__init__.py"]
    return module.startswith(own) and any(_defines(each, name) for each in files)


def _defines(path: Path, name: str) -> bool:
    return path.is_file() and name in _names(path)


@cache
def _names(path: Path) -> set[str]:
    return set(_defined(ast.parse(path.read_text()), ""))


def _defined(node: ast.AST, before: str) -> Iterator[str]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.ClassDef | ast.FunctionDef):
            yield before + each.name
            yield from _defined(each, f"{before}{each.name}.")
        for target in getattr(each, "targets", [getattr(each, "target", None)]):
            if isinstance(target, ast.Name):
                yield before + target.id


def main(arguments: Sequence[str] | None = None) -> int:
    """Print counts and faults; return 1 if there are any."""
    parser = argparse.ArgumentParser("readings", description=__doc__)
    parser.add_argument("--papers", type=Path, help="folder with the texts of the papers")
    options = parser.parse_args(arguments)
    rows, wrong = [], []
    for paper in EQUATIONS:
        found = readings(paper)
        kinds = Counter("equation" if r.what[0] == "(" else r.what.split()[0] for r in found)
        verdicts = Counter(row.verdict for row in found)
        row = {"paper": paper} | {f"{k}s": kinds[k] for k in ("equation", "setting", "statement")}
        rows.append(row | {verdict: verdicts[verdict] for verdict in VERDICTS})
        text = None if options.papers is None else (options.papers / f"{paper}.txt").read_text()
        wrong += faults(paper, found, text)
    print("\n".join([*table(rows), *wrong]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
