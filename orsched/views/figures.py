"""The figures that results draw of themselves, and that of a search over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError, known_names
from orsched.common.units import NS_PER_S
from orsched.data.schedule import Scheduled, served_instance
from orsched.solving.run_block import history_of
from orsched.views import style
from orsched.views.pictures import (
    as_schedules,
    figure_or_new,
    heading,
    legend_below,
    line_names,
    save_picture,
    title_above,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


HISTORY_SIZE = (8.0, 4.0)


def history_chart(
    instance: Instance,
    schedules: Scheduled | Sequence[Scheduled],
    figure: Figure | None = None,
    *,
    names: Sequence[str] = (),
    title: str | None = None,
) -> Axes:
    """Draw the objective's best value and bound over the time of the search.

    A value is a full line, its bound a dotted one of the same colour; both are steps, for what was
    known at a moment. They carry the ``gid`` ``value-K`` and ``bound-K``.

    Args:
        instance: the problem.
        schedules: as ``solve`` returned them, or from files that it wrote.
        figure: where to draw; None: a new figure.
        names: one for each schedule; by default its method.
        title: first line; None: the instance, and the method if there is one.

    Raises ``InputError`` if no schedule has a history, ``MissingDependencyError``: no matplotlib.
    """
    several = as_schedules(schedules)
    instance = served_instance(instance, several)
    histories = [history_of(schedule) for schedule in several]
    if not any(histories):
        raise InputError(
            "no schedule says how its search went",
            field="schedules",
            remedy="give results of solve, or files that it wrote",
        )
    words = line_names(several, names)
    ax = draw_history(histories, words, figure, 1 / NS_PER_S)
    ax.set_ylabel("objective (s)")
    title_above(ax, heading(instance, several) if title is None else title)
    return ax


def draw_history(
    histories: Sequence[Sequence[tuple[float, float | None, float | None]]],
    words: Sequence[str],
    figure: Figure | None = None,
    scale: float = 1.0,
) -> Axes:
    """Draw searches, each rows of seconds, value and bound, with their names below.

    The history of a ``MipResult`` is one, in the units of its model.
    """
    figure = figure_or_new(figure, HISTORY_SIZE)
    ax = figure.subplots()
    end = max((rows[-1][0] for rows in histories if rows), default=0.0)
    handles: list[Any] = []
    shown: list[str] = []
    for k, rows in enumerate(histories):
        colour = style.line_look(k)["color"]
        for place, (what, line) in enumerate((("value", "-"), ("bound", ":")), 1):
            points = [(row[0], row[place]) for row in rows if row[place] is not None]
            if not points:
                continue
            times = [*(at for at, _ in points), end]
            heights = [value * scale for _, value in points if value is not None]
            drawn = ax.step(times, [*heights, heights[-1]], line, where="post", color=colour)[0]
            drawn.set_gid(f"{what}-{k}")
            handles.append(drawn)
            shown.append(words[k] if what == "value" else f"{words[k]}, bound")
    ax.set_xlabel("time of the search (s)")
    ax.set_ylabel("objective")
    ax.set_xlim(left=0)
    ax.grid(axis="y", alpha=0.3)
    legend_below(figure, handles, shown)
    return ax


def save_history(
    instance: Instance,
    schedules: Scheduled | Sequence[Scheduled],
    path: str | os.PathLike[str],
    *,
    names: Sequence[str] = (),
    title: str | None = None,
) -> None:
    """Write the chart as PNG, SVG or PDF; equal input gives equal bytes."""
    save_picture(
        lambda figure: history_chart(instance, schedules, figure, names=names, title=title),
        path,
        HISTORY_SIZE,
    )


KINDS = ("gantt", "usage", "latency", "timeline", "history")
OF_SEVERAL = ("latency", "timeline", "history")
"""Kinds that show several schedules in one figure."""


def figure_of(
    instance: Instance | None, schedules: Sequence[Schedule], kind: str, options: dict[str, Any]
) -> Figure:
    """Return a new figure of one kind, of a result or of several; ``options`` are of what draws it.

    In a notebook that shows pictures below cells pyplot lets go of it: as the value of a cell the
    figure would be shown twice. Raises ``InputError`` for another kind, or without an instance.
    """
    from orsched.views.gantt import gantt
    from orsched.views.latency import latency
    from orsched.views.over_time import timeline_chart, usage

    several = len(schedules) > 1
    known = OF_SEVERAL if several else KINDS
    if kind not in known:
        raise InputError(
            f"{kind!r} is not a picture{' of several schedules' * several}",
            field="kind",
            remedy=known_names(kind, known, "known: "),
        )
    if instance is None:
        raise InputError(
            "the result has lost its instance", field="instance", remedy="solve it again"
        )
    if kind == "history":
        return _of(history_chart(instance, schedules, **options))
    if kind in OF_SEVERAL:
        draw = latency if kind == "latency" else timeline_chart
        return _of(draw(instance, schedules, **options)[0])
    if kind == "usage":
        return _of(usage(instance, schedules[0], **options)[0])
    return _of(gantt(instance, schedules[0], **options))


def _of(axes: Any) -> Figure:
    from matplotlib import pyplot

    figure: Figure = axes.get_figure()
    if pyplot.get_backend().endswith("inline"):
        pyplot.close(figure)
    return figure
