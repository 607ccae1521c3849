"""Charts over time with matplotlib: use of clients and memory, requests, what classes get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError
from orsched.common.units import NS_PER_S
from orsched.data.schedule import as_schedule, served_instance
from orsched.metrics.timeline import Timeline
from orsched.views import style
from orsched.views.curves import (
    class_panels,
    client_limit,
    has_class_curves,
    load_panels,
    usage_panels,
)
from orsched.views.pictures import (
    as_schedules,
    figure_or_new,
    heading,
    legend_above,
    legend_below,
    line_names,
    mark_limit,
    require_matplotlib,
    save_picture,
    time_axes,
    title_above,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from orsched.data.instance import Instance
    from orsched.data.schedule import Scheduled
    from orsched.views.curves import Panel

USAGE_SIZE, CLASSES_SIZE = (10.0, 4.6), (10.0, 6.6)
"""Width and height in inches."""

_ROW_HEIGHT = 2.0
_DASHES = dict(zip(style.DASHES, ("-", "--", "-.", ":"), strict=True))


def usage(
    instance: Instance,
    schedule: Scheduled,
    figure: Figure | None = None,
    *,
    title: str | None = None,
) -> list[Axes]:
    """Draw the clients by use, stacked, and below them the KV blocks of each worker, over time.

    The upper axes show busy clients (prefill, decode), clients with invalid tokens, and those
    whose request is paused, up to the number of clients. If a worker has a memory model, the lower
    axes show the blocks held and all blocks: one line per worker, or their sum above
    ``curves.MAX_WORKERS``. Areas carry the ``gid`` of their use, lines that of their worker.

    Args:
        instance: the problem.
        schedule: a schedule for it, or a result.
        figure: where to draw; None: a new figure.
        title: first line; None: instance, method and information.

    Returns one or two axes; raises ``MissingDependencyError`` if matplotlib is missing.

    >>> case = orsched.load("gate")
    >>> len(orsched.usage(case, orsched.solve(case, "fcfs")))
    1
    """
    figure = figure_or_new(figure, USAGE_SIZE)
    schedule = as_schedule(schedule)
    instance = served_instance(instance, [schedule])
    panels = usage_panels(Timeline(instance, schedule))
    title = heading(instance, [schedule]) if title is None else title
    return _draw_panels(figure, panels, title, schedule.makespan_ns)


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

    >>> case = orsched.load("gate")
    >>> orsched.save_usage(case, orsched.solve(case, "fcfs"), "usage.svg")
    """
    save_picture(lambda figure: usage(instance, schedule, figure, title=title), path, USAGE_SIZE)


def classes(
    instance: Instance,
    schedule: Scheduled,
    figure: Figure | None = None,
    *,
    title: str | None = None,
) -> list[Axes]:
    """Draw what classes and tenants get over time, one row a figure on one time axis.

    From the top: the share of tokens in time of classes with limits, and of prompt tokens found in
    prefix caches; blocks of memory by owner, stacked, below the blocks there are; tokens of bulk
    requests per second; weighted tokens of each tenant so far. A row is left out where there
    is nothing to show. Lines and areas carry the ``gid`` ``attainment``, ``hits``, ``owner-NAME``,
    ``bulk`` and ``tenant-PLACE``.

    Args:
        instance: the problem; it names classes, or has tenants.
        schedule: a complete schedule for it.
        figure: where to draw; None: a new figure.
        title: first line; None: instance, method and information.

    Raises:
        InputError: the instance has neither classes nor tenants.
        MissingDependencyError: matplotlib is missing.
    """
    require_matplotlib()
    require_classes(instance)
    schedule = as_schedule(schedule)
    figure = figure_or_new(figure, CLASSES_SIZE)
    panels = class_panels(Timeline(instance, schedule))
    title = heading(instance, [schedule]) if title is None else title
    return _draw_panels(figure, panels, title, max(schedule.makespan_ns, 1))


def save_classes(
    instance: Instance,
    schedule: Scheduled,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
) -> None:
    """Write the picture of ``classes`` as PNG, SVG or PDF, by suffix; equal input, equal bytes.

    Raises:
        InputError: another suffix, neither classes nor tenants, or the file cannot be written.
        MissingDependencyError: matplotlib is missing.
    """
    require_classes(instance)
    save_picture(
        lambda figure: classes(instance, schedule, figure, title=title), path, CLASSES_SIZE
    )


def require_classes(instance: Instance) -> None:
    """Raise ``InputError`` unless an instance names classes or tenants."""
    if not has_class_curves(instance):
        raise InputError(
            "the instance has neither classes with limits nor tenants",
            field="classes",
            remedy="add some: orsched convert INSTANCE TARGET --class interactive:ttft=1,tpot=0.05",
        )


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

    Returns two or three axes with one time axis; raises ``MissingDependencyError`` if matplotlib is
    missing.

    >>> case = orsched.load("gate")
    >>> len(orsched.timeline_chart(case, orsched.solve(case, "fcfs")))
    2
    """
    several = as_schedules(schedules)
    instance = served_instance(instance, several)
    size = _timeline_size(instance)
    figure = figure_or_new(figure, size)
    rows = round(size[1] / _ROW_HEIGHT)
    axes = list(figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])
    for k, schedule in enumerate(several):
        look = style.line_look(k) if len(several) > 1 else None
        for ax, panel in zip(axes, load_panels(Timeline(instance, schedule)), strict=True):
            _draw_load(ax, panel, k, look)
    limit = client_limit(instance)
    mark_limit(axes[0], limit.value, limit.words, limit.key)
    for ax in axes:
        ax.grid(axis="y", alpha=0.3)
    title_above(axes[0], heading(instance, several) if title is None else title)
    time_axes(axes, max((schedule.makespan_ns for schedule in several), default=0))
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

    >>> case = orsched.load("gate")
    >>> orsched.save_timeline(case, orsched.solve(case, "fcfs"), "timeline.svg")
    """
    save_picture(
        lambda figure: timeline_chart(instance, schedules, figure, names=names, title=title),
        path,
        _timeline_size(instance),
    )


def _timeline_size(instance: Instance) -> tuple[float, float]:
    rows = 3 if any(worker.memory is not None for worker in instance.workers) else 2
    return (10.0, rows * _ROW_HEIGHT + 0.8)


def _draw_load(ax: Axes, panel: Panel, k: int, look: dict[str, Any] | None) -> None:
    """Draw a panel of schedule ``k``: an area, or a line among those of others."""
    (line,) = panel.lines
    times, gid = panel.borders_ns / NS_PER_S, f"{line.key}-{k}"
    if look is None:
        ax.stairs(line.values, times, fill=True, color=line.colour, linewidth=0, gid=gid)
    else:
        ax.stairs(line.values, times, baseline=None, linewidth=1.6, gid=gid, **look)
    ax.set_ylabel(panel.title)


def _draw_panels(figure: Figure, panels: Sequence[Panel], title: str, end_ns: int) -> list[Axes]:
    axes = list(figure.subplots(max(len(panels), 1), 1, sharex=True, squeeze=False)[:, 0])
    for ax, panel in zip(axes, panels, strict=False):
        _draw_panel(ax, panel)
    legends = [legend_above(ax) for ax in axes]
    title_above(axes[0], title, legends[0])
    time_axes(axes, end_ns)
    return axes


def _draw_panel(ax: Axes, panel: Panel) -> None:
    times, floor = panel.borders_ns / NS_PER_S, np.zeros(len(panel.borders_ns) - 1)
    for line in panel.lines:
        look: dict[str, Any] = {"label": line.words, "gid": line.key}
        if line.form == "area":
            top = floor + line.values
            if line.hatched:
                look |= {"hatch": style.BULK_HATCH, "facecolor": line.colour, "edgecolor": "white"}
            else:
                look["color"] = line.colour
            ax.stairs(top, times, baseline=floor, fill=True, linewidth=0, **look)
            floor = top
            continue
        look |= {"color": line.colour, "lw": line.width, "ls": _DASHES[line.dash]}
        if line.form == "sum":
            ax.plot(times, np.concatenate([[0], line.values]), **look)
        else:
            ax.stairs(line.values, times, baseline=None, **look)
    alike = len({limit.value for limit in panel.limits}) == 1
    for limit in panel.limits:
        colour = "black" if alike or limit.colour is None else limit.colour
        mark_limit(ax, limit.value, limit.words, limit.key, colour)
    if panel.is_share:
        ax.set_ylim(0, 103)
    ax.set_ylabel(f"{panel.title}\n({panel.unit})" if panel.unit else panel.title)
