"""Plan and run below each other on one time axis, and the error of each stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.plotting import style
from orsched.plotting.gantt import gantt
from orsched.plotting.gantt_frame import BOTTOM, RIGHT, TOP, WIDTH, left_of
from orsched.plotting.lanes import lanes_of
from orsched.plotting.pictures import DPI, save_picture
from orsched.plotting.spans import client_use
from orsched.schedule import DECODE, MIXED, PREFILL
from orsched.units import NS_PER_S

if TYPE_CHECKING:
    import os

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from orsched.instance import Instance
    from orsched.measured.plan_errors import PlanAgainstRun
    from orsched.schedule import Schedule

ERRORS = {
    PREFILL: ("prefill", style.STAGE_COLOUR, "o"),
    MIXED: ("mixed", style.RESTART_COLOUR, "s"),
    DECODE: ("decode", style.DECODE_COLOURS[0], "o"),
}
"""Word, colour and marker of the errors of each phase."""

_ERROR_HEIGHT, _BETWEEN = 1.1, 0.35
_SHOWN_SHARE = 0.98  # of the errors are inside the axes; the others stand at its border


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
    from orsched.measured.plan_errors import plan_against_run

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
    for phase, (word, colour, marker) in ERRORS.items():
        rows = np.flatnonzero(stages.phase == phase)
        if len(rows):
            ax.plot(
                middle[rows], np.clip(error[rows], -most, most), marker, color=colour,
                markersize=3.5, alpha=0.7, markeredgewidth=0, label=word, gid=f"errors-{word}",
                clip_on=False,
            )  # fmt: skip
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
