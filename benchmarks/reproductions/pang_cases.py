"""Draw Figs. 10 and 11 of Pang et al.: utilization and speed of 100 cases, case by case.

python -m benchmarks.reproductions.pang_cases [--cases N] [-o FILE.svg] solves each case first come
first served, by ``hybrid``, and by ``hybrid`` under the reading that comes near to the paper's
tables (lengths with an error of 10 %, the waited-time gate, queues in order of arrival), prints the
means and draws, with ``-o``, a mark a case. All schedules pass the checker.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import orsched
from benchmarks.arguments import count
from benchmarks.reproductions.svg import save_svg
from benchmarks.speed.section import table
from orsched.instances.synthetic import pang_case
from orsched.views.style import WORKER_COLOURS

if TYPE_CHECKING:
    from collections.abc import Sequence

FAITHFUL = "hybrid@predicted+gate=waited_time+assignment=packing+order=arrival"
METHODS = (
    ("first come, first served", "fcfs", 0.0),
    ("hybrid, the paper's reading", FAITHFUL, 0.1),
    ("hybrid", "hybrid", 0.0),
)
FIGURES = (
    ("slot_utilization", "utilization, %", 100.0, "+8.0"),
    ("tokens_per_s", "tokens/s", 1.0, "+100.63"),
)

Case = dict[str, float]


def solved(cases: int) -> dict[str, list[Case]]:
    """Return both figures of each case by method."""
    found: dict[str, list[Case]] = {name: [] for name, _, _ in METHODS}
    for seed in range(cases):
        for name, method, sigma in METHODS:
            instance = pang_case(seed, prediction_sigma=sigma)
            row = orsched.solve(instance, method).to_row()
            found[name].append({column: float(row[column]) for column, *_ in FIGURES})
    return found


def means(found: dict[str, list[Case]]) -> list[dict[str, Any]]:
    """Return a row a method: both figures, and what is gained over the first method."""
    (first, *_) = found.values()
    rows = []
    for name, cases in found.items():
        row: dict[str, Any] = {"method": name}
        for column, label, scale, _ in FIGURES:
            gains = [scale * (a[column] - b[column]) for a, b in zip(cases, first, strict=True)]
            row[label] = f"{scale * mean(case[column] for case in cases):,.2f}"
            row[f"gain, {label}"] = f"{mean(gains):+.2f}"
            row[f"least, {label}"] = f"{min(gains):+.2f}"
        rows.append(row)
    paper = {f"gain, {label}": stated for _, label, _, stated in FIGURES}
    return [*rows, {"method": "paper", **paper}]


def draw(figure: Any, found: dict[str, list[Case]]) -> None:
    """Draw a panel a figure, a mark a case."""
    panels = figure.subplots(1, len(FIGURES))
    for ax, (column, label, scale, _) in zip(panels, FIGURES, strict=True):
        for (name, cases), colour, marker in zip(
            found.items(), WORKER_COLOURS, "oDs", strict=False
        ):
            values = [scale * case[column] for case in cases]
            ax.plot(values, marker, color=colour, label=name, markersize=3)
        ax.set(xlabel="case", ylabel=label)
        ax.grid(alpha=0.3)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the means and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=count, default=100)
    parser.add_argument("-o", "--output", type=Path, help="where to draw it (.svg)")
    values = parser.parse_args(arguments)
    found = solved(values.cases)
    print("\n".join(table(means(found))))
    if values.output is None:
        return 0
    save_svg(lambda figure: draw(figure, found), values.output, (8, 3.4), "pang-cases")
    print(values.output)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
