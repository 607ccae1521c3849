"""Whether the tables of a page are what the commands on it print.

python -m benchmarks.pages [PAGE ...] reruns the commands and shows each row that they do not print.
Only tables that are the same on any machine are compared: none with times of this one. The lengths
of some are read from ``ORSCHED_DATA``.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from orsched.instances.datasets import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]

NUMBER = re.compile(r"(?<![\w+-])(?<!\d\.)[+-]?\d[\d,]*(?:\.\d+)?(?!\w)")
WORD = re.compile(r"\b(?!(?:to|s|ms|x)\b)[^\W\d_]+")
FOREIGN = ("pang", "paper", "difference", "bound", " only")
"""Columns and rows that others printed or other commands do, by a word in head or first cell."""


class Part(NamedTuple):
    """Tables of a page and the command that prints their rows.

    Attributes:
        page: name of a file in ``docs``.
        command: as on the page.
        headings: the sections whose tables are compared, all of them.
        data: whether it reads ``ORSCHED_DATA``; the others run without, since some would.
    """

    page: str
    command: str
    headings: tuple[str, ...]
    data: bool = False


MICO = "python -m benchmarks.reproductions.mico"
SSJF = "python -m benchmarks.reproductions.ssjf"
PARTS = (
    Part(
        "mico.md",
        f"{MICO} --sensitivity",
        (
            "Table 1: throughput over the baseline, 800 queries",
            "Figs. 7 to 10: 200 queries, batch size 3, 3 clouds",
            "Fig. 11 and Fig. 14: queries and models, 3 clouds",
            "Fig. 12: what Q gains, without back-off",
            "Fig. 13: what I gains",
            "Sensitivity",
        ),
        data=True,
    ),
    Part(
        "ssjf.md",
        f"{SSJF}_authors",
        (
            "Figs. 4 to 7",
            "Table 2",
            "Predictors trained here",
            "Figs. 4 to 8 with predictors trained here",
            "Fig. 9",
            "Fig. 8",
            "What the setting is worth",
        ),
    ),
    Part("ssjf.md", SSJF, ("Figs. 4 to 7, stricter",)),
    Part("ssjf.md", f"{SSJF} --predictors --aging --sensitivity", ("Aging",)),
)  # fmt: skip


def tables(text: str, heading: str) -> list[list[list[str]]]:
    """Return the tables of a section as rows of cells, the head first.

    Those between bars, and those that stand as they are printed: two spaces or more between cells.
    """
    found: list[list[list[str]]] = []
    here, fence, before = False, "", []
    for line in text.splitlines():
        if line.startswith("```"):
            fence, cells = "" if fence else line[3:], []
        elif line.startswith("#") and not fence:
            here, cells = line.lstrip("# ") == heading, []
        elif fence == "text":
            cells = re.split(" {2,}", line.strip()) if "  " in line.strip() else []
        else:
            cells = [cell.strip() for cell in line.strip("|").split("|")] if line[:1] == "|" else []
        if here and cells:
            if not before:
                found.append([cells])
            elif set("".join(cells)) - set(":- "):
                found[-1].append(cells)
        before = cells
    return found


def rows(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows of a table without what others printed, and without cells of words."""
    head = [any(word in cell.lower() for word in FOREIGN) for cell in table[0]]
    for row in table[1:]:
        if not any(word in row[0].lower() for word in FOREIGN):
            cells = zip(row, head, strict=True)
            yield " | ".join(c for c, foreign in cells if not foreign and not WORD.search(c))


def numbers(line: str) -> list[str]:
    """Return the numbers in a line, without commas."""
    line = line.replace("\N{PLUS-MINUS SIGN}", " ").replace("\N{MINUS SIGN}", "-")
    return [text.replace(",", "") for text in NUMBER.findall(line)]


def said(row: Sequence[str], line: Sequence[str]) -> bool:
    """Whether a line has the numbers of a row in their order, each rounded as in the row."""
    rest = iter(line)
    return all(any(_rounds_to(other, number) for other in rest) for number in row)


def _rounds_to(printed: str, number: str) -> bool:
    """Whether a printed number is the other but for digits that this one leaves out."""
    digits = len(number.partition(".")[2])
    if len(printed.partition(".")[2]) <= digits:
        return float(printed) == float(number)
    return abs(float(printed) - float(number)) <= 0.5 * 10**-digits + 1e-9


def stray(table: Sequence[Sequence[str]], lines: Sequence[str]) -> list[str]:
    """Return the rows of a table whose numbers stand in no line, and those without numbers."""
    printed = [numbers(line) for line in lines]
    wanted = {row: numbers(row) for row in rows(table)}
    return [r for r, n in wanted.items() if not n or not any(said(n, line) for line in printed)]


def printed(part: Part) -> list[str]:
    """Return the lines that the command of a part prints."""
    return _run(part.command, part.data)


def _counts_misses(text: str, status: int) -> bool:
    """Whether a status other than 0 is the number of claims that the command says do not hold."""
    last = text.rstrip().rpartition("\n")[2]
    found = re.fullmatch(r"(\d+) claims do not hold", last)
    return found is not None and min(99, int(found[1])) == status


def _run(command: str, data: bool) -> list[str]:
    program, *arguments = shlex.split(command)
    module = ["-m", "orsched"] if program == "orsched" else []
    names = set(os.environ) if data else set(os.environ) - {VARIABLE}
    done = subprocess.run(
        [sys.executable, *module, *arguments],
        cwd=ROOT,
        env={name: os.environ[name] for name in names},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 and not _counts_misses(done.stdout, done.returncode):
        raise RuntimeError(f"{command} ends with {done.returncode}: {done.stderr}")
    return done.stdout.splitlines()


def strays(part: Part) -> list[str]:
    """Return the rows of a part's tables that its command does not print, and what is missing."""
    text = (ROOT / "docs" / part.page).read_text()
    found = {heading: tables(text, heading) for heading in part.headings}
    missing = [f"no table below {heading!r}" for heading, seen in found.items() if not seen]
    if part.command not in re.sub(r"\\\n\s*", "", text):
        missing.append(f"the command is not on the page: {part.command}")
    if missing:
        return missing
    lines = printed(part)
    return [row for seen in found.values() for table in seen for row in stray(table, lines)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and compare; 1 if a row is not what its command prints."""
    parser = argparse.ArgumentParser(prog="pages", description=__doc__.splitlines()[0])
    names = sorted({part.page for part in PARTS})
    parser.add_argument("page", nargs="*", metavar="PAGE", help=f"of {', '.join(names)}")
    chosen = parser.parse_args(arguments).page or names
    wrong = 0
    for part in PARTS:
        if part.page in chosen:
            found = strays(part)
            wrong += len(found)
            print(f"{part.page}: {part.command}: {len(found)} rows differ", flush=True)
            print("".join(f"  {row}\n" for row in found), end="")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
