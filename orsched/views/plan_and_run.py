"""Plan against run: a picture of both on one time axis, and a section of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.calibration.plan_errors import plan_against_run
from orsched.common.units import NS_PER_S
from orsched.data.schedule import DECODE, MIXED, PREFILL
from orsched.views import style
from orsched.views.gantt import draw_chart
from orsched.views.gantt_frame import BOTTOM, RIGHT, TOP, WIDTH, Chart, left_of
from orsched.views.html_tables import cell, table, table_row, text
from orsched.views.pictures import DPI, save_picture
from orsched.views.style import seconds

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from orsched.calibration.plan_errors import PlanAgainstRun
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.views.report_tables import Row


MAX_STAGES = 6_000
"""Most stages whose errors are in the page."""


class Pair(NamedTuple):
    """Numbers of a ``run`` and its ``plan`` among a report's schedules, and the comparison of both.

    Without a plan (None) the run is held against the cost model alone.
    """

    run: int
    plan: int | None
    against: PlanAgainstRun


def pairs_of(instance: Instance, rows: Sequence[Row]) -> list[Pair]:
    """Return each measured schedule with the planned one of the same method, else the first."""
    planned = [k for k, row in enumerate(rows) if not row.schedule.is_measured]
    found = []
    for k, row in enumerate(rows):
        # the contents of an invalid schedule's stages are undefined
        if not row.schedule.is_measured or row.violations or row.schedule.is_partial:
            continue
        own = [p for p in planned if rows[p].schedule.method == row.schedule.method] or planned
        sound = [p for p in own if not rows[p].violations]
        plan = sound[0] if sound else None
        schedule = None if plan is None else rows[plan].schedule
        found.append(Pair(k, plan, plan_against_run(instance, schedule, row.schedule)))
    return found


def section(pairs: Sequence[Pair], rows: Sequence[Row]) -> str:
    """Return the section, or nothing where nothing was measured."""
    if not pairs:
        return ""
    parts = []
    for number, pair in enumerate(pairs):
        label = text(rows[pair.run].label)
        parts.append(
            f"<h3>{label}</h3>\n<p>{_verdict(pair)}</p>\n"
            f'<div class="gantt" id="plan-run-{number}" role="group" '
            f'aria-label="Plan and run of {label} on one time axis"></div>\n'
            f"{_phases(pair, number)}\n{_terms(pair, number)}\n"
        )
    return f"<section><h2>Plan against run</h2>\n{''.join(parts)}</section>\n"


def _verdict(pair: Pair) -> str:
    against = pair.against
    parts = ", ".join(f"{k} {_signed(v)}" for k, v in against.parts.items() if v)
    said = (
        f"The run took {seconds(against.run_makespan_ns)}, "
        f"{'the cost model says' if pair.plan is None else 'planned were'} "
        f"{seconds(against.plan_makespan_ns)} ({_percent(against.makespan_error)})"
        f"{': ' + parts if parts else ''}. "
    )
    if pair.plan is not None:
        count = len(against.stages.worker)
        said += f"{against.followed:,} of {count:,} stages are the plan\u2019s. "
    worst = against.worst_term
    if worst is not None:
        said += (
            f"The error is mostly of {worst.phase}; its term <em>{worst.term}</em> alone, with "
            f"{_coefficient(worst.alone_ns)} instead of {_coefficient(worst.planned_ns)}, "
            f"explains {_percent(worst.explains, sign=False)} of it (of the squares). "
        )
    if against.refit_error is not None:
        said += (
            f"Of the {text(against.cost['model'])} model fitted to this run "
            f"{_percent(against.refit_error)} are left."
        )
    return said


def _phases(pair: Pair, number: int) -> str:
    heads = [
        "Phase", "Stages", "Rounds", "Plan", "Run", "of it gaps", "Error",
        "Error of a stage: mean", "p95", "worst",
    ]  # fmt: skip
    body = []
    for row in pair.against.phases:
        cells = []
        for name in ("stages", "rounds"):
            value = getattr(row, name)
            cells.append(cell(f"{value:,}", field=name, value=value))
        for name in ("planned_ns", "took_ns", "gap_ns"):
            value = getattr(row, name)
            cells.append(cell(seconds(value), field=name[:-3], ns=value))
        for name in ("error", "mean", "p95", "worst"):
            value = getattr(row, name)
            shown = _percent(value, sign=name == "error")
            cells.append(cell(shown, field=name, value=value))
        body.append(table_row(row.phase, cells))
    return table(f"plan-phases-{number}", "Times by phase; a gap counts to the stage after it",
                  heads, body)  # fmt: skip


def _terms(pair: Pair, number: int) -> str:
    heads = ["Phase", "Term", "Plan", "Run", "Adds up to", "Alone", "Explains"]
    body = [
        f'<tr><th scope="row">{term.phase}</th><td class="word">{term.term}</td>'
        + cell(_coefficient(term.planned_ns), field="plan", ns=term.planned_ns)
        + cell(_coefficient(term.measured_ns), field="run", ns=term.measured_ns)
        + cell(_signed(term.error_ns), field="error", ns=term.error_ns)
        + cell(_coefficient(term.alone_ns), field="alone", ns=term.alone_ns)
        + cell(_percent(term.explains, sign=False), field="explains", value=term.explains)
        + "</tr>"
        for term in pair.against.terms
    ]
    caption = (
        "Terms of the cost model: a step or round, a prompt token, a request, a token of context"
    )
    return table(f"plan-terms-{number}", caption, heads, body)


def pair_data(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Return times of stages, ``colours`` of phases, ``border`` (%) of the axis of errors."""
    found: list[dict[str, Any]] = []
    for pair in pairs:
        rows = pair.against.stage_rows()[:MAX_STAGES]
        planned, took = (
            np.array([row[name] for row in rows], np.float64) for name in ("planned_ns", "took_ns")
        )
        error = np.divide(took - planned, planned, out=np.zeros(len(rows)), where=planned > 0)
        columns = {
            name.removesuffix("_ns"): [row[name] for row in rows]
            for name in ("start_ns", "end_ns", "phase", "planned_ns", "took_ns")
        }
        colours = [[word, colour] for word, colour, _ in ERRORS.values()]
        border = 100 * _border(error)
        found.append(
            {"run": pair.run, "plan": pair.plan, "border": border, "colours": colours, **columns}
        )
    return found


def _signed(ns: int) -> str:
    return f"{ns / 1e9:+,.3f} s"


def _coefficient(ns: float) -> str:
    return f"{ns / 1000:,.3f} µs"


def _percent(value: float | None, *, sign: bool = True) -> str:
    if value is None:
        return "–"
    return f"{100 * value:+.2f} %" if sign else f"{100 * value:.2f} %"


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

    Both charts have one time axis; equal input gives equal bytes. Raises ``InputError`` for another
    suffix, another instance or a file that cannot be written, ``MissingDependencyError`` without
    matplotlib.
    """

    def draw(figure: Figure) -> None:
        draw_plan_and_run(instance, plan, trace, figure, title=title)

    save_picture(draw, path)


def draw_plan_and_run(
    instance: Instance, plan: Schedule, trace: Schedule, figure: Figure, *, title: str | None = None
) -> tuple[Axes, Axes, Axes]:
    """Draw on a figure, whose size is set; return the axes of plan, run and errors."""
    against = plan_against_run(instance, plan, trace)
    charts = [Chart.of(instance, each) for each in (plan, trace)]
    high, low = (chart.lanes.height_pixels() / DPI for chart in charts)
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
    titles = (f"{name}: plan", f"{name}: run on {device}")
    for axes, chart, words in zip((above, below), charts, titles, strict=True):
        draw_chart(axes, chart, words, show_legend=False, end_ns=end)
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
    most = _border(error)
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


def _border(error: NDArray[np.float64]) -> float:
    """Return the end of the axis of errors; all but a few, which would flatten them, are inside."""
    ordered = np.sort(np.abs(error))
    most = float(ordered[int(_SHOWN_SHARE * (len(ordered) - 1))]) if len(ordered) else 0.0
    return max(1.1 * most, 0.01)


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
