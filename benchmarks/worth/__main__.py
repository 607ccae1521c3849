"""Is prediction worth it? Runs this folder's studies, and computes the tables of their page.

python -m benchmarks.worth [--seeds 5] [--out worth-study] [--workload sharegpt ...] [--jobs 1]

Needs ``ORSCHED_DATA``, but for ``--workload corpus``. What was finished before, and then
interrupted, is not run again. ``--save FILE`` keeps the figures of all runs, ``--from FILE``
computes from such a file and runs nothing, ``--record`` writes the tables into
``docs/results-data``, from which ``benchmarks.write_results`` fills the page.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import write_results
from benchmarks.arguments import count
from benchmarks.speed.section import table
from benchmarks.worth.report import tables
from benchmarks.worth.rows import STUDIES, load, run_all, save
from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCE = {
    "command": [
        "python -m benchmarks.worth --seeds 10 --save benchmarks/worth/figures.csv",
        "python -m benchmarks.worth --from benchmarks/worth/figures.csv --record",
    ],
    "commit": ["e3f24a41"],
    "seeds": ["0 to 9"],
    "machine": ["any; the figures are the same on each"],
    "date": ["2026-11-23"],
    "note": ["The first command needs ORSCHED_DATA"],
}
"""Where the recorded figures are from."""
PAGE = "predictions-and-gates"


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run or read, and print; a claim that does not hold is no error."""
    parser = argparse.ArgumentParser(prog="worth", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=count, default=5, help="how many")
    parser.add_argument("--out", type=Path, default=Path("worth-study"), help="folder of the runs")
    parser.add_argument("--workload", nargs="*", choices=STUDIES, metavar="NAME")
    parser.add_argument("--jobs", type=count, default=1, help="processes")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the figures of all runs")
    parser.add_argument("--from", type=Path, metavar="FILE", dest="source", help="run nothing")
    parser.add_argument("--record", action="store_true", help="write the tables of the page")
    given = parser.parse_args(arguments)
    if given.source is None:
        rows = run_all(given.out, given.workload or STUDIES, given.seeds, given.jobs)
    else:
        try:
            rows = load(given.source)
        except InputError as error:
            parser.error(str(error))
    if given.save:
        save(rows, given.save)
        rows = load(given.save)  # so that the tables are what the saved figures give
    for name, rows_of in tables(rows).items():
        head, *body = rows_of
        print(f"== {name}", *table([dict(zip(head, row, strict=True)) for row in body]), sep="\n")
        if given.record:
            write_results.write(PAGE, name, write_results.Table(SOURCE, rows_of))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
