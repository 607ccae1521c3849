"""Every policy on Azure conv, Azure code, ShareGPT and Mooncake, at equal information.

python -m benchmarks.reproductions.four_workloads [--quick] [--seeds 10] [--first-seed 0] [--jobs 2]
    [--cost contexts]

Needs ``ORSCHED_DATA``. Below saturation: mean and p99 JCT with 95 % confidence intervals of
Student's t over the seeds, beside the bound on the mean JCT; in saturation (all requests at 0):
throughput, gap of the makespan to its bound, and mean JCT. Policies are compared pairwise, seed by
seed: all of a seed serve the same requests with the same predictions. All schedules pass the
checker.
"""

from __future__ import annotations

import argparse
from math import fsum
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from benchmarks.arguments import count as at_least_one
from benchmarks.reproductions import four_workloads_setting as setting
from benchmarks.reproductions.findings import Findings
from benchmarks.reproductions.four_workloads_runs import OURS, PAPERS, REFERENCES, Cell, cell
from benchmarks.reproductions.page_tables import markdown, shown
from benchmarks.speed.section import table
from orsched.calibration.intervals import Interval, mean_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

Cells = dict[tuple[str, float | None], list[Cell]]

MOST_P99 = 0.05
"""How much of the p99 may be lost against any policy of a paper."""

ENOUGH = 3
"""Of the four workloads, in how many the mean JCT must be less than any paper's."""


def run_all(
    names: Sequence[str],
    loads: Sequence[float | None],
    seeds: Sequence[int],
    short: int = 1,
    jobs: int = 1,
    cost: str = "means",
) -> Cells:
    """Return the cells of each workload and load, in the order of the seeds."""
    keys = [(name, load) for name in names for load in loads]
    work = [(name, load, seed, short, cost) for name, load in keys for seed in seeds]
    if jobs == 1:
        found = [cell(job) for job in work]
    else:
        with get_context("spawn").Pool(jobs) as pool:
            found = pool.map(cell, work, chunksize=len(seeds))
    size = len(seeds)
    return {key: found[i * size : (i + 1) * size] for i, key in enumerate(keys)}


def over_seeds(cells: Sequence[Cell], label: str, figure: str) -> list[float]:
    """Return a figure of a scheduler, seed by seed."""
    return [getattr(each.figures[label], figure) for each in cells]


def change(cells: Sequence[Cell], ours: str, other: str, figure: str) -> Interval:
    """Return ours over the other's, less 1, in per cent: the mean of the seeds' own ratios."""
    pairs = zip(over_seeds(cells, ours, figure), over_seeds(cells, other, figure), strict=True)
    return mean_interval([100 * (mine / theirs - 1) for mine, theirs in pairs])


def groups() -> list[tuple[str, str, list[str]]]:
    """Return information, our label, and the labels of the papers' policies."""
    return [(known, f"gittins {known}", list(PAPERS[known])) for known in OURS]


def rows_of(cells: Sequence[Cell], load: float | None) -> list[dict[str, Any]]:
    """Return the rows of one table: each group led by our policy, at last the references."""
    listed = [(known, label) for known, ours, others in groups() for label in (ours, *others)]
    listed += [("clairvoyant", label) for label in REFERENCES]
    rows = []
    for known, label in listed:
        row: dict[str, Any] = {"information": known, "policy": label}
        ours = f"gittins {known}"
        rows.append(row | (_saturated(cells, label) if load is None else _below(cells, label)))
        paper = known in PAPERS and label in PAPERS[known]
        for figure, name in (("mean_s", "ours: mean JCT %"), ("p99_s", "ours: p99 %")):
            rows[-1][name] = shown(change(cells, ours, label, figure)) if paper else ""
    return rows


def _saturated(cells: Sequence[Cell], label: str) -> dict[str, Any]:
    ends = over_seeds(cells, label, "makespan_s")
    rates = [each.requests / end for each, end in zip(cells, ends, strict=True)]
    gaps = [100 * (end / each.makespan_bound_s - 1) for each, end in zip(cells, ends, strict=True)]
    return {
        "requests/s": shown(mean_interval(rates), 2),
        "makespan gap %": shown(mean_interval(gaps)),
        "mean JCT s": shown(mean_interval(over_seeds(cells, label, "mean_s"))),
        "over its bound": shown(_over_bound(cells, label), 2),
    }


def _below(cells: Sequence[Cell], label: str) -> dict[str, Any]:
    return {
        "mean JCT s": shown(mean_interval(over_seeds(cells, label, "mean_s")), 2),
        "over its bound": shown(_over_bound(cells, label), 2),
        "p99 JCT s": shown(mean_interval(over_seeds(cells, label, "p99_s"))),
    }


def _over_bound(cells: Sequence[Cell], label: str) -> Interval:
    means = over_seeds(cells, label, "mean_s")
    return mean_interval([m / each.jct_bound_s for m, each in zip(means, cells, strict=True)])


class Report(Findings):
    """Prints tables, and whether our policy keeps what it promises."""

    def tables(self, cells: Cells) -> None:
        """Print a table for each workload and load."""
        for (name, load), found in cells.items():
            where = "all at 0" if load is None else f"load {load:g}"
            self.head(f"{name}, {where}: {found[0].requests} requests, {len(found)} seeds")
            print("\n".join(table(rows_of(found, load))), flush=True)

    def summary(self, cells: Cells) -> None:
        """Print one row a workload, load and information: the nearest in the mean, and in p99."""
        self.head("Summary: ours against the paper's policy that is nearest")
        rows = []
        for (name, load), found in cells.items():
            for known, ours, others in () if load is None else groups():
                rows.append({
                    "workload": name,
                    "load": f"{load:g}",
                    "information": known,
                    "mean JCT s": shown(mean_interval(over_seeds(found, ours, "mean_s")), 2),
                    "over its bound": shown(_over_bound(found, ours), 2),
                    "mean JCT % (nearest)": _nearest(found, ours, others, "mean_s"),
                    "p99 % (worst)": _nearest(found, ours, others, "p99_s"),
                })  # fmt: skip
        if rows:
            print(markdown(rows), flush=True)

    def claims(self, cells: Cells) -> None:
        """Print the pairwise statements."""
        self.head("Pairwise, at equal information")
        names = list(dict.fromkeys(name for name, _ in cells))
        for known, ours, others in groups():
            better = [name for name in names if _beats_all(cells, name, ours, others)]
            text = (
                f"{known}: less mean JCT than every policy of the papers at every load, 95 % "
                f"interval of the paired difference below 0, on {', '.join(better) or 'none'}"
            )
            self.claim(text, len(better) >= min(ENOUGH, len(names)))
            worst = max(
                (change(found, ours, other, "p99_s").mean, name, load, other)
                for (name, load), found in cells.items()
                if load is not None
                for other in others
            )
            text = f"{known}: p99 at most {MOST_P99:.0%} above any; most: {worst[0]:+.1f} %"
            self.claim(f"{text} ({worst[1]}, load {worst[2]:g}, {worst[3]})",
                       worst[0] <= 100 * MOST_P99)  # fmt: skip

    def saturation(self, cells: Cells) -> None:
        """Print throughput in saturation beside the best of the papers."""
        self.head("All requests at 0: ours against the paper's policy of highest throughput")
        rows = []
        for (name, load), found in cells.items():
            for known, ours, others in groups() if load is None else ():
                least = min(others, key=lambda each: fsum(over_seeds(found, each, "makespan_s")))
                mine, theirs = _saturated(found, ours), _saturated(found, least)
                rows.append({
                    "workload": name,
                    "information": known,
                    "ours: requests/s": mine["requests/s"],
                    "makespan gap %": mine["makespan gap %"],
                    "paper: requests/s (policy)": f"{theirs['requests/s']} ({least})",
                    "its makespan gap %": theirs["makespan gap %"],
                    "ours: mean JCT s": mine["mean JCT s"],
                    "over its bound": mine["over its bound"],
                    "mean JCT % (nearest)": _nearest(found, ours, others, "mean_s"),
                })  # fmt: skip
        if rows:
            print(markdown(rows), flush=True)


def _nearest(cells: Sequence[Cell], ours: str, others: Sequence[str], figure: str) -> str:
    """Return our change against the policy that it is least against, with its name."""
    changes = {other: change(cells, ours, other, figure) for other in others}
    near = max(others, key=lambda each: changes[each].mean)
    return f"{shown(changes[near])} ({near})"


def _beats_all(cells: Cells, name: str, ours: str, others: Sequence[str]) -> bool:
    """Whether the paired interval is below 0 against each, at each load below saturation."""
    for (workload, load), found in cells.items():
        if workload == name and load is not None:
            for other in others:
                high = change(found, ours, other, "mean_s").high
                if high is None or high >= 0:
                    return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run; what does not hold is printed, and is no error."""
    parser = argparse.ArgumentParser(prog="four_workloads", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests, 3 seeds")
    parser.add_argument("--seeds", type=at_least_one, default=10, help="how many")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    what = "what attention depends on: the data set's mean contexts, or those of each step"
    parser.add_argument("--cost", choices=setting.COSTS, default="means", help=what)
    parser.add_argument("--workload", nargs="*", choices=list(setting.WORKLOADS), metavar="NAME")
    given = parser.parse_args(arguments)
    short, count = (10, 3) if given.quick else (1, given.seeds)
    seeds = range(given.first_seed, given.first_seed + count)
    names = given.workload or list(setting.WORKLOADS)
    cells = run_all(names, (*setting.LOADS, None), seeds, short, given.jobs, given.cost)
    report = Report()
    for name in names:
        rate = setting.saturation_per_s(name, short, given.cost)
        print(f"{name}: saturation at {rate:.2f} requests/s")
    report.tables(cells)
    report.summary(cells)
    report.saturation(cells)
    report.claims(cells)
    print(f"\n{report.misses} statements do not hold" if report.misses else "\nall statements hold")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
