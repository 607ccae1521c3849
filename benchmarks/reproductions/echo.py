"""Reproduce Figs. 6 to 11 of Echo (Wang et al.): the paper's figures beside ours.

python -m benchmarks.reproductions.echo [--part fig6 .. fig11 ours] [--workload ...] [--seed N]

``ours`` compares ``slack`` with Echo, HyGen-like and ConServe-like, and, with ``--bound``, with the
proven bound. Interactive lengths are ShareGPT's where ``ORSCHED_DATA`` is set, else of a fixed law
of the same shape. All schedules pass the checker.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.reproductions import echo_setting as setting
from benchmarks.reproductions.echo_runs import Run, problem_of, run
from benchmarks.reproductions.findings import Findings
from benchmarks.speed.section import table
from orsched.heuristics.echo import CONFIGURATIONS, MemoryForecast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.reproductions.echo_runs import Parameters

WORKLOADS = ("loogle-short", "loogle-long", "sharegpt", "toolbench", "nextqa")
RIVALS = ("loogle-short", "toolbench", "nextqa")
"""The workloads on which the policies are compared with each other."""

PAPER_SPEEDUP = {"loogle-short": 3.3}
"""Fig. 6, as far as the text prints it: up to 3.3, BS+E slightly below 1."""

PAPER_HIT_RATE = 0.786
"""Echo on LooGLE QA Short (Fig. 9)."""

SPANS = ((0, 4), (4, 6), (6, 12), (12, 14), (14, 18), (18, 24))
"""Hours of the day that are shown together."""

COVERED = 0.95
"""Share of the time that mu + 2 sigma is to cover (5.3)."""


class Report(Findings):
    """Prints tables and findings of one seed and day."""

    def __init__(
        self, seed: int, day_s: float, workloads: Sequence[str], attention: bool = False
    ) -> None:
        super().__init__()
        self.seed, self.day_s, self.workloads = seed, day_s, workloads
        self.attention = attention

    @property
    def changes(self) -> Parameters:
        """What is changed of the setting."""
        return (("day_s", self.day_s), ("attention", self.attention))

    def echo(self, workload: str, configuration: str, estimator: str = "pooling") -> Run:
        """Run Echo; its hour of the past is an hour of the scaled day."""
        parameters = (
            ("configuration", configuration),
            ("estimator", estimator),
            ("window_s", self.day_s / 24),
        )
        return self.run(workload, "echo", parameters)

    def run(self, workload: str, method: str, parameters: Parameters = ()) -> Run:
        """Run a method."""
        return run(workload, method, parameters, self.seed, self.changes)

    def rows(self, rows: Sequence[dict[str, Any]]) -> None:
        """Print a table."""
        print("\n".join(table(list(rows))), flush=True)


def figure_6(report: Report) -> None:
    """Bulk throughput over BS."""
    report.head("Fig. 6: bulk tokens of the day over BS (paper: up to 3.3, BS+E slightly below 1)")
    rows, factors = [], {}
    for workload in report.workloads:
        base = report.echo(workload, "bs")
        row: dict[str, Any] = {"workload": workload, "BS, tokens/s": _rate(report, base)}
        for name in CONFIGURATIONS[1:]:
            factors[workload, name] = report.echo(workload, name).bulk_tokens / base.bulk_tokens
            row[name] = f"{factors[workload, name]:.2f}"
        exact = report.echo(workload, "echo", "machine").bulk_tokens
        row["echo, exact times"] = f"{exact / base.bulk_tokens:.2f}"
        row["paper, echo"] = f"{PAPER_SPEEDUP[workload]:.1f}" if workload in PAPER_SPEEDUP else "-"
        rows.append(row)
    report.rows(rows)
    shared = [each for each in report.workloads if each != "sharegpt"]
    if shared:
        most = max(factors[each, "echo"] for each in shared)
        report.claim(f"Echo does up to 3.3 times the bulk work of BS (here {most:.2f})", most >= 3)
    for workload in report.workloads:
        e, s, m = (factors[workload, name] for name in CONFIGURATIONS[1:])
        report.claim(f"{workload}: BS+E is slightly below BS ({e:.2f})", 0.7 <= e <= 1.05)
        if workload in shared:
            text = f"{workload}: BS+E < BS+E+S <= Echo ({e:.2f} {s:.2f} {m:.2f})"
            report.claim(text, e < s <= 1.005 * m)


def figure_7(report: Report) -> None:
    """Latencies of the interactive requests."""
    report.head("Fig. 7: TTFT and TPOT of interactive requests, limits 1 s and 0.05 s, 90 %")
    for workload in report.workloads[:1]:
        runs = {name: report.echo(workload, name) for name in CONFIGURATIONS}
        small = (("configuration", "bs"), ("max_num_batched_tokens", 512))
        shown = {**runs, "bs, 512 tokens a step": report.run(workload, "echo", small)}
        report.rows([{"configuration": name, **_latencies(each)} for name, each in shown.items()])
        medians = {name: float(np.median(each.ttft_s)) for name, each in runs.items()}
        for name in CONFIGURATIONS[1:]:
            share = runs[name].attainment
            text = f"{workload}: {name} keeps the limits for at least 90 % ({share:.1%})"
            report.claim(text, share >= setting.ATTAINMENT)
        least = min(medians, key=medians.__getitem__)
        report.claim(f"{workload}: BS has the lowest median TTFT (here {least})", least == "bs")
        share = runs["bs"].attainment
        report.claim(f"{workload}: BS misses the limits ({share:.1%})", share < setting.ATTAINMENT)


def figure_8(report: Report) -> None:
    """Active requests over the day."""
    report.head("Fig. 8: active interactive and bulk requests over the day, Echo (paper: opposite)")
    for workload in report.workloads[:1]:
        samples = report.echo(workload, "echo").samples
        report.rows(
            [
                {
                    "hours": f"{begin}-{end}",
                    "interactive": f"{np.mean([each.online for each in part]):.1f}",
                    "bulk": f"{np.mean([each.bulk for each in part]):.1f}",
                }
                for begin, end in SPANS
                if (part := _within(report, samples, begin, end))
            ]
        )
        both = np.array([(each.online, each.bulk) for each in samples], float)
        found = float(np.corrcoef(both.T)[0, 1])
        report.claim(
            f"{workload}: they move against each other (correlation {found:.2f})", found < 0
        )


def figure_9(report: Report) -> None:
    """Hit rates over the day."""
    report.head(f"Fig. 9: hit rate of bulk prompts (paper: {PAPER_HIT_RATE:.1%}, LooGLE QA Short)")
    for workload in report.workloads[:1]:
        runs = {name: report.echo(workload, name) for name in CONFIGURATIONS}
        rows = []
        for name, each in runs.items():
            row = {"configuration": name, "day": f"{each.hit_rate:.1%}"}
            for begin, end in SPANS:
                hit, computed = each.hit[begin:end].sum(), each.computed[begin:end].sum()
                row[f"{begin}-{end} h"] = f"{hit / max(1, hit + computed):.1%}"
            rows.append(row)
        report.rows(rows)
        echo = runs["echo"].hit_rate
        text = f"{workload}: Echo's hit rate is at least the paper's ({echo:.1%})"
        report.claim(text, echo >= PAPER_HIT_RATE)
        peak = [_hit_rate(runs[name], 12, 14) for name in ("bs+e+s", "echo")]
        text = f"{workload}: at the peak BS+E+S falls below Echo ({peak[0]:.1%} {peak[1]:.1%})"
        report.claim(text, peak[0] < peak[1] - 0.005)


def figure_10(report: Report) -> None:
    """Memory by owner over the day."""
    report.head(
        "Fig. 10: memory by owner, Echo (paper: over half is running work most of the time)"
    )
    for workload in report.workloads[:1]:
        samples = report.echo(workload, "echo").samples
        rows = []
        for begin, end in SPANS:
            part = _within(report, samples, begin, end)
            online = np.mean([each.online_blocks for each in part]) / setting.BLOCKS
            used = np.mean([each.used_blocks for each in part]) / setting.BLOCKS
            rows.append(
                {
                    "hours": f"{begin}-{end}",
                    "running interactive": f"{online:.1%}",
                    "running bulk": f"{used - online:.1%}",
                    "free, contents kept": f"{1 - used:.1%}",
                }
            )
        report.rows(rows)
        busy = float(np.mean([each.used_blocks > setting.BLOCKS / 2 for each in samples]))
        text = f"{workload}: over half of the memory is running work most of the time ({busy:.1%})"
        report.claim(text, busy > 0.5)


def figure_11(report: Report) -> None:
    """The memory forecast beside what came."""
    report.head(
        "Fig. 11: memory of interactive requests, predicted (mu + 2 sigma) and real, blocks"
    )
    for workload in report.workloads[:1]:
        samples = report.echo(workload, "echo").samples
        for name, share in (("15 minutes", 1 / 96), ("an hour", 1 / 24)):
            forecast, pairs = MemoryForecast(report.day_s * share, 2.0), []
            for each in samples:
                pairs.append((forecast.blocks(each.now_ns), each.online_blocks))
                forecast.see(each.now_ns, each.online_blocks)
            rows = []
            for begin, end in SPANS:
                low, high = (len(samples) * hour // 24 for hour in (begin, end))
                predicted, real = (np.mean(part) for part in zip(*pairs[low:high], strict=True))
                rows.append(
                    {"hours": f"{begin}-{end}", "predicted": f"{predicted:.0f}"}
                    | {"real": f"{real:.0f}"}
                )
            print(f"Window of {name}")
            report.rows(rows)
            kept = float(np.mean([real <= predicted for predicted, real in pairs]))
            report.claim(f"{name}: mu + 2 sigma covers 95 % ({kept:.1%})", kept >= COVERED)


def ours(report: Report, with_bound: bool = False) -> None:
    """``slack`` beside the others."""
    report.head("Ours: bulk tokens of the day at an attainment of at least 90 %")
    wins = 0
    for workload in [each for each in report.workloads if each in RIVALS]:
        runs = {
            "echo": report.echo(workload, "echo"),
            "echo, exact times": report.echo(workload, "echo", "machine"),
            "hygen": report.run(workload, "hygen"),
            "conserve": report.run(workload, "conserve"),
            "slack, tree order": report.run(workload, "slack", (("order", "tree"),)),
            "slack": report.run(workload, "slack"),
        }
        bound = _bound(report, workload) if with_bound else None
        report.rows(
            [{"workload": workload, "policy": k} | _work(report, v, bound) for k, v in runs.items()]
        )
        if bound:
            print(f"proven bound: {bound / report.day_s:,.0f} tokens/s")
        rivals = [v for k, v in runs.items() if "slack" not in k]
        best = max(v.bulk_tokens for v in rivals if v.attainment >= setting.ATTAINMENT)
        more, share = runs["slack"].bulk_tokens / best - 1, runs["slack"].attainment
        won = more >= 0.1 and share >= setting.ATTAINMENT
        report.claim(f"{workload}: slack does at least 10 % more ({more:+.1%}, {share:.1%})", won)
        wins += won
    report.claim(f"on at least two of three workloads ({wins})", wins >= 2)


def _bound(report: Report, workload: str) -> int:
    from orsched.models.bounds.bulk_bound import bulk_bound

    problem = problem_of(workload, report.seed, report.changes)
    found = bulk_bound(problem, setting.ATTAINMENT, report.day_s, measure="in_time")
    return found.value


def _work(report: Report, each: Run, bound: int | None) -> dict[str, str]:
    row = {
        "tokens/s": _rate(report, each),
        "answered": f"{each.answered:,}",
        "attainment": f"{each.attainment:.1%}",
        "hit rate": f"{each.hit_rate:.1%}",
        "all done, s": f"{each.end_s:.0f}",
    }
    return row | ({"share of the bound": f"{each.bulk_tokens / bound:.1%}"} if bound else {})


def _rate(report: Report, each: Run) -> str:
    return f"{each.bulk_tokens / report.day_s:,.0f}"


def _hit_rate(each: Run, begin: int, end: int) -> float:
    hit, computed = int(each.hit[begin:end].sum()), int(each.computed[begin:end].sum())
    return hit / max(1, hit + computed)


def _within(report: Report, samples: Sequence[Any], begin: int, end: int) -> list[Any]:
    low, high = (hour / 24 * report.day_s * 1e9 for hour in (begin, end))
    return [each for each in samples if low <= each.now_ns < high]


def _latencies(each: Run) -> dict[str, str]:
    row = {"attainment": f"{each.attainment:.1%}", "tokens in time": f"{each.tokens_in_time:.1%}"}
    for name, values in (("TTFT", each.ttft_s), ("TPOT", each.tpot_s)):
        for share in (0.5, 0.9, 0.99):
            row[f"{name} p{100 * share:.0f}, ms"] = f"{1000 * np.quantile(values, share):.0f}"
    return row


PARTS: dict[str, Callable[[Report], None]] = {
    "fig6": figure_6,
    "fig7": figure_7,
    "fig8": figure_8,
    "fig9": figure_9,
    "fig10": figure_10,
    "fig11": figure_11,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and print the figures; a miss does not change the exit code."""
    parser = argparse.ArgumentParser(prog="echo", description=__doc__.splitlines()[0])
    known = (*PARTS, "ours")
    parser.add_argument("--part", nargs="+", choices=known, default=list(known))
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--day", type=float, default=setting.DAY_S, help="seconds of the day")
    parser.add_argument("--bound", action="store_true", help="shares of the proven bound")
    text = "prompt tokens take time for what they attend to, behind hits too"
    parser.add_argument("--attention", action="store_true", help=text)
    options = parser.parse_args(arguments)
    report = Report(options.seed, options.day, options.workload, options.attention)
    for name in options.part:
        if name == "ours":
            ours(report, options.bound)
        else:
            PARTS[name](report)
    print(f"\n{report.misses} statements do not hold")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
