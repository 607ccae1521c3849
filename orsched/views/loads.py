"""Pictures of single pieces: loads of clients or workers, batches, the slack of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.common.units import NS_PER_S
from orsched.views import style
from orsched.views.gantt import gantt
from orsched.views.gantt_frame import Chart, rectangles
from orsched.views.pictures import legend_above, require_matplotlib

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from orsched.common.columns import IntColumn
    from orsched.models.bounds.request_slack import RequestSlack
    from orsched.models.bounds.sensitivity import Sensitivity

MAX_BARS = 20_000
"""With more jobs each machine has one bar, with more requests the lengths are a curve."""


def _axes(ax: Axes | None, rows: int) -> Axes:
    require_matplotlib()
    if ax is not None:
        return ax
    from matplotlib import pyplot

    height = min(9.0, 1.4 + 0.22 * rows)
    return pyplot.figure(figsize=(8, height), layout="constrained").subplots()


def loads_chart(
    sizes: Sequence[int],
    machine: Sequence[int],
    start: Sequence[int],
    bound: int | None,
    word: str,
    ax: Axes | None = None,
) -> Axes:
    """Draw jobs as bars on machines, from what these have at the start; return the axes.

    Args:
        sizes, machine: of each job, in the order in which bars follow one another.
        start: load of each machine before the first job.
        bound: drawn as a dashed line; None: none.
        word: what a machine is: client, worker.
        ax: axes to draw on; None: a new figure.
    """
    ax = _axes(ax, len(start))
    from matplotlib.ticker import MaxNLocator

    place, size = np.array(machine, np.int64), np.array(sizes, float)
    order = np.lexsort((np.arange(len(size)), place))
    place, size = place[order], size[order]
    before = np.cumsum(size) - size
    counts = np.bincount(place, minlength=len(start))
    first = np.cumsum(counts) - counts
    rank = np.arange(len(size)) - first[place]
    left = before - before[first[place]] + np.array(start, float)[place]
    loads = np.bincount(place, size, len(start)) + np.array(start, float)
    if any(start):
        ax.barh(range(len(start)), start, 0.8, color=style.PAUSED_COLOUR, label="at the start")
    if len(size) > MAX_BARS:
        ax.barh(range(len(start)), loads - start, 0.8, start, color=style.DECODE_COLOURS[0])
    for colour, turn in zip(style.DECODE_COLOURS, (0, 1), strict=True):
        chosen = (rank % 2 == turn) & (len(size) <= MAX_BARS)
        ax.barh(place[chosen], size[chosen], 0.8, left[chosen], color=colour)
    most = max(loads, default=0)
    ax.axvline(most, color=style.MAKESPAN_COLOUR, lw=1.2, label=f"largest load {most:,g}")
    if bound is not None:
        dashed = (0, (4, 1.5))
        ax.axvline(
            bound, color=style.BOUND_COLOUR, lw=1.6, ls=dashed, label=f"lower bound {bound:,g}"
        )
    ax.set(xlabel="load", ylabel=word, ylim=(len(start) - 0.5, -0.5))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.spines[["top", "right"]].set_visible(False)
    legend_above(ax)
    return ax


def batches_chart(
    lengths: IntColumn, boundaries: IntColumn, longest: IntColumn, ax: Axes | None = None
) -> Axes:
    """Draw requests as bars of their lengths, batch by batch, with the padding above them.

    Args:
        lengths: of the requests, in the order of the batches.
        boundaries: batch b holds the requests ``boundaries[b]`` to ``boundaries[b + 1]``.
        longest: tokens that each batch is padded to.
        ax: axes to draw on; None: a new figure.
    """
    ax = _axes(ax, 10)
    edges, place = np.arange(len(lengths) + 1), np.diff(boundaries)
    padded = np.repeat(longest, place)
    ax.stairs(padded, edges, fill=True, color=style.IDLE_COLOUR, label="padding")
    ax.stairs(lengths, edges, fill=True, color=style.DECODE_COLOURS[0], label="prompt")
    ax.vlines(boundaries[1:-1], 0, np.maximum(longest[1:], longest[:-1]), color="white", lw=1)
    ax.set(xlabel="requests, by length", ylabel="tokens", xlim=(0, max(1, len(lengths))))
    ax.spines[["top", "right"]].set_visible(False)
    legend_above(ax)
    return ax


def sensitivity_chart(found: Sensitivity, ax: Axes | None = None) -> Axes:
    """Draw a bound over the factor by which clients, cap or memory of the workers are changed."""
    ax = _axes(ax, 10)
    rows = [row for row in found.rows if row.bound_ns is not None]
    for place, name in enumerate(dict.fromkeys(row.field for row in rows)):
        points = [(r.factor, (r.bound_ns or 0) / NS_PER_S) for r in rows if r.field == name]
        look = style.line_look(place)
        ax.plot(
            *zip(*points, strict=True), marker="os^"[place], label=name.replace("_", " "), **look
        )
    ax.set(xlabel="times what the workers have", ylabel=f"bound on the {found.objective}, s")
    ax.set_ylim(bottom=0)
    ax.spines[["top", "right"]].set_visible(False)
    legend_above(ax)
    return ax


def slack_chart(found: RequestSlack, ax: Axes | None = None) -> Axes:
    """Draw a Gantt chart, frames around its critical steps, and behind each request a line as long
    as its finish may slip."""
    from matplotlib.collections import PolyCollection

    instance, schedule = found.instance, found.schedule
    ax = gantt(instance, schedule, ax)
    chart, nodes, steps = Chart.of(instance, schedule), found.graph.nodes, schedule.steps
    tight = [row for row in range(len(steps)) if nodes[row]["latest_end_ns"] == steps.end_ns[row]]
    worker, lanes = steps.worker[tight], chart.lanes
    low = lanes.top[worker] - 0.5
    frames = rectangles(steps.start_ns[tight], steps.end_ns[tight], low, low + lanes.shown[worker])
    ax.add_collection(
        PolyCollection(frames, facecolors="none", edgecolors=style.LAST_COLOUR, linewidths=0.6,
                       zorder=6, gid="critical"),
        autolim=False,
    )  # fmt: skip
    stays = chart.use.stays
    last = {int(request): row for row, request in enumerate(stays.request)}
    rows = np.array([row for request, row in last.items() if found.finish_slack_ns[request]], int)
    slip = found.finish_slack_ns[stays.request[rows]]
    ax.hlines(lanes.row[stays.lane[rows]], stays.end_ns[rows] / NS_PER_S,
              (stays.end_ns[rows] + slip) / NS_PER_S, colors=style.RESTART_COLOUR, linewidths=1.2,
              linestyles="dotted", zorder=6, gid="slack")  # fmt: skip
    return ax
