"""A search over time: the best value so far falls, the bound rises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from orsched.common.errors import InputError
from orsched.common.units import NS_PER_S
from orsched.data.schedule import Scheduled, as_schedules, served_instance
from orsched.solving.run_block import history_of
from orsched.views import style
from orsched.views.pictures import (
    figure_or_new,
    heading,
    legend_above,
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
    from orsched.planning.frontiers import Frontier
    from orsched.solving.objectives import Objective


FRONTIER_SIZE = (8.0, 5.5)
_SEARCH, _METHOD, _REST = style.DECODE_COLOURS[0], style.STAGE_COLOUR, "#888888"


def frontier_chart(
    found: Frontier, figure: Figure | None = None, *, title: str | None = None
) -> list[Axes]:
    """Draw the points of a frontier, those that nothing dominates joined by steps.

    A corner of the steps says what can be had of one objective without giving up the other. Dashed
    lines are proven bounds: no schedule of the kinds that are shown lies beyond. Elements carry the
    ``gid`` ``frontier``, ``point-K``, ``bound-first`` and ``bound-second``.

    Args:
        found: what ``orsched.frontier`` returned.
        figure: where to draw; None: a new figure.
        title: first line; None: the instance and the objectives.

    Raises ``MissingDependencyError`` if matplotlib is missing.

    >>> case = orsched.load("gate")
    >>> found = orsched.frontier(case, second="ttft_mean", points=2, methods="fcfs")
    >>> axes = orsched.frontier_chart(found)
    """
    ax: Axes = figure_or_new(figure, FRONTIER_SIZE).subplots()
    _steps(ax, found)
    for place, point in enumerate(found):
        searched = point.share is not None
        ax.plot(
            [point.first], [point.second],
            marker="o" if searched else "s", linestyle="none", gid=f"point-{place}",
            color=(_SEARCH if searched else _METHOD) if point.efficient else _REST,
            markersize=7 if point.efficient else 5, zorder=3,
        )  # fmt: skip
        if not searched:
            ax.annotate(
                style.one_line(point.label), (point.first, point.second), fontsize=8,
                xytext=(6, 4), textcoords="offset points", parse_math=False,
            )  # fmt: skip
    _bounds(ax, found)
    for marker, colour, text in (
        ("o", _SEARCH, "search for a weighted sum"), ("s", _METHOD, "method"),
        ("o", _REST, "dominated"),
    ):  # fmt: skip
        ax.plot([], [], marker=marker, color=colour, linestyle="none", label=text)
    ax.set_xlabel(_axis(found.first))
    ax.set_ylabel(_axis(found.second))
    ax.spines[["top", "right"]].set_visible(False)
    legend = legend_above(ax)
    words = f"{found.instance.name}: {found.first.name} against {found.second.name}"
    title_above(ax, words if title is None else title, legend)
    return [ax]


def save_frontier(
    found: Frontier, path: str | os.PathLike[str], *, title: str | None = None
) -> None:
    """Write ``frontier_chart`` as PNG, SVG or PDF; raises ``InputError`` for another suffix.

    >>> case = orsched.load("gate")
    >>> found = orsched.frontier(case, second="ttft_mean", points=2, methods="fcfs")
    >>> orsched.save_frontier(found, "frontier.svg")
    """
    save_picture(lambda figure: frontier_chart(found, figure, title=title), path, FRONTIER_SIZE)


def _steps(ax: Axes, found: Frontier) -> None:
    """Draw the border of what the efficient points dominate."""
    points = sorted((point.first, point.second) for point in found.efficient)
    if points:
        where: Literal["pre", "post"] = "pre" if found.first.largest else "post"
        ax.step(
            [x for x, _ in points], [y for _, y in points], where=where, gid="frontier",
            color=_SEARCH, linewidth=1, alpha=0.6, label="frontier",
        )  # fmt: skip


def _bounds(ax: Axes, found: Frontier) -> None:
    look = {"color": style.BOUND_COLOUR, "linestyle": "--", "linewidth": 1}
    if found.first_bound is not None:
        ax.axvline(found.first_bound, gid="bound-first", label="proven bounds", **look)  # type: ignore[arg-type]
    if found.second_bound is not None:
        label = "proven bounds" if found.first_bound is None else None
        ax.axhline(found.second_bound, gid="bound-second", label=label, **look)  # type: ignore[arg-type]


def _axis(aim: Objective) -> str:
    return f"{aim.name} (s)" if aim.is_time else aim.name


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
