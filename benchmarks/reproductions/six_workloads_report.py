"""Tables of the comparison on six workloads, and what is said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.reproductions.findings import Findings
from benchmarks.reproductions.page_tables import markdown, shown
from benchmarks.reproductions.six_workloads_settings import (
    FAMILIES,
    spec,
)
from orsched.calibration.intervals import mean_interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.reproductions.six_workloads_choice import Choice
    from benchmarks.reproductions.six_workloads_runs import Runs

LIMITED = ("gittins, TTFT of vllm, tuned", "gittins, TTFT of vllm, 2,048")
MOST_TTFT = 1.1
"""How many times vLLM's TTFT p99 the limited mode may have."""

WORTH = 1.0
"""Gains in mean JCT, in per cent, of which a share is asked for."""

PAIRS = (
    ("gittins", "vllm, tuned"),
    ("gittins", "papers, tuned"),
    ("gittins, tuned", "vllm, tuned"),
    ("gittins, TTFT of vllm, tuned", "vllm, tuned"),
    ("gittins, TTFT of vllm, 2,048", "vllm, 2,048"),
    ("gittins, predicted", "vllm, shortest first, tuned"),
)
"""Ours, and whom it is compared with pairwise."""


def listed(names: Iterable[str]) -> str:
    """Return names as a list in a sentence."""
    return ", ".join(names) or "none"


class Report(Findings):
    """Prints tables and statements on chosen settings."""

    def __init__(self, runs: Runs, choices: Sequence[Choice]) -> None:
        super().__init__()
        self.runs, self.choices = runs, choices
        self.seeds, self.tuning = len(choices[0].cases), len(choices[0].choosing)
        first = choices[0].cases[0]
        self.where = f"load {first.load:g}, cost {first.cost}"

    def figures(self) -> None:
        """Print the figures of all chosen settings."""
        self.head(
            f"{self.where}, seeds 0 to {self.seeds - 1}; chosen on 0 to {self.tuning - 1} of "
            + listed(f"{len(each.settings)} ({name})" for name, each in FAMILIES.items())
        )
        rows = []
        for choice in self.choices:
            for label, (_, scheduler) in choice.chosen.items():
                row = {"workload": choice.name, "policy": label, "setting": f"`{spec(scheduler)}`"}
                rows.append(row | _columns(lambda f, c=choice, s=label: c.values(s, f)))
        print(markdown(rows), flush=True)

    def differences(self) -> None:
        """Print pairwise differences, of all seeds and of those that chose nothing."""
        self.head(f"{self.where}: per cent, all seeds | seeds {self.tuning} on")
        rows = []
        for choice in self.choices:
            for ours, other in PAIRS:
                row = {"workload": choice.name, "ours": ours, "against": other}
                for figure, name in (("mean_s", "mean JCT %"), ("p99_s", "p99 JCT %")):
                    changes = [choice.change(ours, other, figure, f) for f in (0, self.tuning)]
                    row |= {name: shown(changes[0]), f"{name}, unseen": shown(changes[1])}
                row["TTFT p99, times"] = f"{choice.ratio(ours, other, 'ttft_p99_s'):.2f}"
                row["TPOT, times"] = f"{choice.ratio(ours, other, 'tpot_ms'):.2f}"
                rows.append(row)
        print(markdown(rows), flush=True)

    def claims(self) -> None:
        """Print what holds and what does not."""
        self.head(f"{self.where}: statements")
        for ours, other in PAIRS:
            for first in (0, self.tuning):
                self._less(ours, other, first)
        for label in ("vllm, tuned", "vllm, 2,048"):
            times = {each.name: each.ratio("gittins", label, "ttft_p99_s") for each in self.choices}
            text = listed(f"{times[name]:.1f} on {name}" for name in times)
            self.claim(f"gittins has at most {MOST_TTFT} times the TTFT p99 of {label}: {text}",
                       max(times.values()) <= MOST_TTFT)  # fmt: skip
        for ours in LIMITED:
            self._limited(ours, ours.removeprefix("gittins, TTFT of "))

    def _less(self, ours: str, other: str, first: int) -> None:
        """State where ours has less mean JCT, and where it has more."""
        changes = {each.name: each.change(ours, other, "mean_s", first) for each in self.choices}
        less = [name for name, each in changes.items() if each.high is not None and each.high < 0]
        more = [name for name, each in changes.items() if each.low is not None and each.low > 0]
        open_ = [name for name in changes if name not in less + more]
        text = f"less on {listed(less)}; more on {listed(more)}; open on {listed(open_)}"
        seeds = f"seeds {first} to {self.seeds - 1}"
        self.claim(f"{ours} has less mean JCT than {other} on all ({seeds}): {text}",
                   len(less) == len(changes))  # fmt: skip

    def _limited(self, ours: str, other: str) -> None:
        """State TTFT p99 of the limited mode, and what it keeps of the gain in mean JCT."""
        times = {each.name: each.ratio(ours, other, "ttft_p99_s") for each in self.choices}
        text = listed(f"{times[name]:.2f} on {name}" for name in times)
        self.claim(f"{ours}: at most {MOST_TTFT} times its TTFT p99: {text}",
                   max(times.values()) <= MOST_TTFT)  # fmt: skip
        gains = {
            each.name: [-each.change(label, other, "mean_s").mean for label in (ours, "gittins")]
            for each in self.choices
        }
        text = listed(f"{mine:.1f} of {free:.1f} on {name}" for name, (mine, free) in gains.items())
        kept = all(mine >= free / 2 for mine, free in gains.values() if free >= WORTH)
        self.claim(
            f"{ours}: at least half of the gain in mean JCT of gittins, per cent: {text}", kept
        )


def _columns(values: Any) -> dict[str, str]:
    """Return the columns of all figures from what returns one of them seed by seed."""
    columns = (
        ("mean JCT s", "mean_s", 1), ("p99 JCT s", "p99_s", 1), ("TTFT s", "ttft_s", 2),
        ("TTFT p99 s", "ttft_p99_s", 1), ("TPOT ms", "tpot_ms", 0), ("attainment %", "kept", 1),
    )  # fmt: skip
    return {name: shown(mean_interval(values(figure)), digits) for name, figure, digits in columns}
