"""The panels of a study's plots: lines over a choice, and one result against another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.units import NS_PER_S
from orsched.planning.study.table import over_seeds
from orsched.views.pictures import mark_limit, scale_axis
from orsched.views.style import LIMIT_COLOUR, AxisName, axis_name, line_look, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orsched.calibration.intervals import Interval

    Row = Mapping[str, Any]


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

    One without that choice, a policy without the parameter, is level. Choices that are no numbers
    have points with bars beside each other. ``order`` has the names of
    all lines of the figure, so that a line looks the same in each panel.
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
    """Return where each value of the x column stands."""
    values = list(dict.fromkeys(row[x] for row in rows if row[x] is not None))
    if numbers(rows, x):
        return {value: float(value) for value in values} | {None: float("nan")}
    return {value: float(i) for i, value in enumerate([*values, None])}


def draw_against(
    ax: Any, rows: Sequence[Row], y: str, x: str, lines: Sequence[str], order: Sequence[str],
    along: str | None,
) -> list[Label]:  # fmt: skip
    """Draw one result against another: a point a combination of choices, joined along one of them.

    Where it can be said of both what is better, a grey line is the Pareto front: no point is at
    least as good in both and better in one. Returns the words for ``write_labels``: the value of
    ``along`` of each point.
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
