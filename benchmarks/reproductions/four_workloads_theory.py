"""Policies of the theory papers on the four real workloads, beside gittins at equal information.

python -m benchmarks.reproductions.four_workloads_theory [--quick] [--seeds 3] [--loads 0.9]
    [--jobs 1]

Needs ``ORSCHED_DATA``. The setting is that of ``four_workloads``; every policy serves one worker
and gets the dispatcher ``least_work``. The mean over the seeds of the mean JCT, over that of
gittins with the same information on the same requests. All schedules pass the checker.
"""

from __future__ import annotations

import argparse
from multiprocessing import get_context
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks.arguments import count
from benchmarks.reproductions import four_workloads_setting as setting
from benchmarks.reproductions.four_workloads_runs import SHARED, Scheduler, run
from benchmarks.reproductions.page_tables import markdown

if TYPE_CHECKING:
    from collections.abc import Sequence

KNOWING = ("mc_sf", "svf", "svf_1bit", "sorted_f", "a_max", "a_min", "gba", "wait")
SLICE = (("first", 64),)
"""The first slice of ``gsa`` and ``nested_wait``: with one of a token each request would be
prefilled a dozen times (ours)."""
POLICIES = {
    "none": {name: Scheduler(name, "none", (*SHARED, *SLICE)) for name in ("gsa", "nested_wait")},
    "predicted": {name: Scheduler(name, "predicted", SHARED) for name in KNOWING},
    "clairvoyant": {name: Scheduler(name, "clairvoyant", SHARED) for name in KNOWING},
}
Job = tuple[str, float, int, int]


def ratios(job: Job) -> dict[tuple[str, str], float]:
    """Return mean JCTs over that of gittins, by information and policy, of one seed."""
    name, load, seed, short = job
    instance = setting.workload(name, load, seed, short, "means")
    found = {}
    for known, policies in POLICIES.items():
        ours = run(instance, Scheduler("gittins", known)).mean_s
        for label, scheduler in policies.items():
            found[known, label] = run(instance, scheduler).mean_s / ours
    return found


def rows_of(
    names: Sequence[str], loads: Sequence[float], seeds: int, short: int = 1, jobs: int = 1
) -> list[dict[str, Any]]:
    """Return a row a policy, a column a workload and load."""
    work = [(n, load, seed, short) for n in names for load in loads for seed in range(seeds)]
    if jobs == 1:
        found = [ratios(job) for job in work]
    else:
        with get_context("spawn").Pool(jobs) as pool:
            found = pool.map(ratios, work, chunksize=1)
    rows = []
    for known, policies in POLICIES.items():
        for label in policies:
            row: dict[str, Any] = {"lengths": known, "policy": f"`{label}`"}
            for name in names:
                for load in loads:
                    values = [
                        each[known, label]
                        for job, each in zip(work, found, strict=True)
                        if job[:2] == (name, load)
                    ]
                    row[f"{name}, {load}"] = f"{fmean(values):.2f}"
            rows.append(row)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, and where a policy is ahead of gittins."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests")
    parser.add_argument("--seeds", type=count, default=3)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.9])
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args(argv)
    short = 10 if arguments.quick else 1
    names = list(setting.WORKLOADS)
    rows = rows_of(names, arguments.loads, arguments.seeds, short, arguments.jobs)
    print(markdown(rows))
    columns = [each for each in rows[0] if each not in ("lengths", "policy")]
    ahead = [
        f"{row['policy']} ({row['lengths']}) on {column}: {row[column]}"
        for row in rows
        for column in columns
        if float(row[column]) < 1
    ]
    print("\nahead of gittins: " + ("; ".join(ahead) or "none"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
