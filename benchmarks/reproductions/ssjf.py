"""Reproduce Figs. 4-8 of SSJF (Qiu et al., arXiv 2404.08509): tables, and what the paper states.

python -m benchmarks.reproductions.ssjf [--figure 4 5 6 7 8] [--predictors] [--aging]
    [--sensitivity]

4 and 6 (varying rates), and 5 and 7 (burstiness), show the same runs. Numbers are means over the
seeds with 95 % confidence intervals of Student's t. With ``ORSCHED_DATA`` lengths and predicted
classes are rows of the published predictions, else drawn from the shipped counts. All schedules
pass the checker. The paper's figures are those that its text prints.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from benchmarks.arguments import count
from benchmarks.reproductions import ssjf_setting as setting
from benchmarks.reproductions.findings import Findings
from benchmarks.reproductions.ssjf_runs import (
    FCFS,
    ORACLE,
    REGRESSION,
    SSJF,
    Scheduler,
    change,
    mean_of,
    ratio,
    shown,
)
from benchmarks.reproductions.ssjf_setting import MODES, Case
from benchmarks.speed.section import table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SCHEDULERS = {"SSJF": SSJF, "SSJF reg": REGRESSION, "oracle": ORACLE}

PAPER: dict[str, dict[str, tuple[float, float, float, float]]] = {
    "rates": {
        "none": (-34.5, -43.7, 3.6, 4.7),
        "dynamic": (-39.6, -58.2, 3.0, 4.1),
        "continuous": (-33.2, -43.0, 2.8, 3.2),
    },
    "burstiness": {
        "none": (-30.5, -37.6, 2.6, 3.4),
        "dynamic": (-39.0, -52.9, 2.6, 3.8),
        "continuous": (-35.0, -41.5, 2.2, 2.7),
    },
}
"""JCT change in per cent of SSJF and of the oracle, and their throughput over FCFS's (4.2)."""


class Report(Findings):
    """Prints tables and findings, and counts what does not hold."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self.seeds = seeds
        super().__init__()

    def rows(self, rows: Sequence[dict[str, Any]]) -> None:
        """Print a table."""
        print("\n".join(table(list(rows))), flush=True)

    def jct(self, labelled: Sequence[tuple[dict[str, Any], Case]]) -> None:
        """Print mean JCTs and their changes; at last for what is done within the window alone."""
        rows = []
        for label, case in labelled:
            row = label | {"FCFS s": mean_of(case, FCFS, "jct_s", self.seeds)}
            for name, scheduler in SCHEDULERS.items():
                row[f"{name} %"] = shown(change(case, scheduler, "jct_s", self.seeds))
            for name in ("SSJF", "oracle"):
                early = change(case, SCHEDULERS[name], "done_jct_s", self.seeds)
                row[f"done: {name} %"] = shown(early)
            rows.append(row)
        self.rows(rows)

    def throughput(self, labelled: Sequence[tuple[dict[str, Any], Case]]) -> None:
        """Print completions within the window over FCFS's, and the makespans beside them."""
        rows = []
        for label, case in labelled:
            row = label | {"FCFS done": mean_of(case, FCFS, "done", self.seeds)}
            for name, scheduler in SCHEDULERS.items():
                row[name] = shown(ratio(case, scheduler, "done", self.seeds), 2)
            for name in ("SSJF", "oracle"):
                ends = ratio(case, SCHEDULERS[name], "makespan_s", self.seeds)
                row[f"makespan, {name}"] = shown(ends, 3)
            rows.append(row)
        self.rows(rows)

    def by_mode(self, part: str, cases: dict[str, list[Case]], name: str, place: int) -> None:
        """Compare with what the paper prints for each mode: direction, order and size."""
        shown_rows = {label: {"": f"{label}, {part}"} for label in ("SSJF", "oracle")}
        for mode, found in cases.items():
            values = {}
            for label, scheduler in SCHEDULERS.items():
                each = [
                    (change if name == "jct_s" else ratio)(case, scheduler, name, self.seeds)
                    for case in found
                ]
                values[label] = each
            for label, of_paper in (("SSJF", PAPER[part][mode][place]),
                                    ("oracle", PAPER[part][mode][place + 1])):  # fmt: skip
                means = [interval.mean for interval in values[label]]
                unit, digits = (" %", 1) if name == "jct_s" else ("x", 2)
                text = f"{mode}, {label}: {min(means):.{digits}f} to {max(means):.{digits}f}{unit}"
                ends = sorted((min(means), max(means)), key=abs)
                every = name != "jct_s" and part == "rates"
                cell = ", ".join(f"{x:.2f}" for x in means) if every else ""
                cell = cell or " to ".join(f"{x:.{digits}f}" for x in ends)
                shown_rows[label][mode] = f"{cell} ({of_paper:g})"
                if name == "jct_s":
                    good = all(e.high is not None and e.high < 0 for e in values[label])
                else:
                    good = all(e.low is not None and e.low > 1 for e in values[label])
                self.claim(f"{text} (paper {of_paper:g}{unit}): better than FCFS", good)
            pairs = zip(values["SSJF"], values["oracle"], strict=True)
            sign = 1 if name == "jct_s" else -1
            ordered = all(sign * b.mean <= sign * a.mean for a, b in pairs)
            self.claim(f"{mode}: the oracle is ahead of SSJF everywhere", ordered)
        print("by mode, the paper's in brackets:")
        self.rows(list(shown_rows.values()))


def _by_load() -> dict[str, list[Case]]:
    return {mode: [Case(mode, load) for load in setting.LOADS] for mode in MODES}


def _by_cv() -> dict[str, list[Case]]:
    return {mode: [Case(mode, cv=cv) for cv in setting.CVS] for mode in MODES}


def _labelled(cases: dict[str, list[Case]], key: str) -> list[tuple[dict[str, Any], Case]]:
    return [
        ({"mode": mode, key: getattr(case, key), "rate /s": case.arrivals_per_s}, case)
        for mode, found in cases.items()
        for case in found
    ]


def figure_4(report: Report) -> None:
    """JCT by rate."""
    report.head("Fig. 4: mean JCT at varying rates (Poisson), change against FCFS")
    report.jct(_labelled(_by_load(), "load"))
    overloaded = {m: [c for c in cases if c.load >= 1] for m, cases in _by_load().items()}
    report.by_mode("rates", overloaded, "jct_s", 0)


def figure_5(report: Report) -> None:
    """JCT by burstiness."""
    report.head(f"Fig. 5: mean JCT at varying burstiness (Gamma gaps), load {setting.LOAD:g}")
    report.jct(_labelled(_by_cv(), "cv"))
    report.by_mode("burstiness", _by_cv(), "jct_s", 0)


def figure_6(report: Report) -> None:
    """Throughput by rate."""
    report.head("Fig. 6: completions in the window at varying rates, over FCFS's")
    report.throughput(_labelled(_by_load(), "load"))
    overloaded = {m: [c for c in cases if c.load > 1] for m, cases in _by_load().items()}
    report.by_mode("rates", overloaded, "done", 2)
    ends = [ratio(Case("none", load), ORACLE, "makespan_s", report.seeds) for load in setting.LOADS]
    text = "none: the oracle's makespan is FCFS's: on a work-conserving server order is no matter"
    report.claim(text, all(e.low == e.mean == e.high == 1.0 for e in ends))


def figure_7(report: Report) -> None:
    """Throughput by burstiness."""
    report.head(f"Fig. 7: completions in the window at varying burstiness, load {setting.LOAD:g}")
    report.throughput(_labelled(_by_cv(), "cv"))
    report.by_mode("burstiness", _by_cv(), "done", 2)


def figure_8(report: Report) -> None:
    """Batch sizes, at the rate of figure 5's continuous mode and at a quarter of it."""
    for load in (setting.LOAD, 1.0):
        rate = Case("continuous", load).arrivals_per_s
        report.head(f"Fig. 8: batch sizes at {rate:.3g} requests a second")
        cases = {
            mode: [Case(mode, size=size, rate=rate) for size in setting.SIZES]
            for mode in ("dynamic", "continuous")
        }
        labelled = _labelled(cases, "size")
        report.jct(labelled)
        report.throughput(labelled)
        for mode, found in cases.items():
            _by_size(report, mode, found)
        _modes_compared(report, cases)


def _by_size(report: Report, mode: str, cases: list[Case]) -> None:
    less = [round(change(case, SSJF, "jct_s", report.seeds).mean, 1) for case in cases]
    report.claim(f"{mode}: SSJF has no more JCT than FCFS at any size", max(less) <= 0)
    gains = [round(ratio(case, SSJF, "done", report.seeds).mean, 2) for case in cases]
    text = ", ".join(f"{gain:.2f}x" for gain in gains)
    falls = all(a >= b for a, b in pairwise(gains)) and gains[0] > gains[-1]
    report.claim(f"{mode}: the gain in throughput shrinks with the batch: {text}", falls)
    text = ", ".join(f"{value:.1f} %" for value in less)
    falls = all(a <= b for a, b in pairwise(less)) and less[0] < less[-1]
    report.claim(f"{mode}: the gain in JCT shrinks with the batch: {text}", falls)


def _modes_compared(report: Report, cases: dict[str, list[Case]]) -> None:
    for name, scheduler in (("FCFS", FCFS), ("SSJF", SSJF)):
        pairs = [
            [
                (mean_of(case, scheduler, "jct_s", report.seeds), -round(done, 1))
                for case in pair
                for done in [mean_of(case, scheduler, "done", report.seeds)]
            ]
            for pair in zip(cases["continuous"], cases["dynamic"], strict=True)
        ]
        better = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairs)
        text = f"{name}: continuous has less JCT and no less throughput than dynamic at every size"
        report.claim(text, better)


def predictors(report: Report) -> None:
    """Predictors beside Table 2: what accuracy is worth."""
    case = Case("continuous")
    report.head(f"Table 2: predictors, continuous batching, load {case.load:g}")
    rows = []
    for label, paper, scheduler in (
        ("3 classes (accuracy 0.806)", "binary: -30.8, 1.59", _with("classes:classes=3")),
        ("5 classes (accuracy 0.599)", "CLS 0.592: -35.8, 1.98", SSJF),
        ("log-normal error (0.615)", "REG L1 0.615: -39.1, 2.21", REGRESSION),
        ("5 classes, latency 0", "", Scheduler("ssjf")),
        ("exact", "", ORACLE),
    ):
        rows.append(
            {
                "predictor": label,
                "JCT %": shown(change(case, scheduler, "jct_s", report.seeds)),
                "throughput": shown(ratio(case, scheduler, "done", report.seeds), 2),
                "paper": paper,
            }
        )
    report.rows(rows)
    gains = [change(case, s, "jct_s", report.seeds).mean for s in (SSJF, REGRESSION, ORACLE)]
    report.claim(
        "classes, regression, oracle: the better, the less JCT", gains == sorted(gains)[::-1]
    )


def _with(predictor: str) -> Scheduler:
    return Scheduler("ssjf", predictor, SSJF.options)


AGING_S = (None, 4.0, 2.0, 1.0, 0.5)


def aging(report: Report) -> None:
    """What aging does to the mean and to the longest JCT; the paper only proposes it."""
    for load in (1.0, setting.LOAD):
        case = Case("continuous", load)
        report.head(f"Aging, continuous batching, load {load:g} (their section 6)")
        rows = []
        choices = [("FCFS", FCFS)]
        for value in AGING_S:
            options = (*SSJF.options, ("aging_s", value))
            choices.append((f"SSJF, aging {value} s a token", Scheduler("ssjf", None, options)))
        for label, scheduler in choices:
            row: dict[str, Any] = {"scheduler": label}
            for name in ("jct_s", "p99_s", "max_s", "done"):
                row[name] = mean_of(case, scheduler, name, report.seeds)
            rows.append(row)
        report.rows(rows)
        longest = [row["max_s"] for row in rows[1:]]
        ordered = all(a >= b for a, b in pairwise(longest))
        report.claim("the stronger the aging, the less the longest JCT", ordered)


def sensitivity(report: Report) -> None:
    """Constants that the paper does not print, changed."""
    report.head(f"Sensitivity at load {setting.LOAD:g}: JCT change and throughput of SSJF")
    rows, good = [], True
    changes: list[tuple[str, dict[str, float]]] = [("as stated", {})]
    for name in ("token_s", "fixed_s", "slower", "timeout_s"):
        value = Case._field_defaults[name]
        changes += [(f"{name} {100 * f - 100:+.0f} %", {name: f * value}) for f in (0.7, 1.3)]
    changes += [("slower 0", {"slower": 0.0}), ("slower 0.2", {"slower": 0.2})]
    for label, values in changes:
        row: dict[str, Any] = {"change": label}
        for mode in MODES:
            case = Case(mode)._replace(**values)
            less = change(case, SSJF, "jct_s", report.seeds)
            more = ratio(case, SSJF, "done", report.seeds)
            row[f"{mode} %"], row[f"{mode} x"] = shown(less), shown(more, 2)
            good &= less.mean < 0 and more.mean > 1
        rows.append(row)
    report.rows(rows)
    report.claim("SSJF is ahead of FCFS at all of them", good)


FIGURES: dict[int, Callable[[Report], None]] = {
    4: figure_4,
    5: figure_5,
    6: figure_6,
    7: figure_7,
    8: figure_8,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run; what does not hold is printed, and is no error."""
    parser = argparse.ArgumentParser(prog="ssjf", description=__doc__.splitlines()[0])
    text = "4, 6 (rates), 5, 7 (burstiness), 8 (batch sizes); all by default"
    parser.add_argument(
        "--figure", nargs="*", type=int, choices=list(FIGURES), metavar="N", help=text
    )
    parser.add_argument("--predictors", action="store_true", help="beside Table 2")
    parser.add_argument("--aging", action="store_true", help="what aging costs and bounds")
    parser.add_argument("--sensitivity", action="store_true", help="constants -30 %%, +30 %%")
    parser.add_argument("--seeds", type=count, default=10, help="workloads, from seed 0")
    given = parser.parse_args(arguments)
    report = Report(range(given.seeds))
    parts = [part for part in (predictors, aging, sensitivity) if getattr(given, part.__name__)]
    chosen = given.figure
    if chosen is None:
        chosen = [] if parts else list(FIGURES)
    source = setting.lengths(1, 0)[2]
    print(f"lengths: {source}; {given.seeds} seeds; window {setting.WINDOW_S} s; "
          f"K {1000 * setting.TOKEN_S:.2f} ms, C {1000 * setting.FIXED_S:.2f} ms")  # fmt: skip
    for number in chosen:
        FIGURES[number](report)
    for part in parts:
        part(report)
    print(f"\n{report.misses} statements do not hold" if report.misses else "\nall statements hold")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
