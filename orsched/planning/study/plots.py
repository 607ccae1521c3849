"""Plots of a study: means over the seeds with their 95 % confidence intervals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.planning.study.panels import (
    draw_against,
    draw_over,
    numbers,
    scale_and_limit,
    split,
    write_labels,
)
from orsched.planning.study.table import (
    CHOICES,
    FIRST,
    arrive_over_time,
    independent,
    require_numbers,
    rows_of,
    varying,
)
from orsched.views.pictures import legend_below, require_matplotlib, save_picture
from orsched.views.style import axis_name

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from orsched.planning.study.plan import Study

    Row = Mapping[str, Any]

_SUFFIXES = ("svg", "png", "pdf")
_MOST_PANELS = 12
_MOST_LINES = 12
_WIDTHS = {1: 6.8, 2: 10.0, 3: 12.0}
"""Inches of a figure by the panels beside each other; in wide ones words are small on a page."""


def save_plots(
    rows: Sequence[Row],
    folder: str | os.PathLike[str],
    plots: Sequence[Mapping[str, str]] = (),
    suffix: str = "svg",
) -> list[Path]:
    """Draw the rows of a study into files, and return their paths.

    Each plot has a column of results ``y``, a column of choices ``x`` and one, ``by``, that
    distinguishes lines; whatever else differs gets a panel of its own. ``x`` may be a result, too
    (``tokens_per_s``): then points are joined along the first choice with several numbers, and the
    Pareto front is drawn. By default (``default_plots``) lines are policies. A policy has a line
    for each choice of its parameters. Points are means over the seeds, bands and bars the 95 %
    confidence intervals of them (``over_seeds``). An axis is logarithmic where its largest value
    is more than 30 times the smallest, and starts at 0 unless all lies in its upper half; limits
    of the study are dotted lines.

    Raises:
        InputError: a column is not there, there are more than 12 panels, or the suffix is none of
            svg, png and pdf.
        MissingDependencyError: matplotlib is missing.
    """
    require_matplotlib()
    if suffix not in _SUFFIXES:
        raise InputError(
            f"{suffix!r} is none of {', '.join(_SUFFIXES)}",
            field="suffix",
            remedy="choose one of them",
        )
    target = Path(folder)
    done = [row for row in rows if row["status"] == "ok"]
    if not done:
        raise InputError(
            "there is no finished cell to plot", field="plots", remedy="see the errors"
        )
    target.mkdir(parents=True, exist_ok=True)
    paths = []
    for plot in list(plots) or default_plots(done):
        require_numbers(done, plot["y"], "plots.y")
        x, by = _axes(done, plot)
        if _is_result(x):
            require_numbers(done, x, "plots.x")
        word = "against" if _is_result(x) else "over"
        name = re.sub(r"[^\w.-]", "_", f"{plot['y']}-{word}-{x}-by-{by}")
        path = target / f"{name}.{suffix}"
        _save(done, plot["y"], x, by, path)
        paths.append(path)
    return paths


def default_plots(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Return what is drawn of a study that names no plots.

    Makespan and mean JCT; with arrivals, which decide the makespan, p99 of TTFT and mean JCT, the
    attainment if there are limits, and p99 of TTFT against the throughput.
    """
    if not arrive_over_time(rows):
        return [{"y": "makespan_ns"}, {"y": "jct_ns_mean"}]
    limited = any(row.get("slo_attainment") is not None for row in rows)
    return [
        {"y": "ttft_ns_p99"},
        {"y": "jct_ns_mean"},
        *([{"y": "slo_attainment"}] if limited else []),
        {"y": "ttft_ns_p99", "x": "tokens_per_s"},
    ]


def require_plots(study: Study) -> None:
    """Raise before any cell runs for a format that plots cannot have, or without matplotlib.

    Raises ``InputError`` or ``MissingDependencyError``.
    """
    require_matplotlib()
    cells = study.cells()
    blank = {"status": "ok", "run": {}}
    rows = rows_of(cells, {cell.key: blank for cell in cells})
    for plot in study.plots or ({},):
        _panels(rows, *_axes(rows, plot))


def _is_result(name: str) -> bool:
    """Whether it is known of a column which values are better, so that others stand against it."""
    return axis_name(name).better != 0


def _axes(rows: Sequence[Row], plot: Mapping[str, str]) -> tuple[str, str]:
    """Return the columns of a plot, by default the first that vary; the load before all others."""
    by = plot.get("by", "policy")
    x = plot.get("x") or next((n for n in _numeric(rows) if n != by), "policy")
    for key, name in (("x", x), ("by", by)):
        if key == "x" and _is_result(name) and name != plot.get("y"):
            continue
        if name not in rows[0] or not (name in FIRST or name.startswith(CHOICES)):
            raise InputError(
                f"{name!r} is not a column of choices", field=f"plots.{key}", remedy="e.g. policy"
            )
    return x, by


def _numeric(rows: Sequence[Row]) -> list[str]:
    """Return the choices with several numbers; rates of arrivals first, as they are the load."""
    names = [
        n
        for n in varying(rows)
        if n not in ("arrivals", "predictions", "instance") and numbers(rows, n)
    ]
    return sorted(names, key=lambda name: name != "arrivals_rate")


def _save(rows: Sequence[Row], y: str, x: str, by: str, path: Path) -> None:
    panels, lines = _panels(rows, x, by), _lines(rows, x, by)
    across = len(panels) if len(panels) <= 3 else 2 if len(panels) == 4 else 3
    down = -(-len(panels) // across)
    order = list(split(rows, lines))
    along = _along(rows, by) if _is_result(x) else None

    def draw(figure: Any) -> None:
        axes = figure.subplots(down, across, squeeze=False, sharey=True)
        labels = {}
        shown = list(axes.ravel())[: len(panels)]
        for ax in axes.ravel()[len(panels) :]:
            ax.set_visible(False)
        for ax, (title, part) in zip(shown, panels.items(), strict=True):
            if _is_result(x):
                labels[ax] = draw_against(ax, part, y, x, lines, order, along)
            else:
                draw_over(ax, part, y, x, lines, order)
            ax.set_title(", ".join(title), fontsize=10, parse_math=False)
            ax.spines[["top", "right"]].set_visible(False)
        scale_and_limit(shown, rows, y)
        for ax, found in labels.items():
            write_labels(ax, found)
        for row in axes:
            row[0].set_ylabel(axis_name(y).words)
        if by != x:
            _explain(figure, shown)

    save_picture(draw, path, (_WIDTHS[across], 3.6 * down + 0.6))


def _explain(figure: Any, axes: Sequence[Any]) -> None:
    """Write one legend for all panels below them: each may lack some lines."""
    found: dict[str, Any] = {}
    for ax in axes:
        for handle, word in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(word, handle)
    legend_below(figure, found.values(), found)


def _along(rows: Sequence[Row], by: str) -> str | None:
    """Return the choice along which the points of two results are joined."""
    return next((name for name in _numeric(rows) if name != by), None)


def _panels(rows: Sequence[Row], x: str, by: str) -> dict[tuple[str, ...], list[Row]]:
    """Split rows by all choices that differ, beside those of the axes and what they fix."""
    lines = _lines(rows, x, by)
    place = (_along(rows, by) or by) if _is_result(x) else x
    others = independent(rows, [place, *lines, *varying(rows)])
    others = [name for name in others if name != place and name not in lines]
    panels: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        title = tuple(_said(name, row[name]) for name in others if row[name] is not None)
        panels.setdefault(title, []).append(row)
    if len(panels) > _MOST_PANELS:
        raise InputError(
            f"{len(panels)} panels",
            field="plots",
            remedy=f"at most {_MOST_PANELS}: let x and by be what differs most, or split the study",
        )
    return panels


def _said(name: str, value: object) -> str:
    """Return a choice as the title of a panel has it."""
    if name == "workers":
        return f"{value} worker{'' if value == 1 else 's'}"
    return f"{axis_name(name).words} {value}"


def _lines(rows: Sequence[Row], x: str, by: str) -> list[str]:
    """Return the columns that make a line: policies differ by their parameters, too.

    With more of them than can be distinguished, parameters get panels.
    """
    names = [by]
    if by == "policy" != x:
        names += [n for n in varying(rows) if n.startswith("param_") and n != x]
    return names if len(split(rows, names)) <= _MOST_LINES else [by]
