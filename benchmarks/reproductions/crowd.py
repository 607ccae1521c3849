"""What ``crowd`` of gittins alone does to mean and p99 of the JCT, where it was not chosen.

ORSCHED_DATA=... python -m benchmarks.reproductions.crowd [--seeds 3] [--loads 0.5 0.7 0.9]
                                                          [--workloads NAME ...]

Machine and requests of ``four_workloads_setting``, with arXiv and ServeGen R1, which no parameter
was chosen on; ``crowd`` is that of ``tail``, which was chosen at load 0.9. Differences are those of
each seed's own pair of runs, with 95 % intervals (Student). The checker accepts each schedule.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.arguments import count, share
from benchmarks.reproductions import four_workloads_setting as setting
from benchmarks.reproductions.tail import BURSTY, figures, percent
from benchmarks.speed.section import table

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKLOADS = (*setting.ALL, BURSTY)
LOADS = (0.5, 0.7, 0.9)


def row(name: str, load: float, seeds: range) -> dict[str, str]:
    """Return the row of a workload at a load."""
    plain, crowd = (
        [figures(name, load, seed, label) for seed in seeds]
        for label in ("gittins", "gittins, crowd")
    )
    mean = [[each.mean_s for each in runs] for runs in (plain, crowd)]
    p99 = [[each.p99_s for each in runs] for runs in (plain, crowd)]
    return {
        "workload": name,
        "load": f"{load:g}",
        "mean s": f"{np.mean(mean[0]):.2f}",
        "with crowd": f"{np.mean(mean[1]):.2f}",
        "mean, %": percent(mean[1], mean[0])[0],
        "p99 s": f"{np.mean(p99[0]):.1f}",
        "p99 with crowd": f"{np.mean(p99[1]):.1f}",
        "p99, %": percent(p99[1], p99[0])[0],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each workload and load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=count, default=3)
    parser.add_argument("--loads", type=share, nargs="+", default=list(LOADS))
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    options = parser.parse_args(arguments)
    seeds = range(options.seeds)
    rows = [row(name, load, seeds) for name in options.workloads for load in options.loads]
    print("\n".join(table(rows)), flush=True)


if __name__ == "__main__":
    main()
