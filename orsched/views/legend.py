"""The legend of the Gantt chart: what occurs in it, explained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.data.schedule import MIXED
from orsched.views import style
from orsched.views.pictures import fitting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend

    from orsched.data.schedule import Schedule
    from orsched.views.spans import ClientUse


def draw_legend(ax: Axes, schedule: Schedule, use: ClientUse, dense: bool) -> None:
    """Explain the colours below the axes, in two rows where one is too short."""
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.transforms import ScaledTranslation

    entries = _entries(schedule, use, dense)
    figure = ax.get_figure(root=True)
    assert figure is not None
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


def _bulk_entry(use: ClientUse, dense: bool) -> list[tuple[Any, str]]:
    """Explain the bars of bulk requests where others are not; images do not tell them apart."""
    from matplotlib.patches import Patch

    if use.bulk is None or dense:
        return []
    handles = tuple(
        Patch(facecolor=colour, edgecolor="white", lw=0, hatch=style.BULK_HATCH)
        for colour in style.BULK_COLOURS
    )
    return [(handles, "decode of a bulk request")]


def _entries(schedule: Schedule, use: ClientUse, dense: bool) -> list[tuple[Any, str]]:
    """Return handles and words; rare kinds of work are explained where they occur."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    colours = style.DECODE_COLOURS[:1] if dense else style.DECODE_COLOURS
    decode = "decode (shares of time)" if dense else "decode (one bar a request)"
    entries: list[tuple[Any, str]] = [
        (tuple(Patch(color=c, lw=0) for c in colours), decode),
        *_bulk_entry(use, dense),
        (Patch(color=style.PREFILL_COLOUR, lw=0), "own prefill"),
        (Patch(facecolor=style.STAGE_COLOUR, alpha=0.6, lw=0), "prefill stage"),
    ]
    if (schedule.steps.phase == MIXED).any():
        opacity = style.MIXED_OPACITY + 0.1
        entries.append((Patch(facecolor=style.STAGE_COLOUR, alpha=opacity, lw=0), "mixed step"))
    if len(use.paused):
        entries.append((Patch(color=style.PAUSED_COLOUR, lw=0), "paused"))
    if len(use.invalid):
        hatched = Patch(
            facecolor=style.INVALID_COLOUR, edgecolor="white", lw=0,
            hatch=None if dense else style.INVALID_HATCH,
        )  # fmt: skip
        entries.append((hatched, "invalid tokens"))
    if len(use.transfers) and not dense:
        entries.append((Patch(color=style.TRANSFER_COLOUR, lw=0), "cache on its way"))
    if len(use.restarts) and not dense:
        mark = Line2D([], [], color=style.RESTART_COLOUR, marker="D", markersize=4, lw=0)
        entries.append((mark, "restart"))
    entries.append((Patch(color=style.IDLE_COLOUR, lw=0), "bubble: no request"))
    entries.append((Line2D([], [], color=style.MAKESPAN_COLOUR, lw=1.2), "makespan"))
    if schedule.bound is not None:
        bound = Line2D([], [], color=style.BOUND_COLOUR, lw=1.8, ls=(0, (4, 1.5)))
        entries.append((bound, "lower bound"))
    return entries
