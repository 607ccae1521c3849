"""The Gantt chart of a schedule."""

from __future__ import annotations

from math import ceil, sqrt
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from orsched.common.errors import InputError
from orsched.common.units import NS_PER_S
from orsched.data.schedule import MIXED, PREFILL, as_schedule, served_instance
from orsched.views import style
from orsched.views.gantt_frame import (
    BOTTOM,
    MAX_LABELS,
    TOP,
    WIDTH,
    Chart,
    draw_background,
    draw_borders,
    draw_lines,
    draw_title,
    gap_of,
    inches_of,
    label_axes,
    label_bars,
    mark_last,
    place_axes,
    rectangles,
)
from orsched.views.page_data import density_image
from orsched.views.pictures import (
    DPI,
    fitting,
    legend_below,
    require_matplotlib,
    save_picture,
)
from orsched.views.spans import rank_in_lane

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

    from orsched.data.instance import Instance
    from orsched.data.schedule import Scheduled
    from orsched.views.spans import ClientUse, Lanes


MAX_BARS = 20_000
"""Above this many bars of a kind the chart is an image of busy shares (``density_image``)."""

_HATCHES = {"invalid": style.INVALID_HATCH, "bulk": style.BULK_HATCH}


def gantt(
    instance: Instance,
    schedule: Scheduled,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    show_legend: bool = True,
    end_ns: int = 0,
) -> Axes:
    """Draw a schedule: time in seconds to the right, clients downwards, workers stacked.

    Clients are separated by white; those of a worker that never hold a request are folded into one
    strip, which says how many they are, if there are three or more. Each request is one bar from
    the end of its prefill to its last token; successive ones of a client alternate in lightness.
    Its own prefill is a black bar before it, one a chunk.
    Where some requests are bulk and others are not, bars of bulk ones are green and hatched.
    While it is paused the bar is grey; rounds after the last token, in a static batch, are hatched.
    A diamond marks the start of a stay after an eviction. A cache on its way over a link is a
    purple bar on the clients of both workers.
    Prefill stages are orange stripes over all clients of the worker, mixed steps lighter ones;
    clients without a request show the tinted background. Vertical lines mark the makespan and, if
    the schedule has one, the lower bound. With several workers the request that ends last is
    framed, and a line says how long it waited, was prefilled and took in rounds. Collections and
    images carry the ``gid`` ``decode``, ``bulk``, ``prefill``, ``invalid``, ``paused``,
    ``transfers``, ``restarts``, ``stages``,
    ``mixed``, ``last`` or ``density``; what does not occur is neither drawn nor explained.

    The schedule becomes an image where the median bar would be thinner than a pixel or a row lower
    than two pixels, and with more than ``MAX_BARS`` of a kind. Each pixel then shows the exact
    shares of decode, prefill and bubble in its time.

    Args:
        instance: the problem.
        schedule: a schedule for it, or a result.
        ax: axes to draw on; None: a new figure. Where the figure has further axes, its charts
            share one legend below all of them, and with ``sharex`` or ``sharey`` one scale; a
            figure without a layout gets the constrained one.
        title: first title line; None: instance, method and information.
        show_legend: whether to explain the colours below the axes.
        end_ns: the time axis reaches at least so far.

    Raises ``MissingDependencyError`` if matplotlib is missing.

    >>> case = orsched.load("gate")
    >>> orsched.gantt(case, orsched.solve(case, "fcfs")).get_xlabel()
    'time (s)'
    """
    schedule = as_schedule(schedule)
    instance = served_instance(instance, [schedule])
    require_matplotlib()
    chart = Chart.of(instance, schedule)
    if ax is None:
        from matplotlib import pyplot

        ax = place_axes(pyplot.figure(), chart)
    draw_chart(ax, chart, title, show_legend=show_legend, end_ns=end_ns)
    return ax


def save_gantt(
    instance: Instance,
    schedule: Scheduled | Sequence[Scheduled],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
) -> None:
    """Write the Gantt chart as PNG, SVG or PDF, by suffix; equal input gives equal bytes.

    Several schedules become charts in one picture, on one axis of time and with one legend.

    Raises:
        InputError: the suffix is none of these, the file cannot be written, or there is no
            schedule.
        MissingDependencyError: matplotlib is missing.

    >>> case = orsched.load("gate")
    >>> orsched.save_gantt(case, orsched.solve(case, "fcfs"), "plan.svg")
    """
    several = isinstance(schedule, (list, tuple))
    drawn = [as_schedule(each) for each in (schedule if several else [schedule])]  # type: ignore[union-attr]
    if not drawn:
        raise InputError("no schedule is given", field="schedule", remedy="give at least one")
    instance = served_instance(instance, drawn)

    def draw(figure: Figure) -> None:
        charts = [Chart.of(instance, each) for each in drawn]
        if len(charts) == 1:
            draw_chart(place_axes(figure, charts[0]), charts[0], title)
        else:
            _draw_grid(figure, charts, title)

    save_picture(draw, path)


def _draw_grid(figure: Figure, charts: Sequence[Chart], title: str | None) -> None:
    """Draw charts beside and below each other: two as rows, four as a square."""
    columns = 1 if len(charts) < 4 else ceil(sqrt(len(charts)))
    rows = ceil(len(charts) / columns)
    height = max(chart.lanes.height_pixels() for chart in charts) / DPI
    figure.set_size_inches(WIDTH if columns == 1 else 0.8 * WIDTH * columns,
                           rows * (min(height, 3.5) + TOP + 0.3) + BOTTOM)  # fmt: skip
    figure.set_layout_engine("constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel().tolist()
    for ax in axes[len(charts) :]:
        ax.set_axis_off()
    end_ns = max(chart.schedule.makespan_ns for chart in charts)
    for ax, chart in zip(axes, charts, strict=False):
        draw_chart(ax, chart, title, end_ns=end_ns)


def draw_chart(
    ax: Axes, chart: Chart, title: str | None, *, show_legend: bool = True, end_ns: int = 0
) -> None:
    """Draw a chart on axes; the arguments are those of ``gantt``."""
    draw_background(ax, chart)
    dense = _is_dense(ax, chart)
    if dense:
        ax.imshow(
            density_image(chart.line, chart.use, chart.lanes),
            extent=(0, chart.schedule.makespan_ns / NS_PER_S, chart.lanes.rows - 0.5, -0.5),
            aspect="auto", interpolation="nearest", zorder=2, gid="density",
        )  # fmt: skip
    else:
        _draw_bars(ax, chart.use, chart.lanes)
        _draw_stages(ax, chart)
    draw_borders(ax, chart)
    label_axes(ax, chart, end_ns)
    draw_lines(ax, chart.schedule)
    mark_last(ax, chart)
    draw_title(ax, chart, title)
    if len(chart.use.decode) <= MAX_LABELS and not dense:
        label_bars(ax, chart)
    if show_legend:
        _draw_legend(ax, chart, dense)


def _is_dense(ax: Axes, chart: Chart) -> bool:
    """Return whether bars would be too many, or thinner than a pixel."""
    use, makespan_ns = chart.use, chart.schedule.makespan_ns
    if max(map(len, (use.decode, use.prefill, use.invalid, use.paused))) > MAX_BARS:
        return True
    width, height = inches_of(ax)
    if height * DPI < 2 * chart.lanes.rows:
        return True
    # A request's bar is its stay: decodes are cut into many where others are prefilled.
    if len(use.stays) == 0 or makespan_ns == 0:
        return False
    median = float(np.median(use.stays.end_ns - use.stays.start_ns))
    return median / makespan_ns * width * DPI < 1


def _draw_bars(ax: Axes, use: ClientUse, lanes: Lanes) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgba_array

    half = (1 - gap_of(ax, lanes)) / 2
    palette = to_rgba_array(style.DECODE_COLOURS)
    bulk = np.zeros(len(use.decode), bool) if use.bulk is None else use.bulk[use.decode.request]
    rank = rank_in_lane(use.decode) % 2
    # A thin edge keeps prefills visible that are shorter than a pixel.
    for spans, colours, edge, level, gid in (
        (use.decode.take(~bulk), palette[rank[~bulk]], 0.0, 2, "decode"),
        (use.decode.take(bulk), to_rgba_array(style.BULK_COLOURS)[rank[bulk]], 0.0, 2, "bulk"),
        (use.paused, style.PAUSED_COLOUR, 0.0, 2, "paused"),
        (use.invalid, style.INVALID_COLOUR, 0.0, 2, "invalid"),
        (use.transfers, style.TRANSFER_COLOUR, 0.5, 2, "transfers"),
        (use.prefill, style.PREFILL_COLOUR, 0.5, 4, "prefill"),
    ):
        if len(spans) == 0 and gid in ("bulk", "paused", "invalid", "transfers"):
            continue
        row = lanes.row[spans.lane]
        corners = rectangles(spans.start_ns, spans.end_ns, row - half, row + half)
        bars = PolyCollection(
            corners, facecolors=colours, edgecolors=colours, linewidths=edge, zorder=level, gid=gid
        )
        if gid in _HATCHES:
            bars.set(hatch=_HATCHES[gid], edgecolor="white", linewidth=0)
        ax.add_collection(bars, autolim=False)
    again = use.restarts
    if len(again):
        ax.plot(
            again.start_ns / NS_PER_S, lanes.row[again.lane], "D", color=style.RESTART_COLOUR,
            markersize=4, markeredgecolor="white", markeredgewidth=0.6, zorder=6, gid="restarts",
            clip_on=False,
        )  # fmt: skip


def _draw_stages(ax: Axes, chart: Chart) -> None:
    """Draw each step that prefills over all clients of its worker, light enough to see the bars."""
    from matplotlib.collections import PolyCollection

    steps, lanes = chart.schedule.steps, chart.lanes
    for phase, opacity, gid in ((PREFILL, 0.45, "stages"), (MIXED, style.MIXED_OPACITY, "mixed")):
        rows = np.flatnonzero(steps.phase == phase)
        if len(rows) == 0 and phase == MIXED:
            continue
        worker = steps.worker[rows]
        low = lanes.top[worker] - 0.5
        high = low + lanes.shown[worker]
        stripes = PolyCollection(
            rectangles(steps.start_ns[rows], steps.end_ns[rows], low, high),
            facecolors=style.STAGE_COLOUR, edgecolors=style.STAGE_COLOUR, alpha=opacity,
            linewidths=0.2 if len(rows) <= MAX_LABELS else 0, zorder=3, gid=gid, snap=False,
        )  # fmt: skip
        ax.add_collection(stripes, autolim=False)


_SHARED: WeakKeyDictionary[Figure, dict[tuple[int, str], Any]] = WeakKeyDictionary()
"""Handles of the legend that charts of a figure share, by place and word."""


def _share_legend(figure: Figure, entries: list[tuple[Any, str]]) -> None:
    """Explain below the figure what this chart and those before it show, each word once."""
    words = list(style.KEY.values())
    shared = _SHARED.setdefault(figure, {})
    for handle, word in entries:
        shared[words.index(word.partition(" (")[0]), word] = handle
    for legend in [each for each in figure.legends if each.get_gid() == "shared"]:
        legend.remove()
    if figure.get_layout_engine() is None:
        figure.set_layout_engine("constrained")
    found = legend_below(figure, [shared[key] for key in sorted(shared)],
                         [word for _, word in sorted(shared)])  # fmt: skip
    if found is not None:
        found.set_gid("shared")


def _draw_legend(ax: Axes, chart: Chart, dense: bool) -> None:
    """Explain the colours below the axes, in two rows where one is too short."""
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.transforms import ScaledTranslation

    entries = _entries(chart, dense)
    figure = ax.get_figure(root=True)
    assert figure is not None
    if len(figure.axes) > 1:
        _share_legend(figure, entries)
        return
    below = ax.transAxes + ScaledTranslation(0, -0.47, figure.dpi_scale_trans)
    size = 9.0 if len(entries) <= 8 else 8.0

    def draw(columns: int) -> Legend:
        return ax.legend(
            [handle for handle, _ in entries], [word for _, word in entries], loc="upper left",
            bbox_to_anchor=(0, 0), bbox_transform=below, ncols=columns, frameon=False,
            fontsize=size, handlelength=1.6, columnspacing=1.3, labelspacing=0.3, borderaxespad=0,
            borderpad=0, handler_map={tuple: HandlerTuple(ndivide=None, pad=0)},
        )  # fmt: skip

    width = ax.get_position().width * figure.get_figwidth() + 0.25
    fitting(draw, len(entries), width * figure.dpi)


def _entries(chart: Chart, dense: bool) -> list[tuple[Any, str]]:
    """Return handles and words; rare kinds of work are explained where they occur."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    schedule, use = chart.schedule, chart.use

    def hatched(colour: str, hatch: str | None) -> Patch:
        return Patch(facecolor=colour, edgecolor="white", lw=0, hatch=hatch)

    colours = style.DECODE_COLOURS[:1] if dense else style.DECODE_COLOURS
    invalid_hatch = None if dense else style.INVALID_HATCH
    mixed = style.MIXED_OPACITY + 0.1
    handles: dict[str, tuple[Any, Any]] = {
        "decode": (tuple(Patch(color=c, lw=0) for c in colours), True),
        "bulk": (
            tuple(hatched(c, style.BULK_HATCH) for c in style.BULK_COLOURS),
            use.bulk is not None and not dense,  # images do not tell them apart
        ),
        "own": (Patch(color=style.PREFILL_COLOUR, lw=0), True),
        "stage": (Patch(facecolor=style.STAGE_COLOUR, alpha=0.6, lw=0), True),
        "mixed": (
            Patch(facecolor=style.STAGE_COLOUR, alpha=mixed, lw=0),
            (schedule.steps.phase == MIXED).any(),
        ),
        "paused": (Patch(color=style.PAUSED_COLOUR, lw=0), len(use.paused)),
        "invalid": (hatched(style.INVALID_COLOUR, invalid_hatch), len(use.invalid)),
        "transfer": (Patch(color=style.TRANSFER_COLOUR, lw=0), len(use.transfers) and not dense),
        "restart": (
            Line2D([], [], color=style.RESTART_COLOUR, marker="D", markersize=4, lw=0),
            len(use.restarts) and not dense,
        ),
        "idle": (Patch(color=style.IDLE_COLOUR, lw=0), True),
        "end": (Line2D([], [], color=style.MAKESPAN_COLOUR, lw=1.2), True),
        "bound": (
            Line2D([], [], color=style.BOUND_COLOUR, lw=1.8, ls=(0, (4, 1.5))),
            schedule.bound is not None,
        ),
    }
    more = {"decode": " (shares of time)" if dense else " (one bar a request)"}
    return [
        (handles[name][0], word + more.get(name, ""))
        for name, word in style.KEY.items()
        if handles[name][1]
    ]
