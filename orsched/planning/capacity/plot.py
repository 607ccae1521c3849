"""The plot of a capacity: attainment and latencies against the number of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.views.pictures import legend_above, require_matplotlib, save_picture, scale_axis
from orsched.views.style import WORKER_COLOURS, axis_name

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from orsched.planning.capacity.answer import Capacity
    from orsched.planning.capacity.estimate import Estimate

_BLUE, _ORANGE, _GREEN = WORKER_COLOURS[:3]


def save_capacity(found: Capacity, path: str | os.PathLike[str]) -> None:
    """Draw attainment with its interval, and p99 of TTFT and TPOT, against workers or price.

    What is proven to be too small is shaded. Latencies stand on a logarithmic axis where they lie
    more than a factor of 30 apart. The suffix says the format: png, svg or pdf.

    Raises:
        InputError: another suffix, or nothing was simulated.
        MissingDependencyError: matplotlib is missing.
    """
    require_matplotlib()
    if not found.curve:
        raise InputError(
            "no fleet was simulated",
            field="plot",
            remedy="give an answer with at least one simulated fleet",
        )
    save_picture(lambda figure: _draw(figure, found), path, (8.0, 6.0))


def _draw(figure: Any, found: Capacity) -> None:
    above, below = figure.subplots(2, 1, sharex=True)
    rows = sorted(found.curve, key=lambda each: each.workers)
    line = "none" if len(found.machines) > 1 else "-"
    _draw_attainment(above, found, rows, line)
    _draw_latencies(below, rows, line)
    bound = found.lower_bound_workers
    for ax in (above, below):
        if bound > 1:
            ax.axvspan(0, bound - 0.5, color="#999999", alpha=0.3, lw=0, label="proven too few")
        if found.workers is not None:
            ax.axvline(found.workers, color=_GREEN, linestyle=":", label="answer")
        legend_above(ax)
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    figure.align_ylabels([above, below])


def _draw_attainment(ax: Any, found: Capacity, rows: Sequence[Estimate], line: str) -> None:
    shares = [100 * each.attainment for each in rows]
    ends = [
        [max(0.0, share - 100 * each.low) for share, each in zip(shares, rows, strict=True)],
        [max(0.0, 100 * each.high - share) for share, each in zip(shares, rows, strict=True)],
    ]
    ax.errorbar(
        [each.workers for each in rows], shares, yerr=ends, marker="o", color=_BLUE, capsize=3,
        linestyle=line, label="measured, with its interval",
    )  # fmt: skip
    wanted = 100 * found.attainment_wanted
    ax.axhline(wanted, color=_ORANGE, linestyle="--", label=f"wanted: {wanted:g} %")
    ax.set_ylabel("SLO attainment (%)")
    ax.set_ylim(-3, 103)


def _draw_latencies(ax: Any, rows: Sequence[Estimate], line: str) -> None:
    drawn: list[float] = []
    for name, colour, marker in (("ttft", _BLUE, "o"), ("tpot", _ORANGE, "s")):
        known = [(each.workers, getattr(each, f"{name}_p99_s")) for each in rows]
        pairs = [(x, y) for x, y in known if y]
        if pairs:
            ax.plot(
                *zip(*pairs, strict=True), marker=marker, color=colour, linestyle=line,
                label=axis_name(f"{name}_p99_s").words,
            )  # fmt: skip
            drawn += [y for _, y in pairs]
    if not scale_axis(ax, "y", drawn):
        ax.set_ylim(bottom=0)
    ax.set_ylabel("latency (s)")
    ax.set_xlabel("workers")
    ax.set_xlim(0.5, max(each.workers for each in rows) + 0.5)
    ax.xaxis.get_major_locator().set_params(integer=True)
