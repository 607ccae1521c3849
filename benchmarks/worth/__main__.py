"""Is prediction worth it? Runs this folder's studies, and computes the page's tables and words.

python -m benchmarks.worth [--seeds 5] [--out worth-study] [--workload sharegpt ...] [--jobs 1]

Needs ``ORSCHED_DATA``, but for ``--workload corpus``. What was finished before, and then
interrupted, is not run again. ``--save FILE`` keeps the figures of all runs, ``--from FILE``
computes from such a file and runs nothing, ``--page FILE`` writes the sections into a page, between
its two marks.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.arguments import count
from benchmarks.worth.report import sections
from benchmarks.worth.rows import STUDIES, load, run_all, save
from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

MARKS = "<!-- computed: begin -->\n", "<!-- computed: end -->\n"


def marked(page: str) -> tuple[str, str, str]:
    """Return a page before, between and behind its marks."""
    before, _, rest = page.partition(MARKS[0])
    between, _, behind = rest.partition(MARKS[1])
    return before, between, behind


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run or read, and print; a claim that does not hold is no error."""
    parser = argparse.ArgumentParser(prog="worth", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=count, default=5, help="how many")
    parser.add_argument("--out", type=Path, default=Path("worth-study"), help="folder of the runs")
    parser.add_argument("--workload", nargs="*", choices=STUDIES, metavar="NAME")
    parser.add_argument("--jobs", type=count, default=1, help="processes")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the figures of all runs")
    parser.add_argument("--from", type=Path, metavar="FILE", dest="source", help="run nothing")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the sections into it")
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
        rows = load(given.save)  # so that the page is what the saved figures give
    text = sections(rows)
    print(text)
    if given.page:
        before, _, behind = marked(given.page.read_text(encoding="utf-8"))
        given.page.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{behind}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
