"""Rerun a figure: finished runs are kept, the others are run; rows, verdicts and pictures."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched._version import __version__
from orsched.common.columns import frame
from orsched.common.errors import InputError
from orsched.papers.reruns import (
    PAPERS,
    Entry,
    Row,
    Values,
    Verdict,
    beside,
    entries,
    find,
    judge,
    pick,
)
from orsched.views.pictures import scale_axis
from orsched.views.style import WORKER_COLOURS, line_look, shortened

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from orsched.papers.reruns import Entry, Row


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


SIZE = (9.0, 4.8)


@dataclass(frozen=True, eq=False)
class Rerunning:
    """A figure or table of a paper, rerun.

    Attributes:
        entry: what the registry says of it.
        settings: those of the rerun.
        rows: the table of this figure.
        values: named numbers of all rows.
        printed: a row for each printed number, ours beside it.
        verdicts: on each statement of the paper.
    """

    entry: Entry
    settings: dict[str, Any]
    rows: list[Row] = field(repr=False)
    values: Values = field(repr=False)
    printed: list[Row] = field(repr=False)
    verdicts: list[Verdict] = field(repr=False)

    def to_pandas(self) -> pd.DataFrame:
        """Return the table as a data frame."""
        names = list(self.rows[0]) if self.rows else []
        return frame({name: [row.get(name) for row in self.rows] for name in names})

    def plot(self, figure: Figure | None = None) -> Figure:
        """Draw the figure, on a new one by default; a table without a chart is refused."""
        if not self.entry.chart:
            raise InputError(
                f"{self.entry.name} has no picture", field="output", remedy="print its table"
            )
        from orsched.views.pictures import figure_or_new

        drawn = figure_or_new(figure, SIZE)
        draw(drawn, self.entry, self.rows, self.settings)
        return drawn

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the figure as PNG, SVG or PDF, by suffix."""
        from orsched.views.pictures import save_picture

        save_picture(lambda figure: self.plot(figure), path, SIZE)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        entry = self.entry
        return {
            "paper": entry.paper, entry.kind: entry.number, "caption": entry.caption,
            "rerun": entry.rerun, "settings": self.settings, "rows": self.rows,
            "printed": self.printed, "statements": [each._asdict() for each in self.verdicts],
        }  # fmt: skip

    def __repr__(self) -> str:
        said = [each.verdict for each in self.verdicts]
        counts = ", ".join(f"{said.count(word)} {word}" for word in dict.fromkeys(said))
        return f"{self.entry.name}: {len(self.rows)} rows, statements: {counts or 'none'}"


def paper(
    name: str,
    figure: int | None = None,
    table: int | None = None,
    *,
    full: bool = False,
    settings: Mapping[str, Any] | None = None,
    state: str | os.PathLike[str] | None = None,
    progress: Callable[[str], object] | None = None,
) -> Rerunning:
    """Rerun a figure or table of a paper: its rows, the printed values beside ours, verdicts.

    Args:
        name: ``pang``, ``scls``, ``ssjf``, ``mico`` or ``echo``.
        figure, table: its number; one of the two.
        full: the paper's size; without it a quick one, which takes less than two minutes.
        settings: changes of its settings by name.
        state: a folder that keeps finished runs; they are not repeated.
        progress: called with a line before each run.

    >>> import orsched
    >>> orsched.paper("pang", table=3).verdicts[0].verdict
    'HOLDS'

    Raises ``InputError`` for an unknown name or setting, or a figure that is not rerun.
    """
    entry = find(name, figure, table)
    chosen = entry.settings(full, settings or {})
    rerun = entry.reruns()
    kept = _Finished(state, f"{entry.paper}-{rerun.share or entry.runs}")
    done, jobs = [], rerun.jobs(chosen)
    for place, job in enumerate(jobs, 1):
        figures = kept.known.get(_key(job))
        if figures is None:
            if progress is not None:
                progress(f"run {place} of {len(jobs)}: {_words(job)}")
            figures = rerun.run(job)
            kept.add(job, figures)
        done.append((job, figures))
    rows = rerun.rows(done, chosen)
    values = rerun.values(rows)
    names = entry.columns
    shown = [{k: row[k] for k in names if k in row} for row in rows] if names else rows
    printed, verdicts = beside(entry.printed, values), [judge(c, values) for c in entry.claim]
    return Rerunning(entry, chosen, shown, values, printed, verdicts)


def _words(job: Row) -> str:
    return ", ".join(f"{name} {value}" for name, value in job.items())


class _Finished:
    """Finished runs of a figure, in a file of a folder: a line for each, ended runs only."""

    def __init__(self, folder: str | os.PathLike[str] | None, name: str) -> None:
        self.path = None if folder is None else Path(folder, f"{name}.jsonl")
        self.known: dict[str, Row] = {}
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            text = self.path.read_text("utf-8") if self.path.exists() else ""
        except (OSError, ValueError) as error:
            raise InputError(
                f"cannot be used: {error}", file=str(self.path), remedy="choose another folder"
            ) from None
        if text and not text.endswith("\n"):  # a run of it was interrupted while it was written
            text = text[: text.rfind("\n") + 1]
            self.path.write_text(text, "utf-8")
        for number, line in enumerate(text.splitlines(), start=1):
            found = self._read(line, number)
            if found["version"] == __version__:
                self.known[_key(found["job"])] = found["figures"]

    def _read(self, line: str, number: int) -> dict[str, Any]:
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            found: dict[str, Any] = json.loads(line)
            if "job" in found and found["version"] and isinstance(found["figures"], dict):
                return found
        raise InputError(
            "does not hold a finished run", file=str(self.path), row=number,
            remedy="remove the line, and the run is repeated",
        )  # fmt: skip

    def add(self, job: Row, figures: Row) -> None:
        """Keep the figures of a run."""
        self.known[_key(job)] = figures
        if self.path is not None:
            line = json.dumps({"version": __version__, "job": job, "figures": figures})
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def _key(job: Any) -> str:
    return json.dumps(job, sort_keys=True)


def listed(name: str | None = None) -> list[Row]:
    """Return a row for each figure and table of a paper, or of all."""
    names = PAPERS if name is None else (name,)
    return [
        {
            "paper": each.paper, "kind": each.kind, "number": each.number,
            "caption": each.caption, "statements": len(each.claim), "state": each.state,
        }
        for paper_name in names for each in entries(paper_name)
    ]  # fmt: skip
