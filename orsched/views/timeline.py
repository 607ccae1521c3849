"""Running and waiting requests and memory over time, of one schedule or of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.common.units import NS_PER_S
from orsched.data.instance import require_instance
from orsched.data.schedule import Schedule, Scheduled, as_schedules
from orsched.metrics.timeline import Timeline
from orsched.views import style
from orsched.views.class_curves import memory_by_owner
from orsched.views.curves import means
from orsched.views.latency import line_names
from orsched.views.load_curves import load_curves
from orsched.views.pictures import (
    figure_or_new,
    heading,
    legend_below,
    mark_limit,
    save_picture,
    time_axes,
    title_above,
)
from orsched.views.usage import borders_of

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from orsched.data.instance import Instance

COLUMNS = 400
"""Stretches of time at most; with more changes each stretch shows its mean."""

_HEIGHT = 2.0


def timeline_chart(
    instance: Instance,
    schedules: Scheduled | Sequence[Scheduled],
    figure: Figure | None = None,
    *,
    names: Sequence[str] = (),
    title: str | None = None,
) -> list[Axes]:
    """Draw requests that run, requests that wait, and the KV blocks in use, over time.

    A request runs while it holds a client; it waits from its arrival, and after an eviction, until
    it gets one. Blocks are per cent of those of all workers with a memory model; cached
    ones that no running request refers to are not among them. A single schedule has areas,
    several have lines. They carry the ``gid`` ``running-K``, ``waiting-K`` and ``blocks-K``, the
    number of clients ``clients``.

    Args:
        instance: the problem.
        schedules: schedules for it or results, or one.
        figure: where to draw; None: a new figure.
        names: one for each schedule; by default its method.
        title: first line; None: the instance, and the method if there is one.

    Returns:
        Two or three axes with one time axis.

    Raises:
        MissingDependencyError: matplotlib is missing.
    """
    require_instance(instance)
    several = as_schedules(schedules)
    has_memory = any(worker.memory is not None for worker in instance.workers)
    figure = figure_or_new(figure, _size(instance))
    axes = list(figure.subplots(2 + has_memory, 1, sharex=True, squeeze=False)[:, 0])
    end = max((schedule.makespan_ns for schedule in several), default=0)
    for k, schedule in enumerate(several):
        _draw(axes, instance, schedule, k, len(several) == 1)
    clients = sum(worker.clients for worker in instance.workers)
    mark_limit(axes[0], clients, f"{clients:,} clients", "clients")
    for ax, word in zip(axes, ("running requests", "waiting requests", "KV blocks (%)"),
                        strict=False):  # fmt: skip
        ax.set_ylabel(word)
        ax.grid(axis="y", alpha=0.3)
    title_above(axes[0], heading(instance, several) if title is None else title)
    time_axes(axes, end)
    if len(several) > 1:
        handles = [line for line in axes[0].patches if str(line.get_gid()).startswith("running")]
        legend_below(figure, handles, line_names(several, names))
    figure.align_ylabels(axes)
    return axes


def save_timeline(
    instance: Instance,
    schedules: Scheduled | Sequence[Scheduled],
    path: str | os.PathLike[str],
    *,
    names: Sequence[str] = (),
    title: str | None = None,
) -> None:
    """Write the picture of ``timeline_chart`` as PNG, SVG or PDF; equal input, equal bytes.

    Raises:
        InputError: the suffix is none of these, or the file cannot be written.
        MissingDependencyError: matplotlib is missing.
    """

    def draw(figure: Figure) -> None:
        timeline_chart(instance, schedules, figure, names=names, title=title)

    save_picture(draw, path, _size(instance))


def _size(instance: Instance) -> tuple[float, float]:
    rows = 3 if any(worker.memory is not None for worker in instance.workers) else 2
    return (10.0, rows * _HEIGHT + 0.8)


def _draw(
    axes: Sequence[Axes], instance: Instance, schedule: Schedule, k: int, alone: bool
) -> None:
    line = Timeline(instance, schedule)
    colours = (style.DECODE_COLOURS[0], style.STAGE_COLOUR, style.BULK_COLOURS[0])
    curves = load_curves(line)
    borders = borders_of(list(curves.values()), schedule.makespan_ns, COLUMNS)
    values = {name: means(curve, borders) for name, curve in curves.items()}
    if len(axes) > 2:
        owners, blocks = memory_by_owner(instance, schedule, line, borders)
        held = [found for name, found in owners if name != "cached"]
        values["blocks"] = 100 * np.sum([np.zeros(len(borders) - 1), *held], axis=0) / blocks
    for ax, (name, found), colour in zip(axes, values.items(), colours, strict=False):
        _steps(ax, found, borders, f"{name}-{k}", alone, colour, k)


def _steps(
    ax: Axes, values: NDArray[np.float64], borders: NDArray[np.float64], gid: str, alone: bool,
    colour: str, k: int,
) -> None:  # fmt: skip
    times = borders / NS_PER_S
    if alone:
        ax.stairs(values, times, fill=True, color=colour, linewidth=0, gid=gid)
    else:
        ax.stairs(values, times, baseline=None, linewidth=1.6, gid=gid, **style.line_look(k))
