"""Plan and run below each other on one time axis, and the error of each stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.common.units import NS_PER_S
from orsched.data.schedule import DECODE, MIXED, PREFILL
from orsched.views import style
from orsched.views.gantt import gantt
from orsched.views.gantt_frame import BOTTOM, RIGHT, TOP, WIDTH, left_of
from orsched.views.lanes import lanes_of
from orsched.views.pictures import DPI, save_picture
from orsched.views.spans import client_use

if TYPE_CHECKING:
    import os

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from orsched.calibration.plan_errors import PlanAgainstRun
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

ERRORS = {
    PREFILL: ("prefill", style.STAGE_COLOUR, "o"),
    MIXED: ("mixed", style.RESTART_COLOUR, "s"),
    DECODE: ("decode", style.DECODE_COLOURS[0], "o"),
}
"""Word, colour and marker of the errors of each phase."""

_ERROR_HEIGHT, _BETWEEN = 1.1, 0.35
_SHOWN_SHARE = 0.98  # of the errors are inside the axes; the others stand at its border
_MOST_VALUES = 8  # of the errors at the border, the largest ones, have their value written


def save_plan_and_run(
    instance: Instance,
    plan: Schedule,
    trace: Schedule,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
) -> None:
    """Write the Gantt charts of plan and run, and the errors of stages, as PNG, SVG or PDF.

    Both charts have one time axis; equal input gives equal bytes.

    Raises:
        InputError: the suffix is none of these, a schedule is for another instance, or the file
            cannot be written.
        MissingDependencyError: matplotlib is missing.
    """

    def draw(figure: Figure) -> None:
        draw_plan_and_run(instance, plan, trace, figure, title=title)

    save_picture(draw, path)


def draw_plan_and_run(
    instance: Instance,
    plan: Schedule,
    trace: Schedule,
    figure: Figure,
    *,
    title: str | None = None,
) -> tuple[Axes, Axes, Axes]:
    """Draw on a figure, whose size is set; return the axes of plan, run and errors."""
    from orsched.calibration.plan_errors import plan_against_run

    against = plan_against_run(instance, plan, trace)
    high, low = (
        lanes_of(instance, client_use(instance, each).stays).height_pixels() / DPI
        for each in (plan, trace)
    )
    heights = (high, low, _ERROR_HEIGHT)
    total = sum(heights) + 2 * TOP + 2 * _BETWEEN + BOTTOM
    figure.set_size_inches(WIDTH, total)
    left = max(0.9, left_of(instance))
    bottoms = (_ERROR_HEIGHT + TOP + low + 2 * _BETWEEN, _ERROR_HEIGHT + _BETWEEN, 0.0)
    places = [
        (left / WIDTH, (BOTTOM + start) / total, 1 - (left + RIGHT) / WIDTH, size / total)
        for start, size in zip(bottoms, heights, strict=True)
    ]
    above, below, errors = (figure.add_axes(place) for place in places)
    end = max(plan.makespan_ns, trace.makespan_ns)
    name = f"{instance.name}, {trace.method}" if title is None else title
    device = str(trace.run.get("device", "run"))
    gantt(instance, plan, above, title=f"{name}: plan", show_legend=False, end_ns=end)
    gantt(instance, trace, below, title=f"{name}: run on {device}", show_legend=False, end_ns=end)
    for axes in (above, below):
        axes.set_xlabel("")
        axes.tick_params(labelbottom=False)
    _draw_errors(errors, against)
    errors.set_xlim(above.get_xlim())
    return above, below, errors


def _draw_errors(ax: Axes, against: PlanAgainstRun) -> None:
    """Draw the relative error of each stage where it ran."""
    from matplotlib.ticker import PercentFormatter

    stages, planned = against.stages, against.planned_ns
    error = (stages.took_ns - planned) / np.maximum(planned, 1)
    ordered = np.sort(np.abs(error))
    most = float(ordered[int(_SHOWN_SHARE * (len(ordered) - 1))]) if len(ordered) else 0.0
    most = max(1.1 * most, 0.01)
    ax.axhline(0, color=style.MAKESPAN_COLOUR, lw=0.8)
    middle = (stages.start_ns + stages.end_ns) / 2 / NS_PER_S
    inside = np.abs(error) <= most
    for phase, (word, colour, marker) in ERRORS.items():
        of_phase = stages.phase == phase
        if not of_phase.any():
            continue
        rows = np.flatnonzero(of_phase & inside)
        ax.plot(
            middle[rows], error[rows], marker, color=colour, markersize=3.5, alpha=0.7,
            markeredgewidth=0, label=word, gid=f"errors-{word}", linestyle="none",
        )  # fmt: skip
        for sign, arrow in ((1, "^"), (-1, "v")):
            rows = np.flatnonzero(of_phase & ~inside & (np.sign(error) == sign))
            if len(rows):
                ax.plot(
                    middle[rows], np.full(len(rows), sign * most), arrow, color=colour,
                    markersize=5, clip_on=False, gid=f"outliers-{word}", linestyle="none",
                )  # fmt: skip
    _write_outliers(ax, middle, error, most)
    ax.set_ylim(-most, most)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0 if most > 0.05 else 1))
    ax.set_ylabel("error")
    ax.set_xlabel("time (s)", loc="right")
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(length=3, color="#666666")
    if len(stages.worker):
        ax.legend(
            loc="upper left", bbox_to_anchor=(0, -0.28), ncols=3, frameon=False, fontsize=9,
            borderaxespad=0, handletextpad=0.2, title="Error of each stage, run against plan",
            title_fontsize=9, alignment="left",
        )  # fmt: skip


def _write_outliers(
    ax: Axes, middle: NDArray[np.float64], error: NDArray[np.float64], most: float
) -> None:
    """Write the largest of the errors at the border beside their arrows, apart from each other."""
    beyond = np.flatnonzero(np.abs(error) > most)
    width = 0.07 * float(middle.max(initial=0.0) - middle.min(initial=0.0))
    taken: list[tuple[float, bool]] = []
    for row in beyond[np.argsort(-np.abs(error[beyond]), kind="stable")].tolist():
        at, up = float(middle[row]), bool(error[row] > 0)
        if len(taken) == _MOST_VALUES or any(abs(at - x) < width and u == up for x, u in taken):
            continue
        taken.append((at, up))
        ax.annotate(
            f"{100 * error[row]:+,.0f} %", (at, most if up else -most), (5, 0), va="center",
            textcoords="offset points", fontsize=7.5, gid="outlier-value",
        )  # fmt: skip
