"""Attainment, memory by owner, hits, bulk tokens and service over time, drawn with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.common.errors import InputError
from orsched.common.units import NS_PER_S
from orsched.views import style
from orsched.views.class_curves import class_curves, has_class_curves
from orsched.views.pictures import (
    figure_or_new,
    heading,
    legend_above,
    mark_limit,
    require_matplotlib,
    save_picture,
    shortened,
    time_axes,
    title_above,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.views.class_curves import ClassCurves

SIZE = (10.0, 6.6)
"""Width and height in inches."""

_MARKERS = ("-", "--", "-.", ":")


def classes(
    instance: Instance,
    schedule: Schedule,
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
    figure = figure_or_new(figure, SIZE)
    curves = class_curves(instance, schedule)
    rows = [draw for draw, there in _rows(curves) if there]
    axes = list(figure.subplots(max(len(rows), 1), 1, sharex=True, squeeze=False)[:, 0])
    for ax, draw in zip(axes, rows, strict=False):
        draw(ax, curves)
    legends = [legend_above(ax) for ax in axes]
    title_above(axes[0], heading(instance, [schedule]) if title is None else title, legends[0])
    time_axes(axes, int(curves.borders_ns[-1]))
    return axes


def save_classes(
    instance: Instance,
    schedule: Schedule,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
) -> None:
    """Write the picture of ``classes`` as PNG, SVG or PDF, by suffix; equal input, equal bytes.

    Raises:
        InputError: the suffix is none of these, the instance has neither classes nor tenants, or
            the file cannot be written.
        MissingDependencyError: matplotlib is missing.
    """
    require_classes(instance)

    def draw(figure: Figure) -> None:
        classes(instance, schedule, figure, title=title)

    save_picture(draw, path, SIZE)


def require_classes(instance: Instance) -> None:
    """Raise ``InputError`` unless an instance names classes or tenants."""
    if not has_class_curves(instance):
        raise InputError(
            "the instance has neither classes with limits nor tenants",
            field="classes",
            remedy="add some: orsched convert INSTANCE TARGET --class interactive:ttft=1,tpot=0.05",
        )


def _rows(curves: ClassCurves) -> list[tuple[Callable[[Axes, ClassCurves], None], bool]]:
    shares = curves.attainment is not None or curves.hits is not None
    return [
        (_draw_shares, shares),
        (_draw_owners, bool(curves.owners)),
        (_draw_bulk, curves.bulk is not None),
        (_draw_service, bool(curves.service)),
    ]


def _steps(ax: Axes, curves: ClassCurves, values: NDArray[np.float64], **look: object) -> None:
    borders = curves.borders_ns / NS_PER_S
    ax.stairs(values, borders, baseline=None, **look)  # type: ignore[arg-type]


def _draw_shares(ax: Axes, curves: ClassCurves) -> None:
    if curves.attainment is not None:
        _steps(ax, curves, 100 * curves.attainment, color=style.DECODE_COLOURS[0], lw=1.6,
               label="tokens in time", gid="attainment")  # fmt: skip
    if curves.hits is not None:
        _steps(ax, curves, 100 * curves.hits, color=style.STAGE_COLOUR, lw=1.6, ls="--",
               label="prompt tokens found in the cache", gid="hits")  # fmt: skip
    ax.set_ylim(0, 103)
    ax.set_ylabel("share (%)")


def _draw_owners(ax: Axes, curves: ClassCurves) -> None:
    borders, floor = curves.borders_ns / NS_PER_S, np.zeros(len(curves.borders_ns) - 1)
    for name, values in curves.owners:
        word, colour = style.OWNERS[name]
        hatch = style.BULK_HATCH if name == "bulk" else None
        ax.stairs(
            floor + values, borders, baseline=floor, fill=True, facecolor=colour, label=word,
            gid=f"owner-{name}", linewidth=0, hatch=hatch, edgecolor="white",
        )  # fmt: skip
        floor = floor + values
    mark_limit(ax, curves.blocks, f"{curves.blocks:,} blocks", "blocks")
    ax.set_ylabel("KV blocks")


def _draw_bulk(ax: Axes, curves: ClassCurves) -> None:
    assert curves.bulk is not None
    _steps(ax, curves, curves.bulk, color=style.BULK_COLOURS[0], lw=1.6, gid="bulk",
           label="bulk tokens, prefilled and decoded")  # fmt: skip
    ax.set_ylabel("tokens/s")


def _draw_service(ax: Axes, curves: ClassCurves) -> None:
    ends = curves.borders_ns / NS_PER_S
    for k, (name, values) in enumerate(curves.service[: len(style.WORKER_COLOURS)]):
        word = shortened(name, 24)
        ax.plot(
            ends, np.concatenate([[0], values]), color=style.WORKER_COLOURS[k], lw=1.4,
            ls=_MARKERS[k % len(_MARKERS)], label=f"tenant {word}", gid=f"tenant-{k}",
        )  # fmt: skip
    ax.set_ylabel("service\n(weighted tokens)")
