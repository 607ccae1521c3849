"""A plane of two objectives: schedules, the frontier between them, and the proven bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from orsched.views import style
from orsched.views.pictures import figure_or_new, legend_above, save_picture, title_above

if TYPE_CHECKING:
    import os

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from orsched.planning.frontier_points import Frontier
    from orsched.solving.objectives import Objective

SIZE = (8.0, 5.5)
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
    """
    ax: Axes = figure_or_new(figure, SIZE).subplots()
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
    """Write ``frontier_chart`` as PNG, SVG or PDF; raises ``InputError`` for another suffix."""
    save_picture(lambda figure: frontier_chart(found, figure, title=title), path, SIZE)


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
