"""The Gantt chart of a schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.plotting import style
from orsched.plotting.density import density_image
from orsched.plotting.legend import draw_legend
from orsched.plotting.pictures import DPI, heading, require_matplotlib, save_picture, shortened
from orsched.plotting.spans import ClientUse, Spans, client_use, lane_offsets, rank_in_lane
from orsched.schedule import MIXED, PREFILL
from orsched.units import NS_PER_S

if TYPE_CHECKING:
    import os

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from orsched.columns import IntColumn
    from orsched.instance import Instance
    from orsched.schedule import Schedule

MAX_BARS = 20_000
"""Above this many bars of a kind the chart is an image of busy shares (``density_image``)."""

_BAR_HEIGHT = 0.8
_HATCHES = {"invalid": style.INVALID_HATCH, "bulk": style.BULK_HATCH}
_MAX_LABELS = 80
_MAX_NAMES = 30
_WIDTH, _RIGHT, _TOP, _BOTTOM = 12.0, 0.35, 0.65, 0.75
_HEIGHT_PIXELS, _MIN_HEIGHT_PIXELS, _MAX_ROW_PIXELS = 1000, 120, 45


def gantt(
    instance: Instance,
    schedule: Schedule,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    show_legend: bool = True,
    end_ns: int = 0,
) -> Axes:
    """Draw a schedule: time in seconds to the right, clients downwards, workers stacked.

    Each request is one bar from the end of its prefill to its last token; successive requests
    of a client alternate in lightness. Its own prefill is a black bar before it, one a chunk.
    Where some requests are bulk and others are not, bars of bulk ones are green and hatched.
    While it is paused the bar is grey; rounds after the last token, in a static batch, are hatched.
    A diamond marks the start of a stay after the first: the request was evicted before. Prefill
    stages are orange stripes over all clients of the worker, mixed steps lighter ones; clients
    without a request show the tinted background. Vertical lines mark the makespan and, if the
    schedule has one, the lower bound. Collections and images carry the ``gid`` ``decode``,
    ``bulk``, ``prefill``, ``invalid``, ``paused``, ``restarts``, ``stages``, ``mixed`` or
    ``density``; what does not occur is not drawn, and not explained.

    Schedules with more than ``MAX_BARS`` bars of a kind are drawn as an image in which each pixel
    shows the exact shares of decode, prefill and bubble in its time.

    Args:
        instance: the problem.
        schedule: a schedule for it.
        ax: axes to draw on; None: a new figure.
        title: first title line; None: instance, method and information.
        show_legend: whether to explain the colours below the axes.
        end_ns: the time axis reaches at least so far.

    Raises:
        MissingDependencyError: matplotlib is missing.
    """
    require_matplotlib()
    if ax is None:
        from matplotlib import pyplot

        ax = _place(pyplot.figure(), instance)
    makespan = schedule.makespan_ns
    _draw_background(ax, instance, makespan)
    use = client_use(instance, schedule)
    dense = max(map(len, (use.decode, use.prefill, use.invalid, use.paused))) > MAX_BARS
    if dense:
        _draw_density(ax, instance, schedule, use)
    else:
        _draw_bars(ax, use)
        _draw_stages(ax, instance, schedule)
    _label_axes(ax, instance, schedule, end_ns)
    _draw_lines(ax, schedule)
    _draw_title(ax, instance, schedule, title)
    if len(use.decode) <= _MAX_LABELS:
        _label_bars(ax, instance, use.decode)
    if show_legend:
        draw_legend(ax, schedule, use, dense)
    return ax


def save_gantt(
    instance: Instance,
    schedule: Schedule,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
) -> None:
    """Write the Gantt chart as PNG, SVG or PDF, by suffix; equal input gives equal bytes.

    Raises:
        InputError: the suffix is none of these, or the file cannot be written.
        MissingDependencyError: matplotlib is missing.
    """

    def draw(figure: Figure) -> None:
        gantt(instance, schedule, _place(figure, instance), title=title)

    save_picture(draw, path)


def _axes_height(instance: Instance) -> float:
    """Inches: each client a whole number of pixels, so that all rows look the same.

    A row is as high as a line of text for few clients, and thin for many.
    """
    lanes = int(lane_offsets(instance)[-1])
    pixels = lanes * max(1, min(_MAX_ROW_PIXELS, _HEIGHT_PIXELS // lanes))
    return max(_MIN_HEIGHT_PIXELS, min(pixels, 2 * _HEIGHT_PIXELS)) / DPI


def _place(figure: Figure, instance: Instance) -> Axes:
    """Add axes with fixed margins in inches and a whole number of pixels a client."""
    height = _axes_height(instance)
    total = height + _TOP + _BOTTOM
    figure.set_size_inches(_WIDTH, total)
    left = 0.7 if len(instance.workers) == 1 else 1.5  # names of workers need more room
    box = (left / _WIDTH, _BOTTOM / total, 1 - (left + _RIGHT) / _WIDTH, height / total)
    return figure.add_axes(box)


def _rectangles(start: IntColumn, end: IntColumn, low: Any, high: Any) -> Any:
    """Corners of rectangles, shape (n, 4, 2), times in seconds."""
    corners = np.empty((len(start), 4, 2))
    corners[:, 0, 0] = corners[:, 1, 0] = start / NS_PER_S
    corners[:, 2, 0] = corners[:, 3, 0] = end / NS_PER_S
    corners[:, 0, 1] = corners[:, 3, 1] = low
    corners[:, 1, 1] = corners[:, 2, 1] = high
    return corners


def _draw_background(ax: Axes, instance: Instance, makespan: int) -> None:
    """Tint the whole client-time: what no bar covers is a client without a request."""
    from matplotlib.patches import Rectangle

    lanes = int(lane_offsets(instance)[-1])
    ax.add_patch(
        Rectangle(
            (0, -0.5), makespan / NS_PER_S, lanes, color=style.IDLE_COLOUR, lw=0, zorder=0.5,
            gid="idle",
        )
    )  # fmt: skip


def _draw_bars(ax: Axes, use: ClientUse) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgba_array

    half = _BAR_HEIGHT / 2
    palette = to_rgba_array(style.DECODE_COLOURS)
    bulk = np.zeros(len(use.decode), bool) if use.bulk is None else use.bulk[use.decode.request]
    rank = rank_in_lane(use.decode) % 2
    # A thin edge keeps prefills visible that are shorter than a pixel.
    for spans, colours, edge, level, gid in (
        (use.decode.take(~bulk), palette[rank[~bulk]], 0.0, 2, "decode"),
        (use.decode.take(bulk), to_rgba_array(style.BULK_COLOURS)[rank[bulk]], 0.0, 2, "bulk"),
        (use.paused, style.PAUSED_COLOUR, 0.0, 2, "paused"),
        (use.invalid, style.INVALID_COLOUR, 0.0, 2, "invalid"),
        (use.prefill, style.PREFILL_COLOUR, 0.5, 4, "prefill"),
    ):
        if len(spans) == 0 and gid in ("bulk", "paused", "invalid"):
            continue
        corners = _rectangles(spans.start_ns, spans.end_ns, spans.lane - half, spans.lane + half)
        bars = PolyCollection(
            corners, facecolors=colours, edgecolors=colours, linewidths=edge, zorder=level, gid=gid
        )
        if gid in _HATCHES:
            bars.set(hatch=_HATCHES[gid], edgecolor="white", linewidth=0)
        ax.add_collection(bars, autolim=False)
    again = use.stays.take(use.stays.stay > 0)
    if len(again):
        ax.plot(
            again.start_ns / NS_PER_S, again.lane, "D", color=style.RESTART_COLOUR, markersize=4,
            markeredgecolor="white", markeredgewidth=0.6, zorder=6, gid="restarts", clip_on=False,
        )  # fmt: skip


def _draw_stages(ax: Axes, instance: Instance, schedule: Schedule) -> None:
    """Draw each step that prefills over all clients of its worker, light enough to see the bars."""
    from matplotlib.collections import PolyCollection

    steps, offsets = schedule.steps, lane_offsets(instance)
    for phase, opacity, gid in ((PREFILL, 0.45, "stages"), (MIXED, style.MIXED_OPACITY, "mixed")):
        rows = np.flatnonzero(steps.phase == phase)
        if len(rows) == 0 and phase == MIXED:
            continue
        worker = steps.worker[rows]
        low, high = offsets[worker] - 0.5, offsets[worker + 1] - 0.5
        stripes = PolyCollection(
            _rectangles(steps.start_ns[rows], steps.end_ns[rows], low, high),
            facecolors=style.STAGE_COLOUR, edgecolors=style.STAGE_COLOUR, alpha=opacity,
            linewidths=0.2 if len(rows) <= _MAX_LABELS else 0, zorder=3, gid=gid, snap=False,
        )  # fmt: skip
        ax.add_collection(stripes, autolim=False)


def _draw_density(ax: Axes, instance: Instance, schedule: Schedule, use: ClientUse) -> None:
    lanes = int(lane_offsets(instance)[-1])
    ax.imshow(
        density_image(instance, schedule, use),
        extent=(0, schedule.makespan_ns / NS_PER_S, lanes - 0.5, -0.5),
        aspect="auto",
        interpolation="nearest",
        zorder=2,
        gid="density",
    )


def _label_axes(ax: Axes, instance: Instance, schedule: Schedule, end_ns: int) -> None:
    from matplotlib.ticker import MaxNLocator

    offsets = lane_offsets(instance)
    lanes = int(offsets[-1])
    bound = 0 if schedule.bound is None else int(schedule.bound["value_ns"])
    right = max(schedule.makespan_ns, bound, end_ns) / NS_PER_S
    ax.set_xlim(0, right * 1.01 if right else 1)
    ax.set_ylim(lanes - 0.5, -0.5)
    ax.set_xlabel("time (s)", loc="right")
    if len(instance.workers) == 1:
        ax.set_ylabel("client")
        ax.yaxis.set_major_locator(MaxNLocator(min(lanes, 11), integer=True, steps=[1, 2, 5, 10]))
    else:
        middles = (offsets[:-1] + offsets[1:] - 1) / 2
        names = [shortened(w.name, 14) for w in instance.workers]
        every = -(-len(names) // _MAX_NAMES)
        ax.set_yticks(middles[::every], names[::every], parse_math=False)
        ax.set_ylabel("worker")
        ax.hlines(offsets[1:-1] - 0.5, 0, 1, transform=ax.get_yaxis_transform(), colors="white",
                  linewidths=2, zorder=4, gid="workers")  # fmt: skip
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(length=3, color="#666666")


def _draw_lines(ax: Axes, schedule: Schedule) -> None:
    end = schedule.makespan_ns / NS_PER_S
    ax.axvline(end, color=style.MAKESPAN_COLOUR, lw=1.2, zorder=5, gid="makespan", clip_on=False)
    if schedule.bound is not None:
        bound = int(schedule.bound["value_ns"]) / NS_PER_S
        # A white line below keeps the dashes visible on every background.
        ax.axvline(bound, color="white", lw=3, zorder=5)
        ax.axvline(bound, color=style.BOUND_COLOUR, lw=1.6, ls=(0, (4, 1.5)), zorder=6,
                   gid="bound")  # fmt: skip


def _draw_title(ax: Axes, instance: Instance, schedule: Schedule, title: str | None) -> None:
    from orsched.metrics import summarise

    if title is None:
        title = heading(instance, [schedule])
    ax.set_title(
        shortened(title, 100), loc="left", fontweight="bold", pad=24,
        parse_math=False,
    )  # fmt: skip
    results = summarise(instance, schedule)
    facts = [
        f"makespan {style.seconds(schedule.makespan_ns)}",
        f"slot utilization {style.percent(results['slot_utilization'])}",
    ]
    if schedule.bound is not None:
        facts.append(f"lower bound {style.seconds(results['bound_ns'])}")
        if results["gap"] is not None or not schedule.is_measured:
            facts.append(f"gap {style.gap_text(results['gap'])}")
    if schedule.is_measured:
        facts.append("partial run" if schedule.is_partial else "measured")
    facts.append(f"{results['prefill_stages']:,} prefill stages")
    facts.append(f"{results['decode_rounds']:,} rounds")
    for name, word in (
        ("mixed_steps", "mixed step"),
        ("restarts", "restart"),
        ("invalid_tokens", "invalid token"),
    ):
        if results[name]:
            facts.append(f"{results[name]:,} {word}{'' if results[name] == 1 else 's'}")
    line = "   ".join(facts)
    ax.annotate(
        line, (0, 1), (0, 8), xycoords="axes fraction", textcoords="offset points",
        color="#333333", parse_math=False, gid="facts", fontsize=min(10, 1230 / len(line)),
    )  # fmt: skip


def _label_bars(ax: Axes, instance: Instance, decode: Spans) -> None:
    """Write the names of requests into bars that are wide and high enough for them."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    box = ax.get_position()
    width, height = figure.get_figwidth() * box.width * 72, figure.get_figheight() * box.height * 72
    lanes = int(lane_offsets(instance)[-1])
    size = min(9.0, 0.6 * height / lanes)
    if size < 4:
        return
    points_per_s = width / (ax.get_xlim()[1] or 1)
    dark = rank_in_lane(decode) % 2 == 0
    for k in range(len(decode)):
        name = shortened(instance.requests.id_of(int(decode.request[k])), 24)
        start, end = decode.start_ns[k] / NS_PER_S, decode.end_ns[k] / NS_PER_S
        if (end - start) * points_per_s > size * (0.7 * len(name) + 1):
            ax.text(
                start + 0.5 * size / points_per_s, decode.lane[k], name, va="center_baseline",
                fontsize=size, color="white" if dark[k] else "black", zorder=7, clip_on=True,
                parse_math=False,
            )  # fmt: skip
