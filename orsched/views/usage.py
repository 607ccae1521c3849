"""Use of clients and memory over time, drawn with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.common.units import NS_PER_S
from orsched.data.instance import require_instance
from orsched.data.schedule import as_schedule
from orsched.metrics.timeline import Timeline
from orsched.views import style
from orsched.views.curves import Curve, block_curves, client_curves, means, sum_of
from orsched.views.pictures import (
    figure_or_new,
    heading,
    legend_above,
    mark_limit,
    save_picture,
    shortened,
    time_axes,
    title_above,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule, Scheduled

COLUMNS = 240
"""Stretches of time at most; with more changes each stretch shows its mean."""

SIZE = (10.0, 4.6)
"""Width and height in inches."""

MAX_WORKERS = 8
"""With more workers their blocks are added up."""


def usage(
    instance: Instance,
    schedule: Scheduled,
    figure: Figure | None = None,
    *,
    title: str | None = None,
) -> list[Axes]:
    """Draw the clients by use, stacked, and below them the KV blocks of each worker, over time.

    The upper axes show busy clients (prefill, decode), clients with invalid tokens, and those
    whose request is paused, up to the number of clients; the lower ones, where a worker has a
    memory model, the blocks held (one line a worker, or their sum above ``MAX_WORKERS``) and the
    blocks that there are. Areas carry the ``gid`` of their use, lines that of their worker.

    Args:
        instance: the problem.
        schedule: a schedule for it, or a result.
        figure: where to draw; None: a new figure.
        title: first line; None: instance, method and information.

    Returns:
        One or two axes.

    Raises:
        MissingDependencyError: matplotlib is missing.
    """
    figure = figure_or_new(figure, SIZE)
    require_instance(instance)
    schedule = as_schedule(schedule)
    line = Timeline(instance, schedule)
    blocks = named_blocks(instance, line)
    rows = 2 if blocks else 1
    axes = list(figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])
    _draw_clients(axes[0], instance, schedule, line)
    if blocks:
        _draw_blocks(axes[1], schedule, blocks)
    legends = [legend_above(ax) for ax in axes]
    title_above(axes[0], heading(instance, [schedule]) if title is None else title, legends[0])
    time_axes(axes, schedule.makespan_ns)
    return axes


def save_usage(
    instance: Instance,
    schedule: Scheduled,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
) -> None:
    """Write the picture of ``usage`` as PNG, SVG or PDF, by suffix; equal input, equal bytes.

    Raises:
        InputError: the suffix is none of these, or the file cannot be written.
        MissingDependencyError: matplotlib is missing.
    """

    def draw(figure: Figure) -> None:
        usage(instance, schedule, figure, title=title)

    save_picture(draw, path, SIZE)


def named_blocks(instance: Instance, line: Timeline) -> list[tuple[str, Curve, int]]:
    """Return name, blocks held and blocks there are of each worker, or of all if there are many.

    Empty when no worker has a memory model.
    """
    known = [
        (worker.name, curve, worker.memory.blocks)
        for worker, curve in zip(instance.workers, block_curves(instance, line), strict=True)
        if curve is not None and worker.memory is not None
    ]
    if len(known) <= MAX_WORKERS:
        return known
    total = sum_of([curve for _, curve, _ in known])
    return [(f"{len(known)} workers", total, sum(blocks for *_, blocks in known))]


def borders_of(curves: Sequence[Curve], end_ns: int, columns: int) -> NDArray[np.float64]:
    """Return the moments at which any curve changes; equal stretches if there are too many."""
    moments = np.unique(np.concatenate([[0, end_ns], *(curve.time_ns for curve in curves)]))
    if len(moments) - 1 > columns or len(moments) < 2:
        return np.linspace(0, max(end_ns, 1), columns + 1)
    return moments.astype(np.float64)


def _draw_clients(ax: Axes, instance: Instance, schedule: Schedule, line: Timeline) -> None:
    curves = client_curves(line)
    borders = borders_of(list(curves.values()), schedule.makespan_ns, COLUMNS)
    floor = np.zeros(len(borders) - 1)
    for name, (word, colour) in style.USES.items():
        if len(curves[name].time_ns) == 0:
            continue
        top = floor + means(curves[name], borders)
        ax.stairs(
            top, borders / NS_PER_S, baseline=floor, fill=True, color=colour, label=word,
            gid=name, linewidth=0,
        )  # fmt: skip
        floor = top
    clients = sum(worker.clients for worker in instance.workers)
    mark_limit(ax, clients, f"{clients:,} clients", "clients")
    ax.set_ylabel("clients")


def _draw_blocks(ax: Axes, schedule: Schedule, blocks: Sequence[tuple[str, Curve, int]]) -> None:
    borders = borders_of([curve for _, curve, _ in blocks], schedule.makespan_ns, COLUMNS)
    for k, (name, curve, _) in enumerate(blocks):
        colour = style.WORKER_COLOURS[k % len(style.WORKER_COLOURS)]
        word = shortened(name, 24)
        ax.stairs(
            means(curve, borders), borders / NS_PER_S, baseline=None, color=colour, lw=1.2,
            label=word, gid=f"blocks-{k}",
        )  # fmt: skip
    marked: set[int] = set()
    for k, (_, _, limit) in enumerate(blocks):
        alike = all(other == limit for _, _, other in blocks)
        colour = "black" if alike else style.WORKER_COLOURS[k % len(style.WORKER_COLOURS)]
        word = "" if limit in marked else f"{limit:,} blocks"
        mark_limit(ax, limit, word, f"limit-{k}", colour)
        marked.add(limit)
    ax.set_ylabel("KV blocks")
