"""Reproduce Figs. 4-8 and Table 2 of SSJF (arXiv 2404.08509) in its authors' own setting.

python -m benchmarks.reproductions.ssjf_authors [--figures] [--sizes] [--predictors]
    [--heads] [--differences] [--runs 100]

The setting and the schedulers are those of the authors' published simulator, rule by rule;
``benchmarks.reproductions.ssjf`` has the stricter one. Numbers are ratios of means over runs and
over the rates or CVs of a figure, with 95 % confidence intervals over runs. With ``ORSCHED_DATA``
lengths and predicted classes are rows of the published predictions, else drawn from the shipped
counts; ``--heads`` takes rows and predictions of heads trained here (``ssjf_heads``). All schedules
pass the checker. The paper's figures are those that its text prints.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.reproductions import ssjf_authors_runs as authors
from benchmarks.reproductions import ssjf_heads, ssjf_setting
from benchmarks.reproductions.findings import Findings
from benchmarks.reproductions.ssjf import PAPER
from benchmarks.reproductions.ssjf_authors_runs import (
    FCFS,
    KINDS,
    MODES,
    ORACLE,
    PAPER_BATCH,
    SIZES,
    Case,
    Gain,
    gain,
    mean,
)
from benchmarks.speed.section import table
from orsched.instances.predictions import load_confusion
from orsched.prediction.evaluation import kendall_tau

if TYPE_CHECKING:
    from collections.abc import Sequence

FIVE, THREE = "classes", "classes:classes=3"
REGRESSION = f"noise:sigma={ssjf_setting.SIGMA}"
NAMES = {FIVE: "SSJF, 5 classes", REGRESSION: "SSJF, log-normal", ORACLE: "oracle"}

JCT_POINTS, THROUGHPUT_SHARE = 3.0, 0.10
"""How near the oracle's figures should come to the paper's."""


class Row(NamedTuple):
    """A row of the paper's Table 2: accuracy and F1 (None: not printed), JCT and throughput."""

    accuracy: float | None
    f1: float | None
    jct: float
    throughput: float


TABLE_2 = {
    "binary": Row(None, None, -30.8, 1.59),
    "ordinal, MSE": Row(0.477, 0.450, -38.0, 2.15),
    "ordinal, L1": Row(0.580, 0.576, -35.6, 1.99),
    "classes": Row(0.592, 0.590, -35.8, 1.98),
    "regression, MSE": Row(0.601, 0.602, -38.6, 2.19),
    "regression, L1": Row(0.615, 0.615, -39.1, 2.21),
}


class Report(Findings):
    """Prints tables and findings of so many runs."""

    def __init__(self, runs: int) -> None:
        self.runs = runs
        super().__init__()

    def rows(self, rows: Sequence[dict[str, Any]]) -> None:
        """Print a table."""
        print("\n".join(table(list(rows))), flush=True)

    def gain(self, case: Case, scheduler: str, value: float | None = None) -> Gain:
        """Return a gain over all rates or CVs of the case, or at one."""
        return gain(case, scheduler, self.runs, None if value is None else (value,))


def figures(report: Report) -> None:
    """Figs. 4 to 7: by rate and by CV, and together beside the paper's figures."""
    for kind, name in (("rates", "rate"), ("burstiness", "CV")):
        for mode in MODES:
            numbers = "4 and 6" if kind == "rates" else "5 and 7"
            report.head(f"Figs. {numbers}: mean JCT and throughput by {name}, {mode}")
            report.rows([_point(report, Case(mode, kind), name, x) for x in KINDS[kind]])
    report.head("Figs. 4 to 7: JCT % and throughput over FCFS's, the paper's in brackets")
    report.rows([_by_mode(report, kind, each) for kind in KINDS for each in NAMES])
    for kind in KINDS:
        for mode in MODES:
            _compare(report, Case(mode, kind))


def _point(report: Report, case: Case, name: str, value: float) -> dict[str, Any]:
    """Return a row with the means at a rate or CV."""
    fcfs = mean(case, FCFS, report.runs, (value,))
    row: dict[str, Any] = {name: value, "FCFS s": fcfs.jct_s}
    row |= {f"{NAMES[each]} %": report.gain(case, each, value).jct for each in NAMES}
    row["FCFS /s"] = fcfs.throughput
    row |= {f"{NAMES[each]} x": report.gain(case, each, value).throughput for each in NAMES}
    return row


def _by_mode(report: Report, kind: str, scheduler: str) -> dict[str, Any]:
    row: dict[str, Any] = {"scheduler": f"{NAMES[scheduler]}, {kind}"}
    for mode in MODES:
        found = report.gain(Case(mode, kind), scheduler)
        jct, throughput = _of_paper(kind, mode, scheduler)
        row[f"{mode} %"] = f"{found.jct:.1f} ±{found.jct_half:.1f} ({jct:g})"
        row[f"{mode} x"] = f"{found.throughput:.2f} ±{found.throughput_half:.2f} ({throughput:g})"
    return row


def _of_paper(kind: str, mode: str, scheduler: str) -> tuple[float, float]:
    """Return the paper's JCT and throughput of the oracle, or of SSJF with its regression."""
    place = 1 if scheduler == ORACLE else 0
    found = PAPER[kind][mode]
    return found[place], found[place + 2]


def _compare(report: Report, case: Case) -> None:
    """Hold the oracle against the paper's, and the paper's SSJF against ours."""
    found = report.gain(case, ORACLE)
    jct, throughput = _of_paper(case.kind, case.mode, ORACLE)
    near = abs(found.jct - jct) <= JCT_POINTS
    near &= abs(found.throughput / throughput - 1) <= THROUGHPUT_SHARE
    text = f"{case.kind}, {case.mode}: the oracle's {found.jct:.1f} % and {found.throughput:.2f}x"
    limits = f"within {JCT_POINTS:g} points and {100 * THROUGHPUT_SHARE:g} %"
    report.claim(f"{text} are {limits} of the paper's {jct:g} % and {throughput:g}x", near)
    low, high = report.gain(case, FIVE), report.gain(case, REGRESSION)
    jct, throughput = _of_paper(case.kind, case.mode, FIVE)
    between = high.jct <= jct <= low.jct and low.throughput <= throughput <= high.throughput
    text = f"{case.kind}, {case.mode}: the paper's SSJF, {jct:g} % and {throughput:g}x, is between"
    report.claim(f"{text} our 5 classes and our log-normal error", between)
    ordered = 0 > low.jct > high.jct > found.jct
    ordered &= 1 < low.throughput < high.throughput < found.throughput
    text = f"{case.kind}, {case.mode}: FCFS, classes, log-normal, oracle: each ahead of the last"
    report.claim(text, ordered)


MODES_OF_FIG_8: dict[str, tuple[str, float]] = {
    "dynamic": ("dynamic", authors.WAIT_S),
    "continuous": ("continuous", authors.WAIT_S),
    "continuous, FCFS does not wait": ("continuous", 0.0),
}


def sizes(report: Report) -> None:
    """Fig. 8: batch sizes, at varying rates."""
    for label, (mode, wait_s) in MODES_OF_FIG_8.items():
        report.head(f"Fig. 8: batch sizes, varying rates, {label}")
        rows = []
        ours: list[Gain] = []
        for size in SIZES:
            case = Case(mode, "rates", size, wait_s)
            row: dict[str, Any] = {"size": size, "FCFS s": mean(case, FCFS, report.runs).jct_s}
            ours.append(report.gain(case, FIVE))
            for name, found in (("5 classes", ours[-1]), ("oracle", report.gain(case, ORACLE))):
                row[f"{name} %"] = f"{found.jct:.1f} ±{found.jct_half:.1f}"
                row[f"{name} x"] = f"{found.throughput:.2f} ±{found.throughput_half:.2f}"
            rows.append(row)
        report.rows(rows)
        changes, times = [each.jct for each in ours], [each.throughput for each in ours]
        text = f"{label}: what SSJF gains in JCT shrinks with the batch"
        report.claim(text, changes == sorted(changes))
        text = f"{label}: what SSJF gains in throughput shrinks with the batch"
        report.claim(text, times == sorted(times, reverse=True))
    for name in (FCFS, FIVE):
        pairs = [
            [mean(Case(mode, "rates", size), name, report.runs)
             for mode in ("continuous", "dynamic")]
            for size in SIZES
        ]  # fmt: skip
        better = all(a.jct_s < b.jct_s and a.throughput > b.throughput for a, b in pairs)
        text = f"{NAMES.get(name, 'FCFS')}: continuous batching is ahead of dynamic at every size"
        report.claim(text, better)


def predictors(report: Report) -> None:
    """Table 2, in dynamic batches of 4 at varying rates: that comes nearest to its rows."""
    report.head(f"Table 2: predictors, dynamic batches of {PAPER_BATCH}, varying rates")
    case = Case("dynamic", "rates", PAPER_BATCH)
    rows = []
    for label, predictor, of_paper, classes in (
        ("3 classes", THREE, "binary", 3),
        ("5 classes", FIVE, "classes", 5),
        ("log-normal", REGRESSION, "regression, L1", None),
        ("exact", ORACLE, None, None),
    ):
        found = report.gain(case, predictor)
        accuracy, f1 = scores(classes) if classes else (None, None)
        paper = "" if of_paper is None else f"{of_paper}: {_printed(TABLE_2[of_paper])}"
        rows.append({
            "predictor": label,
            "accuracy": "" if accuracy is None else f"{accuracy:.3f}",
            "F1": "" if f1 is None else f"{f1:.3f}",
            "JCT %": f"{found.jct:.1f} ±{found.jct_half:.1f}",
            "throughput": f"{found.throughput:.2f} ±{found.throughput_half:.2f}",
            "paper": paper,
        })  # fmt: skip
    report.rows(rows)
    for predictor, of_paper in ((THREE, "binary"), (FIVE, "classes")):
        found, row = report.gain(case, predictor), TABLE_2[of_paper]
        near = abs(found.throughput / row.throughput - 1) <= THROUGHPUT_SHARE
        text = f"{predictor}: {found.throughput:.2f}x is within 10 % of the paper's {of_paper}"
        report.claim(text, near)
        text = f"{predictor}: {found.jct:.1f} % is within 3 points of the paper's {of_paper}"
        report.claim(text, abs(found.jct - row.jct) <= JCT_POINTS)


HEADS = {
    "binary": "binary",
    "ordinal_mse": "ordinal, MSE",
    "ordinal_l1": "ordinal, L1",
    "classes": "classes",
    "regression_mse": "regression, MSE",
    "regression_l1": "regression, L1",
}
"""Our heads and the paper's names for them."""

PERCENTILES = (25, 50, 75, 99)


def heads(report: Report) -> None:
    """Table 2 and Figs. 4 to 9 with heads trained here, on text of other kinds than the paper's."""
    for source in ssjf_heads.SOURCES:
        report.head(f"Table 2 with heads trained on {source}: dynamic batches of {PAPER_BATCH}")
        case = Case("dynamic", "rates", PAPER_BATCH, rows=(source, 1, 99))
        found = ssjf_heads.kept(source)
        report.rows([_of_head(report, case, name) for name in (*found.told, ORACLE)])
        gains = {name: report.gain(case, name) for name in (*found.told, ORACLE)}
        best = min(gains[name].jct for name in HEADS)
        text = f"{source}: all heads gain in JCT, the oracle more than any"
        report.claim(text, max(gains[n].jct for n in HEADS) < 0 and best > gains[ORACLE].jct)
    report.head("Figs. 4 to 7 with predictors trained on chat")
    report.rows([_modes_of(report, kind, name) for kind in KINDS for name in TRAINED])
    report.head("Fig. 8 with regression l1 trained on chat, varying rates")
    report.rows([_sizes_of(report, size) for size in SIZES])
    report.head(f"Fig. 9: rounds of chat, dynamic batches of {PAPER_BATCH}, varying rates")
    report.rows([_of_round(report, *each) for each in ((1, 1), (2, 2), (3, 99))])


def _of_head(report: Report, case: Case, name: str) -> dict[str, Any]:
    assert case.rows is not None
    found = ssjf_heads.kept(case.rows[0])
    row: dict[str, Any] = {"predictor": name.replace("_", " "), "accuracy": "", "F1": ""}
    row |= {"MAE": "", "tau": ""}
    if name != ORACLE:
        told, binary = found.told[name], name == "binary"
        edges = np.percentile(found.truth, (50,) if binary else PERCENTILES)
        row["accuracy"], row["F1"] = (
            f"{x:.3f}" for x in ssjf_heads.scored(found.truth, told, edges)
        )
        row["MAE"] = f"{np.abs(told - found.truth).mean():.1f}"
        row["tau"] = f"{kendall_tau(told.astype(float), found.truth):.3f}"
    gained = report.gain(case, name)
    row["JCT %"] = f"{gained.jct:.1f} ±{gained.jct_half:.1f}"
    row["x"] = f"{gained.throughput:.2f} ±{gained.throughput_half:.2f}"
    row["paper"] = _printed(TABLE_2[HEADS[name]]) if name in HEADS else ""
    return row


TRAINED = ("regression_l1", "lexical")
"""The paper's head, and our default: their rows in the figures by mode."""

CHAT = ("chat", 1, 99)


def _modes_of(report: Report, kind: str, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"scheduler": f"{name.replace('_', ' ')}, {kind}"}
    for mode in MODES:
        found = report.gain(Case(mode, kind, rows=CHAT), name)
        jct, throughput = _of_paper(kind, mode, name)
        row[f"{mode} %"] = f"{found.jct:.1f} ±{found.jct_half:.1f} ({jct:g})"
        row[f"{mode} x"] = f"{found.throughput:.2f} ±{found.throughput_half:.2f} ({throughput:g})"
    return row


def _sizes_of(report: Report, size: int) -> dict[str, Any]:
    row: dict[str, Any] = {"size": size}
    for mode in ("dynamic", "continuous"):
        found = report.gain(Case(mode, "rates", size, rows=CHAT), TRAINED[0])
        row[f"{mode} %"] = f"{found.jct:.1f} ±{found.jct_half:.1f}"
        row[f"{mode} x"] = f"{found.throughput:.2f} ±{found.throughput_half:.2f}"
    return row


OF_ROUND = {1: (0.619, -38.9), 2: (0.600, None)}
"""Accuracy and JCT % of Fig. 9 that the paper's text prints; -33.1 % is of round 5."""


def _of_round(report: Report, first: int, last: int) -> dict[str, Any]:
    """Return accuracy and gains of the regression with L1 on rows of some rounds."""
    found = ssjf_heads.kept("chat")
    kept = (found.rounds >= first) & (found.rounds <= last)
    told, edges = found.told["regression_l1"], np.percentile(found.truth, PERCENTILES)
    accuracy, _ = ssjf_heads.scored(found.truth[kept], told[kept], edges)
    case = Case("dynamic", "rates", PAPER_BATCH, rows=("chat", first, last))
    gained, best = report.gain(case, "regression_l1"), report.gain(case, ORACLE)
    of_paper = OF_ROUND.get(first, (None, None))
    printed = " / ".join("–" if x is None else f"{x:g}" for x in of_paper)
    return {
        "round": str(first) if first == last else f"{first} and later",
        "rows": int(kept.sum()),
        "accuracy": f"{accuracy:.3f}",
        "JCT %": f"{gained.jct:.1f} ±{gained.jct_half:.1f}",
        "x": f"{gained.throughput:.2f} ±{gained.throughput_half:.2f}",
        "oracle %": f"{best.jct:.1f} ±{best.jct_half:.1f}",
        "paper": "" if printed == "– / –" else printed,
    }


def _printed(row: Row) -> str:
    scored = "" if row.accuracy is None else f"{row.accuracy:.3f} / {row.f1:.3f}, "
    return f"{scored}{row.jct:g} %, {row.throughput:g}x"


def scores(classes: int) -> tuple[float, float]:
    """Return accuracy and F1, weighted by class, of the measured confusion."""
    matrix = load_confusion(classes).matrix()
    right = np.diag(matrix)
    f1 = 2 * right / (matrix.sum(axis=0) + matrix.sum(axis=1))
    total = matrix.sum()
    return float(right.sum() / total), float((f1 * matrix.sum(axis=1)).sum() / total)


CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("as in their code", {}),
    ("batches of 4, as in the paper", {"size": PAPER_BATCH}),
    ("waits 5 s, as in their readme", {"wait_s": 5.0}),
    ("FCFS does not wait", {"wait_s": 0.0}),
    ("no request is rescued from starving", {"rescue": False}),
    ("the last request is served", {"forget": False}),
    ("gaps not sorted", {"sort_gaps": False}),
    ("orsched's sjf and fcfs_batched", {"plain": True}),
)
"""What is changed, one thing at a time."""

CHANGES_OF_CLASSES: tuple[tuple[str, dict[str, Any]], ...] = (
    CHANGES[0],
    ("rescued by predicted lengths", {"peek": False}),
    ("orsched's ssjf and fcfs_batched", {"plain": True}),
)


def differences(report: Report) -> None:
    """What each choice of the authors' setting is worth to the oracle."""
    report.head("The setting, one thing changed at a time: the oracle's JCT % / throughput")
    rows = [_changed(report, label, changed, ORACLE) for label, changed in CHANGES]
    report.rows(rows)
    report.head("The same for 5 classes")
    report.rows([_changed(report, label, changed, FIVE) for label, changed in CHANGES_OF_CLASSES])
    report.head("Throughput of all 50 requests, not of the first 12; the last one is served")
    rows = []
    for name in (FIVE, ORACLE):
        row: dict[str, Any] = {"scheduler": NAMES[name]}
        for kind in KINDS:
            for mode in MODES:
                found = report.gain(Case(mode, kind, forget=False), name).whole
                row[f"{kind}, {mode}"] = f"{found:.2f}"
        rows.append(row)
    report.rows(rows)
    ends = [report.gain(Case("none", kind, forget=False), ORACLE).whole for kind in KINDS]
    report.claim("none: no order is done earlier with all", all(abs(x - 1) < 1e-9 for x in ends))


def _changed(report: Report, label: str, changed: dict[str, Any], scheduler: str) -> dict[str, Any]:
    row: dict[str, Any] = {"change": label}
    for kind in KINDS:
        for mode in MODES:
            found = report.gain(Case(mode, kind)._replace(**changed), scheduler)
            row[f"{kind}, {mode}"] = f"{found.jct:.1f} / {found.throughput:.2f}"
    return row


PARTS = {
    "--figures": (figures, "Figs. 4 to 7"),
    "--sizes": (sizes, "Fig. 8"),
    "--predictors": (predictors, "Table 2"),
    "--heads": (heads, "all with heads trained here, and Fig. 9"),
    "--differences": (differences, "what each choice of the setting is worth"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run; what does not hold is printed, and is no error."""
    parser = argparse.ArgumentParser(prog="ssjf_authors", description=__doc__.splitlines()[0])
    for option, (part, text) in PARTS.items():
        parser.add_argument(
            option, dest="parts", action="append_const", const=part, default=[], help=text
        )
    text = "runs of each point, 100 by default; the authors have 20"
    parser.add_argument("--runs", type=int, default=5 * authors.RUNS, help=text)
    given = parser.parse_args(arguments)
    if given.runs < 1:
        parser.error(f"--runs {given.runs}: at least one run is needed")
    report = Report(given.runs)
    source = ssjf_setting.lengths(1, 0)[2]
    print(f"lengths: {source}; {given.runs} runs of {authors.JOBS} requests; "
          f"batches of {authors.BATCH}")  # fmt: skip
    for part in given.parts or [part for part, _ in PARTS.values()]:
        part(report)
    print(f"\n{report.misses} statements do not hold" if report.misses else "\nall statements hold")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
