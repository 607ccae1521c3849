"""Tuned baselines beside ``gittins`` on six workloads: JCT, TTFT, TPOT and attainment.

python -m benchmarks.reproductions.six_workloads [--load 0.9] [--cost means] [--keep FILE]
    [--jobs 2] [--quick]

Needs ``ORSCHED_DATA``. The workloads are those of ``four_workloads`` and two that no parameter was
chosen on. Seeds 0 to 4 choose one setting of each family for each workload and load, seeds 0 to 9
are shown, and what is said of them is said of 5 to 9 alone as well. With ``--keep`` every run is
kept in a file, and made once; remove the file after a change of the code.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.arguments import count, share
from benchmarks.reproductions import four_workloads_setting as setting
from benchmarks.reproductions.six_workloads_choice import Choice
from benchmarks.reproductions.six_workloads_report import Report
from benchmarks.reproductions.six_workloads_runs import Case, Runs
from benchmarks.reproductions.six_workloads_settings import (
    FAMILIES,
    OURS,
    OURS_PREDICTED,
    PAGE,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

TUNING, SEEDS = 5, 10
"""How many of the first seeds choose settings (``gittins`` has its defaults from the same), of how
many in all."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run; what does not hold is printed, and is no error."""
    parser = argparse.ArgumentParser(prog="six_workloads", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests, 4 seeds")
    parser.add_argument("--load", type=share, default=0.9, help="arrivals over saturation")
    parser.add_argument("--cost", choices=setting.COSTS, default="means")
    what = "settings are those chosen with another cost"
    parser.add_argument("--chosen-with", choices=setting.COSTS, help=what)
    parser.add_argument("--workload", nargs="*", choices=list(setting.ALL), metavar="NAME")
    parser.add_argument("--tuning", type=count, default=TUNING, help="seeds that choose, of ten")
    parser.add_argument("--jobs", type=count, default=1, help="processes")
    parser.add_argument("--keep", type=Path, help="file of the runs that are made")
    given = parser.parse_args(arguments)
    short, tuning, seeds = (10, 2, 4) if given.quick else (1, given.tuning, SEEDS)
    with get_context("spawn").Pool(given.jobs) if given.jobs > 1 else nullcontext() as pool:
        runs = Runs(given.keep, pool.imap if pool else map)
        choices = [
            choice(runs, [Case(name, given.load, seed, given.cost, short) for seed in range(seeds)],
                   tuning, given.chosen_with or given.cost)
            for name in given.workload or setting.ALL
        ]  # fmt: skip
    report = Report(runs, choices)
    report.figures()
    report.differences()
    report.claims()
    return 0


def choice(runs: Runs, cases: Sequence[Case], tuning: int, cost: str) -> Choice:
    """Make all runs of a workload, first those that choose, with a cost that may be another."""
    name = cases[0].workload
    choosing = [case._replace(cost=cost) for case in cases[:tuning]]
    settings = [PAGE, OURS, OURS_PREDICTED]
    tried = [each for family in FAMILIES.values() for each in family.settings]
    runs.need(f"{name}, tuning", [(case, each) for case in choosing for each in tried])
    found = Choice(runs, cases, choosing)
    settings += [label.scheduler for label in found.chosen.values()]
    runs.need(f"{name}, all seeds", [(case, each) for case in cases for each in settings])
    return found


if __name__ == "__main__":
    raise SystemExit(main())
