"""The kinds of charts that the figures of papers have, in the library's colours and lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.papers.reruns import pick
from orsched.views.pictures import scale_axis
from orsched.views.style import WORKER_COLOURS, line_look, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from orsched.papers.entries import Entry
    from orsched.papers.reruns import Row


def draw(figure: Figure, entry: Entry, rows: list[Row], settings: Mapping[str, Any]) -> None:
    """Draw the chart of an entry on a figure; ``parts`` are charts beside each other."""
    figure.suptitle(shortened(f"{entry.name}: {entry.caption}", 100), fontsize=10)
    if entry.chart.get("kind") == "gantt":
        _gantt(figure, entry, settings)
        return
    parts = entry.chart.get("parts") or [entry.chart]
    places: Any = [figure] if len(parts) == 1 else figure.subfigures(1, len(parts))
    for place, part in zip(places, parts, strict=True):
        given = dict(part)
        kind, only = given.pop("kind"), given.pop("only", {})
        chart: Any = {"lines": lines, "bars": bars, "points": points}[kind]
        chart(place, pick(rows, **only), **given)


def _gantt(figure: Figure, entry: Entry, settings: Mapping[str, Any]) -> None:
    from orsched.views.gantt import gantt

    schedules = entry.reruns().schedules
    if schedules is None:
        raise ValueError(f"{entry.name}: the rerun has no schedules")
    instance, found = schedules(settings)
    for ax, schedule in zip(np.ravel(figure.subplots(len(found))), found, strict=True):
        gantt(instance, schedule, ax)


def lines(
    figure: Figure,
    rows: Sequence[Row],
    x: str,
    y: list[str],
    by: list[str],
    panels: str = "",
    markers: bool = True,
    log: bool = True,
) -> None:
    """Draw a line for each combination of ``by``, a panel for each column of ``y``.

    ``panels`` is a column of which each value has its own row of panels. With ``log`` axes are
    logarithmic where their values are far apart.
    """
    for row_of_panels, own in _grid(figure, rows, y, panels):
        for ax, name in zip(row_of_panels, y, strict=True):
            for place, (label, group) in enumerate(_groups(own, by)):
                drawn = [row for row in group if row.get(name) is not None]
                values = [row[name] for row in drawn]
                mark = "os^Dv<>P"[place % 8] if markers else None
                ax.plot([row[x] for row in drawn], values, label=label, marker=mark, markersize=4,
                        **line_look(place))  # fmt: skip
            ax.set_xlabel(words(x))
            if log:
                scale_axis(ax, "x", [row[x] for row in own])
                scale_axis(ax, "y", [row[name] for row in own if row.get(name) is not None])
    _finish(figure)


def points(
    figure: Figure, rows: Sequence[Row], x: str, y: list[str], by: list[str], equal: bool = False
) -> None:
    """Draw a mark for each row, a panel for each column of ``y``; ``equal``: a line where both
    axes have the same value."""
    for panels, own in _grid(figure, rows, y, ""):
        for ax, name in zip(panels, y, strict=True):
            for place, (label, group) in enumerate(_groups(own, by)):
                ax.plot([r[x] for r in group], [r[name] for r in group], "oDs^"[place % 4],
                        color=WORKER_COLOURS[place], label=label, markersize=3)  # fmt: skip
            ax.set_xlabel(words(x))
            ax.locator_params(axis="x", integer=True)
            if equal:
                ax.axline((0, 0), slope=1, color="0.5", linewidth=1)
    _finish(figure)


def bars(
    figure: Figure, rows: Sequence[Row], x: str, y: list[str], by: list[str], panels: str = ""
) -> None:
    """Draw groups of bars: a group for each value of ``x``, in it a bar for each of ``by``."""
    for row_of_panels, own in _grid(figure, rows, y, panels):
        places = list(dict.fromkeys(row[x] for row in own))
        groups = list(_groups(own, by)) if by else [("", list(own))]
        width = 0.8 / len(groups)
        for ax, name in zip(row_of_panels, y, strict=True):
            for k, (label, group) in enumerate(groups):
                drawn = [row for row in group if row.get(name) is not None]
                at = [places.index(row[x]) + (k - (len(groups) - 1) / 2) * width for row in drawn]
                ax.bar(at, [row[name] for row in drawn], width, color=WORKER_COLOURS[k % 8],
                       label=label)  # fmt: skip
            ax.set_xticks(range(len(places)), [str(each) for each in places])
            ax.set_xlabel(words(x))
            if sum(len(str(each)) for each in places) * len(y) > 60:
                ax.tick_params(axis="x", labelrotation=45)
    _finish(figure)


def words(column: str) -> str:
    """Return the name of an axis: ``mean_s`` is ``mean (s)``."""
    for end, unit in (("_per_s", "1/s"), ("_ms", "ms"), ("_s", "s"), ("_%", "%")):
        if column.endswith(end):
            return f"{column.removesuffix(end).replace('_', ' ')} ({unit})"
    return column.replace("_", " ")


def _grid(
    figure: Figure, rows: Sequence[Row], y: Sequence[str], panels: str
) -> list[tuple[list[Axes], list[Row]]]:
    """Return axes and rows of each value of ``panels``, a panel for each column of ``y``."""
    values = list(dict.fromkeys(row[panels] for row in rows)) if panels else [None]
    grid = figure.subplots(len(values), len(y), squeeze=False)
    found = []
    for axes, value in zip(grid, values, strict=True):
        for ax, name in zip(axes, y, strict=True):
            ax.set_ylabel(f"{value}: {words(name)}" if panels else words(name))
            ax.grid(alpha=0.3)
            ax.set_axisbelow(True)
        found.append((list(axes), pick(rows, **{panels: value}) if panels else list(rows)))
    return found


def _groups(rows: Sequence[Row], by: Sequence[str]) -> list[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        label = ", ".join(_label(name, row[name]) for name in by if row.get(name) is not None)
        groups.setdefault(label, []).append(row)
    return list(groups.items())


def _label(name: str, value: Any) -> str:
    return value if isinstance(value, str) else f"{words(name)} {value:g}"


def _finish(figure: Figure) -> None:
    handles: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    most = 2 if type(figure).__name__ == "SubFigure" else 4
    if len(handles) > 1:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center",
                      ncols=min(most, len(handles)), fontsize=8)  # fmt: skip
