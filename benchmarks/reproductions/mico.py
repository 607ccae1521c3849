"""Reproduce Table 1 and Figs. 7-14 of MICO (Cong et al.): tables, and what the paper states.

python -m benchmarks.reproductions.mico [--figure 1 7 11 12 13 14] [--seeds N] [--sensitivity]

1 is Table 1; 7 stands for Figs. 7 to 10, which show one setting. Numbers are means over the seeds
with 95 % confidence intervals of Student's t. With ``ORSCHED_DATA`` the lengths are ShareGPT's,
else drawn from a fixed law of the same shape. All schedules pass the checker.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING, Any

from benchmarks.reproductions import mico_setting as setting
from benchmarks.reproductions.findings import Findings
from benchmarks.reproductions.mico_runs import T_QUANTILE, Figures, interval, run
from benchmarks.speed.section import table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BATCHES = tuple(range(2, 11))
CLOUDS = (2, 3, 6, 9)
QUERIES = (200, 500, 800, 1000)
Changes = tuple[tuple[str, Any], ...]

PAPER_TABLE = {
    2: (1.67, 1.88, 1.98, 2.05, 2.08, 2.10, 2.10, 2.22, 2.17),
    3: (1.70, 1.91, 2.01, 2.04, 2.06, 2.14, 2.10, 2.16, 2.16),
    6: (1.79, 1.94, 2.00, 2.04, 2.07, 2.10, 2.10, 2.09, 2.02),
    9: (1.77, 1.89, 1.98, 2.08, 2.03, 2.02, 2.07, 2.11, 2.14),
}
"""Table 1: throughput of MICO over the baseline by clouds, batch sizes 2 to 10, 800 queries."""

PAPER_CLOUDS = (1.79, 1.78, 1.75)
PAPER_SAVED = (0.4154, 0.3945, 0.5068)
"""Figs. 9 and 8: speed-up of clouds 1 to 3, and the share of the cumulated KV length saved."""


class Report(Findings):
    """Prints tables and findings, and counts what does not hold."""

    def __init__(self, seeds: int) -> None:
        self.seeds = range(seeds)
        super().__init__()

    def ratios(
        self,
        new: str,
        old: str,
        count: int,
        clouds: int,
        batch: int,
        backoff: bool = False,
        changes: Changes = (),
        parameters: Changes = (),
    ) -> list[float]:
        """Return the throughput of a variant over another's, seed by seed."""
        found = []
        for seed in self.seeds:
            ours = run(new, count, clouds, batch, seed, backoff, changes, parameters)
            theirs = run(old, count, clouds, batch, seed, False, changes)
            found.append(theirs.makespan_ns / ours.makespan_ns)
        return found

    def rows(self, rows: Sequence[dict[str, Any]]) -> None:
        """Print a table."""
        print("\n".join(table(list(rows))), flush=True)


def table_1(report: Report) -> None:
    """Throughput by clouds and batch size, 800 queries."""
    report.head("Table 1: throughput of MICO over the baseline, 800 queries (paper's in brackets)")
    rows, means = [], {}
    for clouds in CLOUDS:
        row: dict[str, Any] = {"clouds": str(clouds)}
        for batch, paper in zip(BATCHES, PAPER_TABLE[clouds], strict=True):
            values = report.ratios("QI", "neither", 800, clouds, batch, backoff=True)
            means[clouds, batch] = mean(values)
            row[f"batch {batch}"] = f"{interval(values)} ({paper:.2f})"
        rows.append(row)
    report.rows(rows)
    low, high = min(means.values()), max(means.values())
    print(f"range {low:.2f} to {high:.2f} (paper 1.67 to 2.22)")
    report.claim("MICO has the higher throughput in every cell", low > 1)
    growing = all(means[k, 2] < means[k, 5] < means[k, 10] for k in CLOUDS)
    report.claim("the gain grows with the batch size (2, 5, 10), for any number of clouds", growing)
    spread = max(
        max(means[k, b] for k in CLOUDS) / min(means[k, b] for k in CLOUDS) for b in BATCHES
    )
    report.claim(f"clouds matter less than the batch size (at most {spread:.2f}x)", spread < 1.25)


def figures_7_to_10(report: Report) -> None:
    """One setting in detail: 200 queries, batch size 3, 3 clouds."""
    report.head("Figs. 7-10: 200 queries, batch size 3, 3 clouds; change against the baseline")
    rows = [_detail(report, "MICO", True), _detail(report, "MICO without back-off", False)]
    rows.append(
        {"": "paper", "throughput": "1.79", "by cloud": "1.79 1.78 1.75"}
        | {"KV literal %": "-44.89 (-39 to -51)"}
    )
    report.rows(rows)
    cache_by_cloud(report)
    pairs = _pairs(report, True)
    report.claim(
        "each cloud is faster (means)",
        all(mean(o.cloud_ends_ns[k] / n.cloud_ends_ns[k] for n, o in pairs) > 1 for k in range(3)),
    )
    peaks = mean(n.peak / o.peak for n, o in pairs)
    report.claim(f"peaks of the KV length are comparable ({peaks:.2f}x)", 0.67 < peaks < 1.5)
    for rule in ("engine", "literal", "own"):
        saved = mean(sum(n.kv[rule]) / sum(o.kv[rule]) - 1 for n, o in pairs)
        report.claim(f"cumulated KV length falls, {rule} ({100 * saved:+.1f} %)", saved < 0)
    shares = []
    for at in range(1, 10):
        place = 200 * at // 10 - 1
        shares.append(mean(o.ends_ns[place] / n.ends_ns[place] for n, o in pairs))
    text = " ".join(f"{x:.2f}" for x in shares)
    print(f"speed-up of the moment at which 10, 20, .. 90 % of the queries have their end: {text}")
    report.claim("MICO leads at each of these (Fig. 9, 10c)", min(shares) > 1)


def _pairs(report: Report, backoff: bool, changes: Changes = ()) -> list[tuple[Figures, Figures]]:
    return [
        (
            run("QI", 200, 3, 3, seed, backoff, changes, (), True),
            run("neither", 200, 3, 3, seed, False, changes, (), True),
        )
        for seed in report.seeds
    ]


def _detail(report: Report, name: str, backoff: bool, changes: Changes = ()) -> dict[str, Any]:
    pairs = _pairs(report, backoff, changes)
    clouds = [
        mean(
            n.served[k] * o.cloud_ends_ns[k] / (n.cloud_ends_ns[k] * o.served[k]) for n, o in pairs
        )
        for k in range(3)
    ]
    row = {
        "": name,
        "throughput": interval([o.makespan_ns / n.makespan_ns for n, o in pairs]),
        "by cloud": " ".join(f"{x:.2f}" for x in clouds),
    }
    for rule in ("engine", "literal", "own"):
        saved = [100 * (sum(n.kv[rule]) / sum(o.kv[rule]) - 1) for n, o in pairs]
        row[f"KV {rule} %"] = interval(saved)
    return row


def cache_by_cloud(report: Report) -> None:
    """What the KV length is made of: iterations, and the mean length in one, each by cloud."""
    print("Change against the baseline by cloud: cumulated KV length, iterations, mean length")
    pairs, rows = _pairs(report, True), []
    ends = [mean(n.cloud_ends_ns[k] / o.cloud_ends_ns[k] for n, o in pairs) for k in range(3)]
    for rule in ("engine", "literal", "own"):
        sums = [mean(n.kv[rule][k] / o.kv[rule][k] for n, o in pairs) for k in range(3)]
        rows.append(_by_parts(rule, sums, ends))
    rows.append(_by_parts("paper", [1 - x for x in PAPER_SAVED], [1 / x for x in PAPER_CLOUDS]))
    report.rows(rows)


def _by_parts(name: str, sums: Sequence[float], ends: Sequence[float]) -> dict[str, str]:
    parts = {"KV %": sums, "iterations %": ends}
    parts["mean length %"] = [a / b for a, b in zip(sums, ends, strict=True)]
    return {"": name} | {
        key: " ".join(f"{100 * (x - 1):+.1f}" for x in values) for key, values in parts.items()
    }


def figure_11(report: Report) -> None:
    """Throughput by batch size and queries, 3 clouds."""
    report.head("Fig. 11: throughput of MICO over the baseline, 3 clouds (paper 1.69 to 2.17)")
    rows, means = [], []
    for count in QUERIES:
        row: dict[str, Any] = {"queries": str(count)}
        for batch in BATCHES:
            values = report.ratios("QI", "neither", count, 3, batch, backoff=True)
            means.append(mean(values))
            row[f"batch {batch}"] = interval(values)
        rows.append(row)
    report.rows(rows)
    print(f"range {min(means):.2f} to {max(means):.2f}")
    report.claim("MICO has the higher throughput in every cell", min(means) > 1)


def figure_12(report: Report) -> None:
    """What Q gains."""
    with_i = _ablation(report, "Fig. 12a: Q, with I", "QI", "I")
    without = _ablation(report, "Fig. 12b: Q, without I", "Q", "neither")
    by_clouds = _by_clouds(report, "Fig. 12c: Q, with I, batch size 3", "QI", "I")
    for name, found in (("with I", with_i), ("without I", without)):
        cells = len(found)
        better = sum(mean(v) > 1 for v in found.values())
        whole = mean(mean(v) for v in found.values())
        report.claim(f"Q gains on the whole, {name} ({whole:.3f}x)", whole > 1)
        report.claim(f"Q gains in every cell, {name} ({better} of {cells})", better == cells)
        small = mean(mean(v) for (_, b), v in found.items() if b <= 4)
        large = mean(mean(v) for (_, b), v in found.items() if b >= 8)
        report.claim(
            f"Q's gain falls with the batch size, {name} (batch 2-4 {small:.3f}x, 8-10 "
            f"{large:.3f}x)",
            large < small,
        )
    kept_order(report)
    few = mean(mean(by_clouds[200, k]) for k in CLOUDS)
    many = mean(mean(by_clouds[1000, k]) for k in CLOUDS)
    report.claim(
        f"Q's gain grows with the queries (200: {few:.3f}x, 1,000: {many:.3f}x)", many > few
    )
    saved = [_seconds(report, "QI", "I", count) for count in (200, 1000)]
    report.claim(
        f"the time that Q saves grows with the queries ({saved[0]:.0f} s, {saved[1]:.0f} s)",
        saved[1] > saved[0],
    )


def kept_order(report: Report) -> None:
    """What Q gains when a cloud serves its requests in the order in which they were dealt."""
    report.head("Beyond Fig. 12: the longest predicted answers first, 3 clouds, no back-off")
    order = (("order", "long_answer"),)
    rows = []
    for count in (200, 800):
        for batch in (3, 10):
            row: dict[str, Any] = {"queries": str(count), "batch": str(batch)}
            for new, old in (("Q", "neither"), ("QI", "I"), ("QI", "neither")):
                values = report.ratios(new, old, count, 3, batch, parameters=order)
                row[f"{new} over {old}"] = interval(values)
            rows.append(row)
    report.rows(rows)


def figure_13(report: Report) -> None:
    """What I gains, and that both together gain most."""
    with_q = _ablation(report, "Fig. 13a: I, with Q", "QI", "Q")
    without = _ablation(report, "Fig. 13b: I, without Q", "I", "neither")
    by_clouds = _by_clouds(report, "Fig. 13c: I, with Q, batch size 3", "QI", "Q")
    for name, found in (("with Q", with_q), ("without Q", without), ("by clouds", by_clouds)):
        least = min(mean(v) for v in found.values())
        report.claim(f"I gains in every cell, {name} (at least {least:.2f}x)", least > 1)
    best = 0
    for count, batch in with_q:
        both, alone_i, alone_q = (
            mean(report.ratios(v, "neither", count, 3, batch)) for v in ("QI", "I", "Q")
        )
        best += both > max(alone_i, alone_q)
    report.claim(
        f"both together gain more than either ({best} of {len(with_q)} cells)", best == len(with_q)
    )


def _ablation(report: Report, title: str, new: str, old: str) -> dict[tuple[int, int], list[float]]:
    report.head(f"{title}: throughput with over without, 3 clouds, no back-off")
    found = {(n, b): report.ratios(new, old, n, 3, b) for n in QUERIES for b in BATCHES}
    report.rows(
        [{"queries": str(n)} | {f"batch {b}": _fine(found[n, b]) for b in BATCHES} for n in QUERIES]
    )
    return found


def _by_clouds(
    report: Report, title: str, new: str, old: str
) -> dict[tuple[int, int], list[float]]:
    report.head(f"{title}: throughput with over without, no back-off")
    found = {(n, k): report.ratios(new, old, n, k, 3) for n in QUERIES for k in CLOUDS}
    report.rows(
        [{"queries": str(n)} | {f"{k} clouds": _fine(found[n, k]) for k in CLOUDS} for n in QUERIES]
    )
    return found


def _fine(values: Sequence[float]) -> str:
    text, half = interval([100 * (x - 1) for x in values]).split(" ")
    return f"{float(text):+.1f} {half[0]}{float(half[1:]):.1f} %"


def _seconds(report: Report, new: str, old: str, count: int) -> float:
    return mean(
        (run(old, count, 3, 3, s).makespan_ns - run(new, count, 3, 3, s).makespan_ns) / 1e9
        for s in report.seeds
    )


def figure_14(report: Report) -> None:
    """GPT-neo: longer sequences, 3 clouds."""
    report.head("Fig. 14: GPT-neo, throughput of MICO over the baseline, 3 clouds (1.22 to 1.75)")
    rows, means = [], []
    changes = (("model", setting.GPT_NEO),)
    for count in QUERIES:
        row: dict[str, Any] = {"queries": str(count)}
        for batch in BATCHES:
            values = report.ratios("QI", "neither", count, 3, batch, True, changes)
            means.append(mean(values))
            row[f"batch {batch}"] = interval(values)
        rows.append(row)
    report.rows(rows)
    print(f"range {min(means):.2f} to {max(means):.2f}")
    report.claim("MICO has the higher throughput in every cell", min(means) > 1)


def sensitivity(report: Report) -> None:
    """The setting of Figs. 7-10 with other constants, lengths and insertions."""
    report.head("Sensitivity: 200 queries, batch size 3, 3 clouds")
    rows = [_detail(report, "as stated", True)]
    for name in ("iteration_ns", "token_ns"):
        for factor in (0.7, 1.3):
            model = setting.GPT2.scaled(name, factor)
            rows.append(_detail(report, f"{name} x {factor}", True, (("model", model),)))
    for accuracy in (0.6, 1.0):
        rows.append(_detail(report, f"accuracy {accuracy}", True, (("accuracy", accuracy),)))
    for source in ("gsm8k", "short"):
        rows.append(_detail(report, f"lengths {source}", True, (("source", source),)))
    rows.append(_detail(report, "no padding in time", True, (("literal", False),)))
    slow = (("model", replace(setting.GPT2, token_ns=1_000_000)),)
    rows.append(_detail(report, "token_ns x 100", True, slow))
    report.rows(rows)
    report.head("How prompts are inserted, token_ns x 100: throughput over the baseline")
    choices: list[tuple[str, Changes]] = [
        ("mixed (3.4)", (("insertion", "mixed"),)),
        ("decoupled (3.5.1)", (("insertion", "decoupled"),)),
        ("cheaper", ()),
        ("cheaper, short prompts first", (("order", "short_prompt"),)),
        ("cheaper, with the trade-off", (("trade_off", True),)),
    ]
    report.rows(
        [
            {"": name}
            | {
                label: interval(report.ratios("QI", "neither", 200, 3, 3, True, changes, values))
                for label, changes in (("token_ns", ()), ("token_ns x 100", slow))
            }
            for name, values in choices
        ]
    )


PARTS: dict[int, Callable[[Report], None]] = {
    1: table_1,
    7: figures_7_to_10,
    11: figure_11,
    12: figure_12,
    13: figure_13,
    14: figure_14,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and print the figures; a miss does not change the exit code."""
    parser = argparse.ArgumentParser(prog="mico", description=__doc__.splitlines()[0])
    parser.add_argument("--figure", type=int, nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--seeds", type=int, choices=list(T_QUANTILE), default=10)
    parser.add_argument("--sensitivity", action="store_true", help="other constants as well")
    options = parser.parse_args(arguments)
    report = Report(options.seeds)
    for number in options.figure:
        PARTS[number](report)
    if options.sensitivity:
        sensitivity(report)
    print(f"\n{report.misses} statements do not hold")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
