"""Plots of a study: means over the seeds with their 95 % confidence intervals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError
from orsched.common.units import NS_PER_S
from orsched.planning.study.table import (
    CHOICES,
    FIRST,
    arrive_over_time,
    independent,
    over_seeds,
    require_numbers,
    rows_of,
    varying,
)
from orsched.views.pictures import (
    legend_below,
    mark_limit,
    require_matplotlib,
    save_picture,
    scale_axis,
)
from orsched.views.style import LIMIT_COLOUR, AxisName, axis_name, line_look, short

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from orsched.calibration.intervals import Interval
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
    for each choice of its parameters. Points are means over the seeds, bands and bars their 95 %
    confidence intervals (``over_seeds``). An axis is logarithmic where its largest value is more
    than 30 times the smallest, and starts at 0 unless all lies in its upper half; limits of the
    study are dotted lines.

    Raises:
        InputError: a column is missing, more than 12 panels, or a suffix other than svg, png, pdf.
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
            "no cell has finished: nothing to plot", field="plots", remedy="see the errors"
        )
    target.mkdir(parents=True, exist_ok=True)
    paths = []
    for plot in list(plots) or default_plots(done):
        require_numbers(done, plot["y"], "plots.y")
        x, by = _axis_columns(done, plot)
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
    """Raise before any cell runs: ``InputError`` for a format, ``MissingDependencyError``."""
    require_matplotlib()
    cells = study.cells()
    blank = {"status": "ok", "run": {}}
    rows = rows_of(cells, {cell.key: blank for cell in cells})
    for plot in study.plots or ({},):
        _panels(rows, *_axis_columns(rows, plot))


def _is_result(name: str) -> bool:
    """Whether it is known of a column which values are better, so that others stand against it."""
    return axis_name(name).better != 0


def _axis_columns(rows: Sequence[Row], plot: Mapping[str, str]) -> tuple[str, str]:
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
    """Return the columns that make a line: policies with their parameters, if not too many."""
    names = [by]
    if by == "policy" != x:
        names += [n for n in varying(rows) if n.startswith("param_") and n != x]
    return names if len(split(rows, names)) <= _MOST_LINES else [by]


Point = tuple[float, float]


def pareto_front(points: Sequence[Point], better_x: int, better_y: int) -> list[Point]:
    """Return the points that none beats, in order of x; ``better``: 1 for more, -1 for less.

    A point is beaten by one that is at least as good in both, and better in one.
    """
    front: list[Point] = []
    best: float | None = None
    # From the best x on, each point has to be better in y than all before it.
    for x, y in sorted(set(points), key=lambda p: (-better_x * p[0], -better_y * p[1])):
        if best is None or better_y * y > better_y * best:
            front.append((x, y))
            best = y
    return sorted(front)


MARKERS = "osv^DPX*"
_MOST_TICKS = 8
_MOST_LABELS = 40
_DODGE = 0.09
_FRONT_COLOUR = "#CCCCCC"
_LEAST = 1e-3
Label = tuple[float, float, str]


class Spot(NamedTuple):
    """A mean over seeds with the ends of its interval, in units of the axis."""

    mean: float
    low: float
    high: float


def spot(interval: Interval, name: AxisName) -> Spot:
    """Return an interval in units of an axis, cut to what can be; without one, the mean alone."""
    mean = interval.mean
    low, high = (mean if end is None else end for end in (interval.low, interval.high))
    if mean > 0:  # an interval may reach where no figure can be, and logarithms end at 0
        low = max(low, mean * _LEAST)
    return Spot(mean * name.factor, low * name.factor, min(high * name.factor, name.most))


def numbers(rows: Sequence[Row], name: str) -> bool:
    """Return whether a column holds numbers, and something at all."""
    values = [row[name] for row in rows if row[name] is not None]
    return bool(values) and all(
        isinstance(v, (int, float)) and not isinstance(v, bool) for v in values
    )


def split(rows: Sequence[Row], names: Sequence[str]) -> dict[str, list[Row]]:
    """Return the rows of each line by its name: that of a policy, with its parameters."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        more = [f"{n.partition('_')[2]}={row[n]}" for n in names[1:] if row[n] is not None]
        found.setdefault(" ".join([str(row[names[0]]), *more]), []).append(row)
    return found


def draw_over(
    ax: Any, rows: Sequence[Row], y: str, x: str, lines: Sequence[str], order: Sequence[str]
) -> None:
    """Draw one line for each value of some columns over a choice, with its confidence band.

    One without that choice, a policy without the parameter, is level. Choices that are not numbers
    have points with bars. ``order`` names all lines of the figure, so a line always looks the same.
    """
    places, numeric = _places(rows, x), numbers(rows, x)
    for name, part in split(rows, lines).items():
        k = order.index(name)
        look = line_look(k)
        mark = {"marker": MARKERS[k % len(MARKERS)], "markersize": 4.5, "label": name}
        found = over_seeds(part, y, (x,))
        found.sort(key=lambda group: places[group.choice[0]])
        at = [places[group.choice[0]] for group in found]
        spots = [spot(group.interval, axis_name(y)) for group in found]
        means = [each.mean for each in spots]
        if numeric and part[0][x] is None and len(spots) == 1:
            # The line has no such choice, and is the same whatever others choose.
            ax.axhline(means[0], gid=f"line-{k}", linewidth=1.6, label=name, **look)
            ax.axhspan(spots[0].low, spots[0].high, color=look["color"], alpha=0.15, lw=0)
        elif numeric:
            low, high = [each.low for each in spots], [each.high for each in spots]
            ax.plot(at, means, gid=f"line-{k}", linewidth=1.6, **look, **mark)
            ax.fill_between(at, low, high, color=look["color"], alpha=0.15, lw=0, gid=f"band-{k}")
            if len(at) == 1:  # a band without width
                _bars(ax, at, spots, look["color"])
        else:
            beside = _DODGE * (k - (len(order) - 1) / 2)
            at = [place + beside for place in at]
            ax.plot(at, means, gid=f"line-{k}", linestyle="none", color=look["color"], **mark)
            _bars(ax, at, spots, look["color"])
    _ticks(ax, places, numeric)
    ax.set_xlabel(axis_name(x).words)
    ax.grid(alpha=0.3)


def _bars(ax: Any, at: Sequence[float], spots: Sequence[Spot], colour: str) -> None:
    ends = [[s.mean - s.low for s in spots], [s.high - s.mean for s in spots]]
    ax.errorbar(at, [s.mean for s in spots], yerr=ends, fmt="none", ecolor=colour, capsize=3)


def _ticks(ax: Any, places: Mapping[Any, float], numeric: bool) -> None:
    if not numeric:
        names = [str(name) for name, place in places.items() if name is not None]
        ax.set_xticks(
            [places[n] for n in places if n is not None],
            names,
            rotation=20,
            ha="right",
            parse_math=False,
        )
        ax.margins(x=0.15)
        return
    kept = [place for name, place in places.items() if name is not None]
    scaled = scale_axis(ax, "x", kept)
    if len(places) <= _MOST_TICKS:
        ax.set_xticks(kept, [f"{place:,g}" for place in kept])
        if scaled:
            ax.set_xticks([], minor=True)


def _places(rows: Sequence[Row], x: str) -> dict[Any, float]:
    """Return the position of each value of the x column."""
    values = list(dict.fromkeys(row[x] for row in rows if row[x] is not None))
    if numbers(rows, x):
        return {value: float(value) for value in values} | {None: float("nan")}
    return {value: float(i) for i, value in enumerate([*values, None])}


def draw_against(
    ax: Any, rows: Sequence[Row], y: str, x: str, lines: Sequence[str], order: Sequence[str],
    along: str | None,
) -> list[Label]:  # fmt: skip
    """Draw one result against another: a point a combination of choices, joined along one of them.

    Where it is known what is better of both, a grey line is the Pareto front. Returns the words for
    ``write_labels``: the value of ``along`` of each point.
    """
    names = (axis_name(x), axis_name(y))
    every: list[tuple[float, float]] = []
    labels: list[tuple[float, float, str]] = []
    for name, part in split(rows, lines).items():
        k = order.index(name)
        look = line_look(k)
        spots = _pairs(part, (x, y), along)
        at = [(each[0].mean, each[1].mean) for _, each in spots]
        every += at
        labels += [(*point, _word(choice)) for point, (choice, _) in zip(at, spots, strict=True)]
        ax.plot(
            [p[0] for p in at], [p[1] for p in at], gid=f"line-{k}", linewidth=1.4, label=name,
            marker=MARKERS[k % len(MARKERS)], markersize=5, **look,
        )  # fmt: skip
        for _, (across, up) in spots:
            for xs, ys in (
                ((across.low, across.high), (up.mean, up.mean)),
                ((across.mean, across.mean), (up.low, up.high)),
            ):
                ax.plot(xs, ys, color=look["color"], lw=1, alpha=0.4, gid=f"interval-{k}")
    if names[0].better and names[1].better:
        _draw_front(ax, every, names[0].better, names[1].better)
    scale_axis(ax, "x", [p[0] for p in every])
    joined = "" if along is None else f"\nnumbers at points: {axis_name(along).words}"
    ax.set_xlabel(names[0].words + joined)
    ax.grid(alpha=0.3)
    return [] if along is None or len(labels) > _MOST_LABELS else labels


def write_labels(ax: Any, labels: Sequence[Label]) -> None:
    """Write words at points, once the axes have their scales; not where one would hide another."""
    taken: list[tuple[float, float]] = []
    for left, height, word in labels:
        x, y = ax.transData.transform((left, height))
        dots = ax.get_figure().dpi / 72
        if any(abs(x - a) < 20 * dots and abs(y - b) < 9 * dots for a, b in taken):
            continue
        taken.append((x, y))
        ax.annotate(word, (left, height), (5, 4), textcoords="offset points", fontsize=8,
                    parse_math=False, gid="along")  # fmt: skip


def _word(choice: object) -> str:
    return f"{choice:,g}" if isinstance(choice, (int, float)) else str(choice)


def _pairs(
    rows: Sequence[Row], columns: tuple[str, str], along: str | None
) -> list[tuple[Any, tuple[Spot, Spot]]]:
    """Return the means of two columns for each value along a choice, in its order."""
    choices = () if along is None else (along,)
    one, two = (
        {
            group.choice: spot(group.interval, axis_name(column))
            for group in over_seeds(rows, column, choices)
        }
        for column in columns
    )
    both = [choice for choice in one if choice in two]
    if along is not None and numbers(rows, along):
        both.sort(key=lambda choice: float("inf") if choice[0] is None else choice[0])
    return [("" if along is None else choice[0], (one[choice], two[choice])) for choice in both]


def _draw_front(
    ax: Any, points: Sequence[tuple[float, float]], better_x: int, better_y: int
) -> None:
    front = pareto_front(points, better_x, better_y)
    # Between two points one can have the x of the worse one with the y of the other.
    ax.plot(
        [p[0] for p in front], [p[1] for p in front], color=_FRONT_COLOUR, linewidth=4, zorder=1,
        drawstyle="steps-pre" if better_x > 0 else "steps-post", solid_capstyle="round",
        label="Pareto front", gid="front",
    )  # fmt: skip


def scale_and_limit(axes: Sequence[Any], rows: Sequence[Row], y: str) -> None:
    """Scale the y axis that all panels share by the means in them, and mark the limit."""
    means = [
        float(value)
        for ax in axes
        for line in ax.lines
        if str(line.get_gid()).startswith("line-")
        for value in line.get_ydata()
    ]
    top = max((float(ax.dataLim.y1) for ax in axes if ax.has_data()), default=0.0)
    value = limit_of(rows, y)
    if scale_axis(axes[0], "y", means):
        axes[0].set_ylim(min(means) / 1.5, 1.5 * top)
    elif means and top > 0:
        least = min(float(ax.dataLim.y0) for ax in axes if ax.has_data())
        # From 0, unless all lies in the upper half (there would be little to see) and differs.
        low = least - 0.1 * (top - least) if top / 2 < least < top else min(0.0, least)
        axes[0].set_ylim(low, top + 0.06 * (top - low))
    if value is not None:
        for ax in axes:
            mark_limit(ax, value, f"limit {short(value)} s", "limit", LIMIT_COLOUR, top)


def limit_of(rows: Sequence[Row], y: str) -> float | None:
    """Return the limit on the latency in a column, in seconds, if it is the same in all rows."""
    name = y.partition("_")[0]
    found = {row.get(f"slo_{name}_ns") for row in rows} if name in ("ttft", "tpot") else set()
    value = found.pop() if len(found) == 1 else None
    return None if value is None else value / NS_PER_S
