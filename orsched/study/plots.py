"""Plots of a study: means over the seeds with their 95 % confidence intervals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orsched.errors import InputError
from orsched.plotting.style import WORKER_COLOURS
from orsched.study.table import (
    CHOICES,
    FIRST,
    independent,
    over_seeds,
    require_numbers,
    rows_of,
    varying,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from orsched.study.plan import Study

    Row = Mapping[str, Any]

DEFAULT_VALUES = ("makespan_ns", "jct_ns_mean")
_SUFFIXES = ("svg", "png", "pdf")
_MARKERS = "osv^DPX*"
_MOST_PANELS = 12
_MOST_LINES = 12
_MOST_TICKS = 8


def save_plots(
    rows: Sequence[Row],
    folder: str | os.PathLike[str],
    plots: Sequence[Mapping[str, str]] = (),
    suffix: str = "svg",
) -> list[Path]:
    """Draw the rows of a study into files, and return their paths.

    Each plot has a column of results ``y``, a column of choices ``x`` and one, ``by``, that
    distinguishes lines; whatever else differs gets a panel of its own. Default: makespan and mean
    JCT over the first choice with several numbers, one line a policy. A policy has a line for each
    choice of its parameters. Points are means over the seeds, bars the 95 % confidence intervals of
    them (``over_seeds``).

    Raises:
        InputError: a column is not there, there are more than 12 panels, or the suffix is none of
            svg, png and pdf.
        MissingDependencyError: matplotlib is missing.
    """
    from orsched.plotting.pictures import require_matplotlib

    require_matplotlib()
    if suffix not in _SUFFIXES:
        raise InputError(f"{suffix!r} is none of {', '.join(_SUFFIXES)}", field="suffix")
    target = Path(folder)
    chosen = list(plots) or [{"y": value} for value in DEFAULT_VALUES]
    done = [row for row in rows if row["status"] == "ok"]
    if not done:
        raise InputError(
            "there is no finished cell to plot", field="plots", remedy="see the errors"
        )
    target.mkdir(parents=True, exist_ok=True)
    paths = []
    for plot in chosen:
        require_numbers(done, plot["y"], "plots.y")
        x, by = _axes(done, plot)
        name = re.sub(r"[^\w.-]", "_", f"{plot['y']}-over-{x}-by-{by}")
        path = target / f"{name}.{suffix}"
        _draw(done, plot["y"], x, by, path)
        paths.append(path)
    return paths


def require_plots(study: Study) -> None:
    """Raise before any cell runs for a format that plots cannot have, or without matplotlib.

    Raises ``InputError`` or ``MissingDependencyError``.
    """
    from orsched.plotting.pictures import require_matplotlib

    require_matplotlib()
    cells = study.cells()
    blank = {"status": "ok", "run": {}}
    rows = rows_of(cells, {cell.key: blank for cell in cells})
    for plot in study.plots or ({},):
        _panels(rows, *_axes(rows, plot))


def _axes(rows: Sequence[Row], plot: Mapping[str, str]) -> tuple[str, str]:
    """Return the columns of a plot, by default the first that vary."""
    names = varying(rows)
    numeric = [
        n for n in names if n not in ("arrivals", "predictions", "instance") and _numbers(rows, n)
    ]
    by = plot.get("by", "policy")
    x = plot.get("x") or next((n for n in numeric if n != by), "policy")
    for key, name in (("x", x), ("by", by)):
        if name not in rows[0] or not (name in FIRST or name.startswith(CHOICES)):
            raise InputError(
                f"{name!r} is not a column of choices", field=f"plots.{key}", remedy="e.g. policy"
            )
    return x, by


def _numbers(rows: Sequence[Row], name: str) -> bool:
    values = [row[name] for row in rows if row[name] is not None]
    return bool(values) and all(
        isinstance(v, (int, float)) and not isinstance(v, bool) for v in values
    )


def _draw(rows: Sequence[Row], y: str, x: str, by: str, path: Path) -> None:
    from matplotlib import rc_context

    # Without salt and date two runs of one study draw the same bytes; labels are no formulas.
    with rc_context({"svg.hashsalt": "orsched", "text.parse_math": False}):
        _draw_figure(rows, y, x, by, path)


def _draw_figure(rows: Sequence[Row], y: str, x: str, by: str, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels, lines = _panels(rows, x, by), _lines(rows, x, by)
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    figure = Figure(figsize=(5.2 * across, 3.8 * down), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
    for ax, (title, part) in zip(axes, panels.items(), strict=False):
        _panel(ax, part, y, x, lines)
        ax.set_title(", ".join(title), fontsize=9)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    if by != x:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    svg = path.suffix == ".svg"
    figure.savefig(path, dpi=120, metadata={"Date": None} if svg else None)


def _panels(rows: Sequence[Row], x: str, by: str) -> dict[tuple[str, ...], list[Row]]:
    """Split rows by all choices that differ, beside those of the axes and what they fix."""
    lines = _lines(rows, x, by)
    others = independent(rows, [x, *lines, *varying(rows)])
    others = [name for name in others if name != x and name not in lines]
    panels: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        title = tuple(f"{name} {row[name]}" for name in others if row[name] is not None)
        panels.setdefault(title, []).append(row)
    if len(panels) > _MOST_PANELS:
        raise InputError(
            f"{len(panels)} panels",
            field="plots",
            remedy=f"at most {_MOST_PANELS}: let x and by be what differs most, or split the study",
        )
    return panels


def _lines(rows: Sequence[Row], x: str, by: str) -> list[str]:
    """Return the columns that make a line: policies differ by their parameters, too.

    With more of them than can be distinguished, parameters get panels.
    """
    names = [by]
    if by == "policy" != x:
        names += [n for n in varying(rows) if n.startswith("param_") and n != x]
    return names if len(_split(rows, names)) <= _MOST_LINES else [by]


def _panel(ax: Any, rows: Sequence[Row], y: str, x: str, lines: Sequence[str]) -> None:
    """Draw one line with bars for each value of some columns; times in seconds."""
    scale = 1e9 if re.search(r"_ns(_|$)", y) else 1.0
    places = _places(rows, x)
    numeric = _numbers(rows, x)
    for index, (name, part) in enumerate(_split(rows, lines).items()):
        found = over_seeds(part, y, (x,))
        found.sort(key=lambda group: places[group.choice[0]])
        means = [group.interval.mean / scale for group in found]
        low = [m - (g.interval.mean if g.interval.low is None else g.interval.low) / scale
               for m, g in zip(means, found, strict=True)]  # fmt: skip
        high = [(g.interval.mean if g.interval.high is None else g.interval.high) / scale - m
                for m, g in zip(means, found, strict=True)]  # fmt: skip
        ax.errorbar(
            [places[group.choice[0]] for group in found],
            means,
            yerr=[low, high],
            label=name,
            marker=_MARKERS[index % len(_MARKERS)],
            color=WORKER_COLOURS[index % len(WORKER_COLOURS)],
            linestyle="-" if numeric else "none",
            capsize=3,
            markersize=4,
        )
    if numeric and len(places) <= _MOST_TICKS:
        kept = [place for name, place in places.items() if name is not None]
        ax.set_xticks(kept, [f"{place:g}" for place in kept])
    elif not numeric:
        ax.set_xticks(
            list(places.values()), [str(name) for name in places], rotation=20, ha="right"
        )
        ax.margins(x=0.15)
    ax.set_xlabel(x)
    ax.set_ylabel(re.sub(r"_ns(?=_|$)", "", y).replace("_", " ") + (" (s)" if scale > 1 else ""))
    ax.grid(alpha=0.3)


def _places(rows: Sequence[Row], x: str) -> dict[Any, float]:
    """Return where each value of the x column stands."""
    values = list(dict.fromkeys(row[x] for row in rows if row[x] is not None))
    if _numbers(rows, x):
        return {value: float(value) for value in values} | {None: float("nan")}
    return {value: float(i) for i, value in enumerate([*values, None])}


def _split(rows: Sequence[Row], names: Sequence[str]) -> dict[str, list[Row]]:
    """Return the rows of each line by its name: that of a policy, with its parameters."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        more = [f"{n.partition('_')[2]}={row[n]}" for n in names[1:] if row[n] is not None]
        found.setdefault(" ".join([str(row[names[0]]), *more]), []).append(row)
    return found
