"""Measure orsched's speed and memory: a table a section on stdout, all figures in one JSON file.

python -m benchmarks.speed.run [--only SECTION ...] [--out FILE] [--repeats N] [--no-peers] [--full]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.speed import (
    batcher,
    best_first,
    bounds,
    check,
    cluster,
    decide,
    fleet,
    full_mip,
    limits,
    machine,
    million,
    multi_cloud,
    packing,
    prefixes,
    runner,
    slices,
    startup,
    ten_thousand,
    windows,
    worker,
)
from benchmarks.speed.section import Options, Section
from orsched.files.document import write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SECTIONS: dict[str, Callable[[Options], Section]] = {
    module.NAME: module.run
    for module in (
        startup,
        ten_thousand,
        million,
        cluster,
        fleet,
        decide,
        check,
        batcher,
        slices,
        multi_cloud,
        packing,
        bounds,
        limits,
        best_first,
        full_mip,
        windows,
        runner,
        worker,
        prefixes,
    )
}


def run(names: Sequence[str], out: Path, options: Options) -> list[Section]:
    """Run sections, print each as it ends, write all figures."""
    before = machine.describe()
    print(f"{before['cpu']}, {before['cores']} cores, load {before['load_average']}", flush=True)
    sections = []
    for name in names:
        section = SECTIONS[name](options)
        print(f"\n{section.text()}", flush=True)
        sections.append(section)
    document = {
        "machine": before | {"load_average_after": machine.load()},
        "options": {
            "repeats": options.repeats,
            "peers": options.peers,
            "tiny": options.tiny,
            "full": options.full,
        },
        "sections": [section.to_dict() for section in sections],
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, json.dumps(document, indent=1) + "\n")
    return sections


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run; a missed target does not change the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__.splitlines()[0])
    names = list(SECTIONS)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="SECTION",
                        help=f"sections to run: {', '.join(names)}")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("bench-out/bench.json"), help="JSON file")
    parser.add_argument("--repeats", type=int, default=5, help="measured runs of each program")
    parser.add_argument("--no-peers", action="store_true", help="orsched alone")
    parser.add_argument("--full", action="store_true", help="cluster: one million requests")
    given = parser.parse_args(arguments)
    if given.repeats < 1:
        parser.error("--repeats must be at least 1")
    with TemporaryDirectory(prefix="orsched-bench-") as folder:
        options = Options(Path(folder), given.repeats, peers=not given.no_peers, full=given.full)
        sections = run(given.only, given.out, options)
    missed = sum(not target.passed for section in sections for target in section.targets)
    print(f"\n{missed} targets missed; figures in {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
