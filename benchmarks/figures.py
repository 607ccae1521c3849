"""The figures of the result pages, drawn from the tables on them.

python -m benchmarks.figures [PAGE ...] reads the tables of each page and draws its figure into
``docs/_static``. The tables are recorded ones (``benchmarks.write_results``), so a
figure shows no number of its own. Each holds a digest of its rows, which a test compares.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.pages import numbers, tables
from orsched.views.style import WORKER_COLOURS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DOCS = Path(__file__).resolve().parents[1] / "docs"
BLUE, ORANGE, GREEN, PINK, SKY, RED, BLACK, GREY = WORKER_COLOURS

Table = list[list[str]]


class Figure(NamedTuple):
    """A figure of a page.

    Attributes:
        page: name of the page.
        headings: sections whose tables it shows, and which of their tables.
        draw: draws these tables on a matplotlib figure.
        size: inches.
    """

    page: str
    headings: tuple[tuple[str, int], ...]
    draw: Callable[[Any, list[Table]], None]
    size: tuple[float, float]

    @property
    def path(self) -> Path:
        """The file, beside the other pictures."""
        return DOCS / "_static" / f"figure-{self.page}.svg"

    def rows(self) -> list[Table]:
        """Return the tables, or the lines of a printed block as rows of words."""
        text = (DOCS / f"{self.page}.md").read_text()
        return [_section(text, heading)[k] for heading, k in self.headings]

    def digest(self) -> str:
        """Return the digest of what the figure shows."""
        return hashlib.sha256(repr(self.rows()).encode()).hexdigest()[:16]


def _section(text: str, heading: str) -> list[Table]:
    """Return the tables of a section and, behind them, its printed blocks split at two spaces."""
    body = re.split(rf"^#+ {re.escape(heading)}\n", text, flags=re.M)[1]
    body = re.split(r"^#+ ", body, flags=re.M)[0]
    blocks = re.findall(r"^```text\n(.*?)^```", body, re.S | re.M)
    printed = [[re.split(r"\s{2,}", line) for line in block.splitlines()] for block in blocks]
    return [*tables(text, heading), *printed]


def number(cell: str, which: int = 0) -> float:
    """Return a number of a cell."""
    return float(numbers(cell.replace("*", ""))[which])


def dots(ax: Any, labels: Sequence[str], series: dict[str, Sequence[float | None]]) -> None:
    """Draw a row of marks a label, from above; a series each has its colour and shape."""
    for (name, values), colour, marker in zip(
        series.items(), WORKER_COLOURS, "oDs^v", strict=False
    ):
        pairs = [(v, k) for k, v in enumerate(values) if v is not None]
        ax.plot(*zip(*pairs, strict=True), marker, color=colour, label=name, markersize=7)
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.grid(axis="x", alpha=0.3)


def pang(figure: Any, found: list[Table]) -> None:
    """Gains over the baseline of ours and of the paper by method."""
    (table,) = found
    gains = [row for row in table[1:] if row[1].endswith("gain %")]
    ours, paper = [number(row[3]) for row in gains], [number(row[2]) for row in gains]
    ax = figure.subplots()
    names = [f"pang-{row[1].partition(' ')[0]}" for row in gains]
    dots(ax, names, {"orsched": ours, "Pang et al.": paper})
    ax.set_xlim(left=0)
    ax.set_xlabel("shorter than first come, first served, % (higher is better)")
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def six_workloads(figure: Any, found: list[Table]) -> None:
    """Changes in mean JCT with intervals, and TTFT p99, of ours against tuned settings."""
    (table,) = found
    pairs = (
        ("gittins", "vllm, tuned", "its defaults, against vllm tuned"),
        ("gittins, tuned", "vllm, tuned", "tuned, against vllm tuned"),
        ("gittins, TTFT of vllm, tuned", "vllm, tuned", "TTFT limited, against vllm tuned"),
    )
    by_pair = {(row[0], row[1], row[2]): row for row in table[1:]}
    names = list(dict.fromkeys(row[0] for row in table[1:]))
    jct, ttft = figure.subplots(1, 2, sharey=True)
    for k, ((ours, other, label), colour, marker) in enumerate(
        zip(pairs, (BLUE, GREEN, ORANGE), "oDs", strict=True)
    ):
        rows = [by_pair[name, ours, other] for name in names]
        heights = [place + 0.2 * (k - 1) for place in range(len(rows))]
        jct.errorbar(
            [number(row[3]) for row in rows],
            heights,
            xerr=[number(row[3], 1) for row in rows],
            fmt=marker,
            color=colour,
            capsize=3,
            label=f"gittins, {label}",
        )
        ttft.plot([number(row[7]) for row in rows], heights, marker, color=colour)
    for ax, same, title in ((jct, 0, "change in mean JCT, %"), (ttft, 1, "TTFT p99, times")):
        ax.axvline(same, color=BLACK, linewidth=1)
        ax.set_xlabel(title)
        ax.grid(axis="x", alpha=0.3)
    jct.set_yticks(range(len(names)), names)
    jct.set_ylim(len(names) - 0.5, -0.5)
    figure.legend(*jct.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)


def fidelity(figure: Any, found: list[Table]) -> None:
    """Errors of the simulated figures of all requests, by machine and what is known of it."""
    labels = [row[0] for row in found[0][1:]]
    names = ("RTX 4090, shape", "RTX PRO 6000, shape", "RTX 4090, profile")
    ax = figure.subplots()
    series = {
        name: [number(row[3]) for row in table[1:]]
        for name, table in zip(names, found, strict=True)
    }
    dots(ax, labels, series)
    ax.axvspan(-5, 5, color=GREEN, alpha=0.12, label="goal: 5 % on makespan and TPOT")
    ax.axvline(0, color=BLACK, linewidth=1)
    ax.set_xlim(-6, 6)
    ax.set_xlabel("simulated against measured, %")
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def scls(figure: Any, found: list[Table]) -> None:
    """Throughput by arrival rate of each scheduler on both engines."""
    (table,) = found
    for ax, engine in zip(figure.subplots(1, 2, sharey=True), ("HF", "DS"), strict=True):
        rows = [row for row in table[1:] if row[0] == engine]
        names = list(dict.fromkeys(row[1] for row in rows))
        for name, colour, marker in zip(names, WORKER_COLOURS, "oDs^", strict=False):
            points = [(number(row[2]), number(row[3])) for row in rows if row[1] == name]
            points.sort()
            ax.plot(*zip(*points, strict=True), f"-{marker}", color=colour, label=name)
        ax.set_title({"HF": "transformers", "DS": "DeepSpeed"}[engine], fontsize=10)
        ax.set_xlabel("arrivals, requests/s")
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    figure.axes[0].set_ylabel("done, requests/s")


def worth(figure: Any, found: list[Table]) -> None:
    """Draw the gain in mean JCT by load, a line a workload, a panel a policy."""
    (head, *rows) = found[0]
    loads, workloads = head[2:], list(dict.fromkeys(row[0] for row in rows))
    panels = figure.subplots(1, 2, sharey=True)
    for ax, policy in zip(panels, dict.fromkeys(row[1] for row in rows), strict=True):
        for row in (row for row in rows if row[1] == policy):
            at = workloads.index(row[0])
            x = [k + 0.05 * (at - 2) for k in range(len(loads))]
            gains, widths = ([number(cell, which) for cell in row[2:]] for which in (0, 1))
            ax.errorbar(x, gains, widths, marker="o", color=WORKER_COLOURS[at], label=row[0])
        ax.axhline(0, color=GREY, linewidth=0.8)
        ax.set_xticks(range(len(loads)), loads)
        ax.set(title=policy, xlabel="load")
    panels[0].set_ylabel("gain in mean JCT with five classes (%)")
    panels[0].legend(frameon=False)


def searches(figure: Any, found: list[Table]) -> None:
    """Draw median CPU seconds by size of each exact search; hollow marks did not prove all."""
    rows = found[0][1:]
    sizes = list(dict.fromkeys(row[0] for row in rows))
    names = list(dict.fromkeys(row[2] for row in rows))
    panels = figure.subplots(1, 2, sharey=True)
    for ax, arrivals, title in zip(panels, ("no", "yes"), ("all at 0", "arrivals"), strict=True):
        for name, colour, marker in zip(names, WORKER_COLOURS, "oDs", strict=False):
            of = [row for row in rows if (row[1], row[2]) == (arrivals, name)]
            at = [(sizes.index(row[0]), number(row[4])) for row in of]
            if at:
                ax.plot(*zip(*at, strict=True), "-", color=colour, linewidth=1)
            for row, point in zip(of, at, strict=True):
                whole = numbers(row[3])[0] == numbers(row[3])[1]
                face = colour if whole else "white"
                ax.plot(*point, marker, color=colour, markerfacecolor=face, markersize=7)
        ax.set(title=title, yscale="log", xlabel="requests x clients")
        ax.set_xticks(range(len(sizes)), sizes)
        ax.grid(alpha=0.3)
    for name, colour, marker in zip(names, WORKER_COLOURS, "oDs", strict=False):
        panels[0].plot([], [], marker, color=colour, label=name)
    panels[0].plot([], [], "o", color=GREY, markerfacecolor="white", label="not all proven")
    panels[0].set_ylabel("CPU s, median (logarithmic)")
    panels[0].legend(fontsize=8)


def latency_gaps(figure: Any, found: list[Table]) -> None:
    """Draw mean JCT over the bound by load, a panel for each workload."""
    (head, *rows) = found[0]
    names = [name for name in head if name.endswith(" / bound")]
    workloads = list(dict.fromkeys(row[0] for row in rows))
    for ax, workload in zip(
        figure.subplots(1, len(workloads), sharey=True), workloads, strict=True
    ):
        of = [row for row in rows if row[0] == workload]
        for name, colour, marker in zip(names, WORKER_COLOURS, "oDs", strict=False):
            ratios = [number(row[head.index(name)]) for row in of]
            label = name.removesuffix(" / bound")
            ax.plot([row[1] for row in of], ratios, f"-{marker}", color=colour, label=label)
        ax.axhline(1, color=RED, linestyle="--", label="proven bound")
        ax.set(title=workload, xlabel="load")
        ax.grid(alpha=0.3)
    figure.axes[0].set_ylim(bottom=0.9)
    figure.axes[0].set_ylabel("mean JCT over the bound")
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8
    )


def ssjf(figure: Any, found: list[Table]) -> None:
    """Reductions of mean JCT by mode, here and in the paper."""
    (table,) = found
    for ax, place, name in zip(
        figure.subplots(1, 2, sharex=True, sharey=True), ("Figure 4", "Figure 5"),
        ("varying rates", "varying burstiness"), strict=True,
    ):  # fmt: skip
        rows = [row for row in table[1:] if row[0] == place]
        labels = {"classes": "5 classes", "lognormal": "log-normal", "oracle": "oracle"}
        names = [f"{labels[row[1].split()[0]]}, {row[1].split()[1]}" for row in rows]
        ours, paper = ([number(row[k]) for row in rows] for k in (3, 2))
        dots(ax, names, {"orsched": ours, "the paper": paper})
        ax.set_xlim(0, 65)
        ax.set_title(name, fontsize=10)
        ax.set_xlabel("less mean JCT than FCFS, %")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)


def mico(figure: Any, found: list[Table]) -> None:
    """Throughput over the baseline by batch size, here and in the paper, by number of clouds."""
    (table,) = found
    cells = {tuple(map(int, numbers(row[1]))): row for row in table[1:] if " batch " in row[1]}
    counts = sorted({clouds for clouds, _ in cells})
    for ax, clouds in zip(figure.subplots(1, len(counts), sharey=True), counts, strict=True):
        sizes = sorted(batch for k, batch in cells if k == clouds)
        for name, column, look in (("orsched", 3, "-o"), ("the paper", 2, "--D")):
            values = [number(cells[clouds, batch][column]) for batch in sizes]
            ax.plot(sizes, values, look, color=BLUE if column == 3 else ORANGE, label=name,
                    markersize=4)  # fmt: skip
        ax.set_title(f"{clouds} clouds", fontsize=10)
        ax.set_xticks(sizes[::2])
        ax.set_xlabel("batch size")
        ax.grid(alpha=0.3)
    figure.axes[0].set_ylabel("throughput over the baseline")
    figure.axes[0].legend(fontsize=8)


def library(figure: Any, found: list[Table]) -> None:
    """Draw median and largest gap of each family and objective, none as 0.001 %."""
    rows = [row for row in found[0][1:] if row[6] not in ("", "-")]
    ax = figure.subplots()
    medians, largest = ([max(0.001, number(row[k])) for row in rows] for k in (6, 7))
    for place, ends in enumerate(zip(medians, largest, strict=True)):
        ax.plot(ends, (place, place), color=GREY, zorder=0)
    labels = [f"{row[0]}, {row[1].removesuffix('_mean').replace('_', ' ')}" for row in rows]
    dots(ax, labels, {"median": medians, "largest": largest})
    ax.set_xscale("log")
    ax.axvline(1, color=BLACK, linewidth=1, linestyle=":")
    ax.set_xlabel("gap between best schedule and certified bound, % (0.001: none)")
    ax.legend(fontsize=8)


def tuned(figure: Any, found: list[Table]) -> None:
    """Draw the attainment of each policy on each workload, as shipped and tuned."""
    rows = found[0][1:]
    shares = {what: [100 * number(r[3]) for r in rows if r[2] == what] for what in AS}
    labels = [f"{row[0]}, {row[1]}" for row in rows if row[2] == "tuned"]
    ax = figure.subplots()
    dots(ax, labels, shares)
    ax.set_xlabel("requests within their limits, % (higher is better)")
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


AS = ("as shipped", "tuned")
FIGURES = (
    Figure("results-tune", (("Gain over the engine as shipped", 0),), tuned, (7.5, 3.6)),
    Figure("results-ssjf", (("Printed values beside ours", 0),), ssjf, (8, 3.2)),
    Figure("results-mico-and-echo", (("MICO: printed values beside ours", 0),), mico, (8, 2.8)),
    Figure("results-exact-and-packing", (("Which search proves what", 0),), searches, (8, 3)),
    Figure("results-latency-and-bounds", (("Requests that arrive", 0),), latency_gaps, (8, 3)),
    Figure("results-pang", (("Printed values beside ours", 0),), pang, (7, 2.2)),
    Figure(
        "results-six-workloads", (("Changes against tuned settings", 0),), six_workloads, (8, 3.6)
    ),
    Figure(
        "results-fidelity-speed-peers",
        tuple(("Simulated against measured vLLM runs", k) for k in range(3)),
        fidelity,
        (7.5, 2.9),
    ),
    Figure("results-predictions-and-gates", (("What predictions gain", 2),), worth, (8, 3.4)),
    Figure("results-scls", (("By arrival rate", 0),), scls, (7.5, 3.2)),
    Figure("results-library", (("Families", 0),), library, (7.5, 5.5)),
)


def save(each: Figure) -> None:
    """Draw a figure; the same tables give the same bytes with the same version of matplotlib."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    settings = {"svg.hashsalt": each.page, "svg.fonttype": "none", "font.family": "sans-serif"}
    with mpl.rc_context(settings):
        canvas = Canvas(figsize=each.size, layout="constrained")
        each.draw(canvas, each.rows())
        metadata = {"Date": None, "Creator": None, "Source": each.digest()}
        canvas.savefig(each.path, format="svg", metadata=metadata)
    each.path.write_text(re.sub(r"[ \t]+$", "", each.path.read_text(), flags=re.M))


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the figures of the pages named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures", description=__doc__)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="without .md; default: all")
    wanted = parser.parse_args(argv).pages
    known = [each.page for each in FIGURES]
    unknown = set(wanted) - set(known)
    if unknown:
        parser.error(f"no figure of {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for each in FIGURES:
        if not wanted or each.page in wanted:
            save(each)
            print(each.path.relative_to(DOCS.parent))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
