"""Reproduce figures of SCLS (Cheng et al., arXiv 2406.13511): tables, and what the paper states.

python -m benchmarks.reproductions.scls [--figure 12 13 15 17 18 22] [--sensitivity] [--continuous]

With ``ORSCHED_DATA`` the lengths are ShareGPT's, else drawn from a fixed law of the same shape. All
schedules pass the checker. The papers' figures are those that its text prints.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from benchmarks.arguments import count
from benchmarks.reproductions import scls_setting as setting
from benchmarks.reproductions.findings import Findings
from benchmarks.reproductions.scls_runs import SLICE_COUNTS, Figures, continuous, static
from benchmarks.speed.section import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RATES = (5, 10, 15, 20, 25)
SLICES = (16, 32, 64, 128, 256, 512, 1024)
COUNTS = (1, 2, 4, 6, 8)
STRATEGIES = ("SLS", "SO", "PM", "AB", "LB", "SCLS")
LIMITS = (4, 6, 8, 12, 16, 24, 32)
OVERALL = ("requests_per_s", "mean_s", "p95_s")
DIVE = ("invalid", "batch", "pads", "reschedules", "below_3_%", "early_%")
COUNTED = (*(f"{k} %" for k in SLICE_COUNTS), "more %")
SHARES = (0.9, 0.7, 0.5, 0.4, 0.3)
ANSWERS = (1.0, 0.5, 1 / 3)

PAPER = {
    ("HF", "SLS"): {"requests_per_s": (232, 316), "mean_s": (-82, -85), "p95_s": (-80, -81)},
    ("DS", "SLS"): {"requests_per_s": (82, 192), "mean_s": (-81, -91), "p95_s": (-77, -89)},
    ("DS", "ILS 12"): {"requests_per_s": (62, 171), "mean_s": (-78, -88), "p95_s": (-75, -86)},
}
PAPER["DS", "ILS 6"] = PAPER["DS", "ILS 12"]
"""Change by SCLS against a baseline over its rates in per cent, as the text of 5.2 states."""


class Report(Findings):
    """Prints tables and findings, and counts what does not hold."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self.seeds = seeds
        super().__init__()
        self.overall: list[Figures] = []

    def rows(self, rows: Sequence[Figures], names: Sequence[str]) -> None:
        """Print the given columns and those that tell the rows apart."""
        keys = ["engine", "strategy", "rate", "slice", "workers", "parallel", "change"]
        wanted = [*(k for k in keys if k in rows[0]), *names]
        print("\n".join(table([{k: row[k] for k in wanted if k in row} for row in rows])))

    def by_rate(self) -> list[Figures]:
        """Return all schedulers on all engines at all rates, computed once."""
        if not self.overall:
            for rate in RATES:
                for engine in setting.ENGINES:
                    for strategy in ("SLS", "SCLS"):
                        row = static(engine, strategy, rate, seeds=self.seeds)
                        self.overall.append(row | {"rate": rate})
                for limit in (setting.PARALLEL, setting.SECOND_PARALLEL):
                    row = continuous("ILS", rate, parallel=limit, seeds=self.seeds)
                    self.overall.append(row | {"rate": rate})
        return self.overall


def change(ours: float, other: float) -> float:
    """Return the change against another value, in per cent."""
    return 100 * (ours - other) / other


def pairs(rows: Sequence[Figures]) -> Iterator[tuple[str, str, Figures, Figures]]:
    """Yield (engine, baseline, its row, SCLS's row) at each rate."""
    found = {(row["engine"], row["strategy"], row["rate"]): row for row in rows}
    for engine, other in PAPER:
        for rate in RATES:
            yield engine, other, found[engine, other, rate], found[engine, "SCLS", rate]


def figure_12(report: Report) -> None:
    """Throughput and response times by rate."""
    rows = report.by_rate()
    report.head("Figs. 12 and 17: throughput, mean and p95 response time, spread of the ends")
    report.rows(rows, (*OVERALL, "end_std_s"))
    gains, claims = [], []
    for engine, other in PAPER:
        found = [p for p in pairs(rows) if p[:2] == (engine, other) and overloaded(p[2])]
        row = {"": f"{engine}: {other}", "rates": " ".join(str(b["rate"]) for _, _, b, _ in found)}
        for name in OVERALL:
            values = [change(ours[name], base[name]) for _, _, base, ours in found]
            near, far = sorted((min(values), max(values)), key=abs)
            row[name] = f"{near:+.0f} to {far:+.0f} %"
            row[f"{name}, paper"] = "{:+} to {:+} %".format(*PAPER[engine, other][name])
            better = min(values) > 0 if name == "requests_per_s" else max(values) < 0
            claims.append((f"{engine}: SCLS is better than {other}, {name}", better))
        gains.append(row)
    print("Change by SCLS at the rates that overload the baseline:")
    print("\n".join(table(gains)))
    for text, holds in claims:
        report.claim(text, holds)


def overloaded(row: Figures) -> bool:
    """Whether a scheduler falls behind; the paper's gains show that its baselines always did."""
    return bool(row["requests_per_s"] < 0.9 * row["rate"])


def figure_13(report: Report) -> None:
    """Invalid tokens, batch size and pad tokens by rate; Fig. 14 beside them."""
    rows = [row for row in report.by_rate() if "ILS" not in row["strategy"]]
    report.head("Fig. 13 and 14: a request's invalid and pad tokens, batch size, reschedules")
    report.rows(rows, DIVE)
    for engine in setting.ENGINES:
        ours = [r for r in rows if (r["engine"], r["strategy"]) == (engine, "SCLS")]
        base = [r for r in rows if (r["engine"], r["strategy"]) == (engine, "SLS")]
        both = list(zip(ours, base, strict=True))
        paper = {"HF": "+100 to +226 %", "DS": "+43 to +86 %"}[engine]
        sizes = [change(a["batch"], b["batch"]) for a, b in both]
        text = f"{engine}: batch size {min(sizes):+.0f} to {max(sizes):+.0f} % (paper {paper})"
        report.claim(text, min(sizes) > 0)
        fewer = all(a["invalid"] < b["invalid"] for a, b in both)
        report.claim(f"{engine}: fewer invalid tokens than SLS", fewer)
        report.claim(
            f"{engine}: fewer pad tokens than SLS", all(a["pads"] < b["pads"] for a, b in both)
        )
        grows = ours[-1]["batch"] > ours[0]["batch"] and ours[-1]["pads"] < ours[0]["pads"]
        report.claim(
            f"{engine}: batches grow and pads shrink from the least to the highest rate", grows
        )
        early = max(row["early_%"] for row in ours)
        report.claim(f"{engine}: early returns {early:.2f} % at most (paper: below 1 %)", early < 1)
        few = min(row["below_3_%"] for row in ours)
        text = f"{engine}: less than 3 reschedules: {few:.1f} % of the requests at least"
        report.claim(f"{text} (paper: the vast majority)", few > 80)
    report.head("Fig. 14a: per cent of the requests by their number of slices, SCLS")
    slices(report, [row for row in rows if row["strategy"] == "SCLS"])


def figure_15(report: Report) -> None:
    """The ablation; Fig. 16 beside it."""
    report.head(f"Fig. 15 and 16: ablation at {setting.RATE:g} requests a second")
    for engine in setting.ENGINES:
        rows = [static(engine, strategy, seeds=report.seeds) for strategy in STRATEGIES]
        report.rows(rows, [*OVERALL, *DIVE, "end_std_s"])
        for before, after in pairwise(rows):
            more = change(after["requests_per_s"], before["requests_per_s"])
            less = change(after["mean_s"], before["mean_s"])
            text = f"{engine}: {after['strategy']} after {before['strategy']}: throughput "
            report.claim(f"{text}{more:+.1f} %, mean {less:+.1f} %", more > 0 and less < 0)
        found = {row["strategy"]: row for row in rows}
        fewer = found["SO"]["invalid"] < found["SLS"]["invalid"]
        report.claim(f"{engine}: slices have fewer invalid tokens (SO against SLS)", fewer)
        fewer = found["PM"]["pads"] < found["SO"]["pads"]
        report.claim(f"{engine}: the batcher has fewer pad tokens (PM against SO)", fewer)
        larger = found["AB"]["batch"] > found["PM"]["batch"]
        report.claim(f"{engine}: without the fixed size batches are larger (AB against PM)", larger)


def figure_17(report: Report) -> None:
    """The spread of the workers' completion times."""
    rows = report.by_rate()
    report.head("Fig. 17: standard deviation of the workers' completion times, in Fig. 12's table")
    for engine, other in PAPER:
        found = [p for p in pairs(rows) if p[:2] == (engine, other)]
        found = [p for p in found if overloaded(p[2])]
        least = all(ours["end_std_s"] < base["end_std_s"] for _, _, base, ours in found)
        report.claim(f"{engine}: SCLS is more even than {other} where that is overloaded", least)


def figure_18(report: Report) -> None:
    """The length of a slice; Figs. 19 to 21 beside it."""
    report.head(f"Fig. 18 to 21: the slice, at {setting.RATE:g} requests a second")
    counted = []
    for engine in setting.ENGINES:
        rows = [
            static(engine, slice_tokens=tokens, seeds=report.seeds) | {"slice": tokens}
            for tokens in SLICES
        ]
        report.rows(rows, [*OVERALL, *DIVE, "end_std_s"])
        rates = [row["requests_per_s"] for row in rows]
        best = rates.index(max(rates))
        text = f"{engine}: throughput rises, then falls: best at a slice of {SLICES[best]}"
        report.claim(text, 0 < best < len(SLICES) - 1)
        sizes = rows[0]["batch"], rows[-1]["batch"]
        text = f"{engine}: batches shrink from the least to the longest slice"
        report.claim(f"{text}: {sizes[0]:.1f} to {sizes[1]:.1f}", sizes[1] < sizes[0])
        grows = all(a["invalid"] < b["invalid"] for a, b in pairwise(rows))
        report.claim(f"{engine}: invalid tokens grow with the slice", grows)
        fewer = all(a["reschedules"] > b["reschedules"] for a, b in pairwise(rows))
        report.claim(f"{engine}: reschedules fall with the slice", fewer)
        early = all(a["early_%"] <= b["early_%"] for a, b in pairwise(rows))
        report.claim(f"{engine}: early returns grow with the slice", early)
        counted += rows
    report.head("Fig. 20a: per cent of the requests by their number of slices")
    slices(report, counted)


def slices(report: Report, rows: Sequence[Figures]) -> None:
    """Print the distribution of slices of the first engine: the others' are the same."""
    first = next(iter(setting.ENGINES))
    shares: dict[str, list[list[float]]] = {}
    for row in rows:
        shares.setdefault(row["engine"], []).append([row[name] for name in COUNTED])
    report.rows([row for row in rows if row["engine"] == first], COUNTED)
    alike = all(found == shares[first] for found in shares.values())
    report.claim("answers alone decide on slices: they are the same on both engines", alike)


def figure_22(report: Report) -> None:
    """Throughput by the number of workers."""
    report.head(f"Fig. 22: workers, at {setting.RATE:g} requests a second")
    for engine in setting.ENGINES:
        rows = [
            static(engine, workers=count, seeds=report.seeds) | {"workers": count}
            for count in COUNTS
        ]
        report.rows(rows, OVERALL)
        each = [row["requests_per_s"] / row["workers"] for row in rows]
        text = f"{engine}: linear: {min(each):.3f} to {max(each):.3f} requests/s a worker"
        report.claim(text, min(each) > 0.9 * max(each))


def sensitivity(report: Report) -> None:
    """SCLS's gains when each constant is 30 % lower or higher, and by the limit of ILS."""
    report.head("Sensitivity: throughput gain of SCLS, each constant -30 % and +30 %")
    rows = []
    for name in ("", "prefill_s", "context_s", "fixed_s"):
        for factor in (0.7, 1.3) if name else (1.0,):
            rows.append(_gains(report, name, factor))
    names = [f"{engine}, {other} %" for engine, other in PAPER]
    report.rows(rows, names)
    for name in names:
        least = min(row[name] for row in rows)
        report.claim(f"SCLS is ahead at all of them: {name} is {least:+.1f} at least", least > 0)
    ours = static("DS", seeds=report.seeds)
    rows = []
    for limit in LIMITS:
        row = continuous("ILS", parallel=limit, seeds=report.seeds) | {"parallel": limit}
        rows.append(row | {"SCLS %": change(ours["requests_per_s"], row["requests_per_s"])})
    report.rows(rows, [*OVERALL, "SCLS %"])
    memory_shares(report)
    shorter_answers(report)


def shorter_answers(report: Report) -> None:
    """What SCLS gains at the least and the highest rate if the answers are shorter."""
    report.head("Output tokens multiplied: throughput gain of SCLS over SLS")
    rows = []
    for engine in setting.ENGINES:
        for factor in ANSWERS:
            row: Figures = {"engine": engine, "change": f"answers x {factor:.3g}"}
            for rate in (RATES[0], RATES[-1]):
                base, ours = (
                    static(engine, name, rate, seeds=report.seeds, answers=factor)
                    for name in ("SLS", "SCLS")
                )
                gain = change(ours["requests_per_s"], base["requests_per_s"])
                row |= {f"at {rate} %": gain, "below_3_%": ours["below_3_%"]}
            rows.append(row)
    report.rows(rows, [*(f"at {rate} %" for rate in (RATES[0], RATES[-1])), "below_3_%"])


def memory_shares(report: Report) -> None:
    """HF's zeta of eq. (9), 0.9 in the paper (5.1), and less, at the least and the highest rate."""
    report.head("HF: the share of the memory that may be used")
    rows = []
    for rate in (RATES[0], RATES[-1]):
        base = static("HF", "SLS", rate, seeds=report.seeds)
        for share in SHARES:
            row = static("HF", rate=rate, seeds=report.seeds, memory_share=share)
            gains = {
                f"{name} %": change(row[name], base[name]) for name in ("batch", "requests_per_s")
            }
            rows.append(row | gains | {"rate": rate, "change": f"zeta {share}"})
    report.rows(rows, ["batch", "batch %", "requests_per_s", "requests_per_s %"])


def _gains(report: Report, name: str, factor: float) -> Figures:
    hf, ds = (
        constants.scaled(name, factor) if name else constants
        for constants in (setting.HF, setting.DS)
    )
    throughput: dict[tuple[str, str], float] = {}
    for engine, constants in (("HF", hf), ("DS", ds)):
        for strategy in ("SLS", "SCLS"):
            row = static(engine, strategy, constants=constants, seeds=report.seeds)
            throughput[engine, strategy] = row["requests_per_s"]
    for limit in (setting.PARALLEL, setting.SECOND_PARALLEL):
        row = continuous("ILS", parallel=limit, constants=ds, seeds=report.seeds)
        throughput["DS", row["strategy"]] = row["requests_per_s"]
    label = f"{name} {100 * (factor - 1):+.0f} %" if name else "as stated"
    gains: dict[str, Any] = {"change": label}
    for engine, other in PAPER:
        gain = change(throughput[engine, "SCLS"], throughput[engine, other])
        gains[f"{engine}, {other} %"] = gain
    return gains


def on_continuous(report: Report) -> None:
    """Slices on continuous batching (their section 7), which the paper does not measure."""
    report.head("Section 7: slices on continuous batching")
    rows = []
    for rate in (setting.RATE, 2 * setting.RATE):
        for label, options in {
            "ILS, 12 in parallel": {"strategy": "ILS"},
            "ILS, memory alone": {"strategy": "ILS", "parallel": None},
            "slices": {"strategy": "slices"},
            "slices, back if others wait": {"strategy": "slices", "renew": "idle"},
            "slices, always back": {"strategy": "slices", "renew": "never"},
        }.items():
            row = continuous(rate=rate, **options, seeds=report.seeds)
            rows.append(row | {"strategy": label, "rate": rate})
    report.rows(rows, [*OVERALL, "batch", "reschedules", "end_std_s"])
    best = max(row["requests_per_s"] for row in rows[5:7])
    gain = change(rows[7]["requests_per_s"], best)
    report.claim(f"overloaded, slices serve more than ILS: {gain:+.1f} %", gain > 0)


FIGURES = {
    12: figure_12,
    13: figure_13,
    15: figure_15,
    17: figure_17,
    18: figure_18,
    22: figure_22,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run; what does not hold is printed, and is no error."""
    parser = argparse.ArgumentParser(prog="scls", description=__doc__.splitlines()[0])
    parser.add_argument("--figure", nargs="*", type=int, choices=list(FIGURES), metavar="N",
                        help="12 (overall), 13 (dive), 15 (ablation), 17 (balance), 18 (slice), "
                        "22 (workers); all of them by default")  # fmt: skip
    parser.add_argument("--sensitivity", action="store_true", help="constants -30 %%, +30 %%")
    parser.add_argument("--continuous", action="store_true", help="their section 7")
    parser.add_argument("--seeds", type=count, default=3, help="workloads, from seed 0")
    given = parser.parse_args(arguments)
    report = Report(range(given.seeds))
    chosen = given.figure
    if chosen is None:
        chosen = [] if given.sensitivity or given.continuous else list(FIGURES)
    _, source = setting.workload(1, 0, 10)
    print(f"{source} lengths, {given.seeds} seeds, {setting.CACHE_TOKENS} tokens of cache")
    for engine, constants in setting.ENGINES.items():
        print(f"{engine}: {constants}")
    for number in chosen:
        FIGURES[number](report)
    if given.sensitivity:
        sensitivity(report)
    if given.continuous:
        on_continuous(report)
    print(f"\n{report.misses} statements do not hold" if report.misses else "\nall statements hold")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
