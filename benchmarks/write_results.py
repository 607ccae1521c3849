"""Fill the tables of the result pages from recorded CSV files.

python -m benchmarks.write_results [PAGE ...] [--check] fills docs/results-PAGE.md: what stands
between ``<!-- table: NAME -->`` and ``<!-- end -->`` becomes the table of
docs/results-data/PAGE/NAME.csv and a line with its source. ``--check`` writes nothing and fails
where a page would change.

python -m benchmarks.write_results --record PAGE NAME [--nth N] [--seeds TEXT] -- COMMAND ...
runs the command and records the N-th table that it prints (1: the first). The others are aligned
columns two or more spaces apart, with or without a line of dashes, and Markdown tables.

A CSV begins with lines ``# key: value`` with the keys of ``KEYS``; a key may appear several times,
and what is unknown is left out. Then come a row of headers and rows of cells as printed.
``commit`` is the state that was run; of tables that older pages had, the commit that put the
figures on a page.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.speed.machine import describe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
KEYS = ("command", "nth", "commit", "seeds", "machine", "date", "note")
PLACE = re.compile(r"(<!-- table: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.S)
NUMBER = re.compile(r"[+\-\N{MINUS SIGN}]?\d[\d,]*(\.\d+)?")
NOT_ROWS = ("==", "PASS", "MISS", "HOLDS", "FAILS", "  - ", "```", "$ ")

CHEAP: dict[str, float] = {
    "latency-and-bounds/where-ranks-lose": 0,
    "predictions-and-gates/robust": 0,
    "fidelity-speed-peers/long-prompts": 0,
}
"""Tables, as PAGE/NAME, that the full tests record again: a few CPU seconds each at most.

The value is the relative difference that a number may have; 0 where it is exact. Columns whose
header says CPU are not compared.
"""


class Table(NamedTuple):
    """A recorded table: the values of each key of its source, and its rows, headers first."""

    source: dict[str, list[str]]
    rows: list[list[str]]


def file_of(page: str, name: str) -> Path:
    """Return the file of a table."""
    return DOCS / "results-data" / page / f"{name}.csv"


def read(page: str, name: str) -> Table:
    """Return a recorded table."""
    path = file_of(page, name)
    if not path.is_file():
        raise SystemExit(f"results-{page}.md: the table {name!r} has no file {path}")
    lines = path.read_text().splitlines(keepends=True)
    source: dict[str, list[str]] = {}
    while lines and lines[0].startswith("# "):
        key, _, value = lines.pop(0)[2:].partition(": ")
        source.setdefault(key, []).append(value.strip())
    rows = list(csv.reader(lines))
    faults = [f"the key {key!r} is unknown" for key in source if key not in KEYS]
    faults += [] if source.get("command") else ["it names no command"]
    faults += [] if len(rows) > 1 else ["it has no rows"]
    faults += [f"row {k} has {len(r)} cells, the header {len(rows[0])}"
               for k, r in enumerate(rows, 1) if len(r) != len(rows[0])]  # fmt: skip
    if faults:
        raise SystemExit(f"{path}: {'; '.join(faults)}")
    return Table(source, rows)


def write(page: str, name: str, table: Table) -> Path:
    """Write a table as a CSV file and return its path."""
    out = io.StringIO()
    for key in KEYS:
        out.writelines(f"# {key}: {value}\n" for value in table.source.get(key, []))
    csv.writer(out, lineterminator="\n").writerows(table.rows)
    path = file_of(page, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(out.getvalue())
    return path


def markdown(page: str, name: str) -> str:
    """Return a recorded table as Markdown, with the line of its source."""
    source, rows = read(page, name)
    right = [all(_numeric(row[k]) for row in rows[1:]) for k in range(len(rows[0]))]
    marks = ["---:" if each else "---" for each in right]
    body = [[cell.replace("|", r"\|") for cell in row] for row in (rows[0], marks, *rows[1:])]
    commands = ", ".join(f"`{command}`" for command in source["command"])
    said = {"commit": "commit ", "seeds": "seeds ", "machine": "", "date": ""}
    more = [before + value for key, before in said.items() for value in source.get(key, [])]
    file = f"[{name}.csv](results-data/{page}/{name}.csv)"
    notes = "".join(f" {note.rstrip('.')}." for note in source.get("note", []))
    lines = [f"| {' | '.join(row)} |" for row in body]
    return "\n".join([*lines, "", f"*Source: {'; '.join([commands, *more, file])}.{notes}*", ""])


def _numeric(cell: str) -> bool:
    plain = cell.strip("*` ")
    return plain in ("", "-", "\N{EN DASH}") or NUMBER.match(plain) is not None


def filled(page: str) -> str:
    """Return the text of a page with the tables of its CSV files."""
    text = (DOCS / f"results-{page}.md").read_text()
    return PLACE.sub(lambda found: found[1] + markdown(page, found[2]) + found[4], text)


def pages() -> list[str]:
    """Return the names of the pages with recorded tables, without ``results-`` and ``.md``."""
    found = [path for path in sorted(DOCS.glob("results-*.md")) if PLACE.search(path.read_text())]
    return [path.stem.removeprefix("results-") for path in found]


def printed_tables(text: str) -> list[list[list[str]]]:
    """Return the tables that a program printed, headers first."""
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        bars, wide = line.startswith("|"), "  " in line.strip() and not line.startswith(NOT_ROWS)
        if (bars or wide) and (not blocks[-1] or blocks[-1][0].startswith("|") == bars):
            blocks[-1].append(line)
        else:
            blocks.append([line] if bars or wide else [])
    found = [list(_cells(block)) for block in blocks if block]
    return [[row for row in rows if set("".join(row)) - set("-: ")] for rows in found]


def _cells(block: list[str]) -> Iterator[list[str]]:
    """Yield the cells of lines; columns are apart where two characters are blank in all lines."""
    width = max(map(len, block))
    lines = [line.ljust(width) for line in block]
    used = "".join("x" if set(chars) - {" "} else " " for chars in zip(*lines, strict=True))
    spans = [found.span() for found in re.finditer(r"x(?: ?x)*", used)]
    for line in lines:
        if line.startswith("|"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        else:
            yield [line[a:b].strip() for a, b in spans]


def output(command: str) -> str:
    """Return what a command prints, run in the repository's root."""
    words = shlex.split(command)
    own = {"python": [sys.executable], "orsched": [sys.executable, "-m", "orsched"]}
    words[:1] = own.get(words[0], words[:1])
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if not printed_tables(done.stdout):
        raise SystemExit(f"{command} prints no table: {done.returncode}, {done.stderr[-500:]}")
    return done.stdout


def record(command: str, nth: int, seeds: str | None) -> Table:
    """Run a command and return its N-th table with its source."""
    tables = printed_tables(output(command))
    if not 1 <= nth <= len(tables):
        raise SystemExit(f"{command} prints {len(tables)} tables; --nth {nth} is not one of them")
    here = describe()
    found = {
        "command": command,
        "nth": str(nth) if nth > 1 else None,
        "commit": here["commit"],
        "seeds": seeds,
        "machine": f"{here['cpu']}, {here['cores']} cores",
        "date": here["date"][:10],
    }
    source = {key: [value] for key, value in found.items() if value}
    return Table(source, tables[nth - 1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line; fill or check pages, or record a table."""
    as_it_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("write_results", None, __doc__, formatter_class=as_it_is)
    parser.add_argument("page", nargs="*", metavar="PAGE", help="default: all pages with tables")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if stale")
    parser.add_argument("--record", nargs=2, metavar=("PAGE", "NAME"), help="run a command")
    parser.add_argument("--nth", type=int, default=1, help="which table of the command")
    parser.add_argument("--seeds", help="the seeds, in words")
    words = list(sys.argv[1:] if arguments is None else arguments)
    cut = words.index("--") if "--" in words else len(words)
    given = parser.parse_args(words[:cut])
    if given.record:
        print(write(*given.record, record(shlex.join(words[cut + 1 :]), given.nth, given.seeds)))
        return 0
    stale = []
    for page in given.page or pages():
        path, text = DOCS / f"results-{page}.md", filled(page)
        if text != path.read_text():
            stale.append(path.name)
            if not given.check:
                path.write_text(text)
    print("\n".join(stale) or "every table is as recorded")
    return int(given.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
