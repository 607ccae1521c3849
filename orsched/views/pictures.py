"""What all pictures share: files with equal bytes, titles, time axes, legends that fit."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError, unavailable
from orsched.common.scalars import require_suffix
from orsched.common.units import NS_PER_S
from orsched.data.schedule import as_schedule
from orsched.data.schedule_classes import FEATURES
from orsched.solving.run_block import Verdict
from orsched.views.style import MOST_OF_DATA, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.text import Text

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


LOG_FROM = 30.0
"""An axis is logarithmic where the largest value is more than so many times the smallest."""


def wants_log(values: Iterable[float]) -> bool:
    """Return whether an axis of some values is to be logarithmic: all positive, and far apart."""
    known = np.array([value for value in values if value is not None and np.isfinite(value)])
    return bool(len(known) and known.min() > 0 and known.max() > LOG_FROM * known.min())


def scale_axis(ax: Any, which: str, values: Iterable[float]) -> bool:
    """Make the axis ``x`` or ``y`` logarithmic if its values want it, numbers written in full."""
    if not wants_log(values):
        return False
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    getattr(ax, f"set_{which}scale")("log")
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(LogLocator(10, subs=(1.0,), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    low, high = (getattr(np, name)([v for v in values if v is not None]) for name in ("min", "max"))
    if np.log10(high / low) > 3:
        axis.set_minor_formatter(NullFormatter())
    else:  # too few powers of ten to read the axis by
        axis.set_minor_locator(LogLocator(10, subs=(2.0, 5.0), numticks=12))
        axis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    return True


FORMATS = (".png", ".svg", ".pdf")
DPI = 150
_TITLE_LETTERS = 100
_LEGEND_ROW = 15
"""Points that a row of a legend above axes takes."""


def require_matplotlib() -> None:
    """Raise ``MissingDependencyError`` if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise unavailable(error, "pictures need matplotlib: pip install matplotlib") from None


def save_picture(
    draw: Callable[[Figure], object],
    path: str | os.PathLike[str],
    size: tuple[float, float] | None = None,
) -> None:
    """Write what a function draws on a figure as PNG, SVG or PDF; equal input, equal bytes.

    With a ``size`` in inches axes are laid out so that nothing is cut off; without one the
    function sets the size and places its axes. Raises ``InputError`` for another suffix or where
    the file cannot be written, ``MissingDependencyError`` without matplotlib.
    """
    from orsched.files.document import opened

    name = os.fspath(path)
    suffix = require_suffix(name, FORMATS)
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    # The user's settings must not change the bytes; text stays text in SVG and PDF.
    fixed: Any = {"svg.hashsalt": "orsched", "svg.fonttype": "none", "pdf.fonttype": 42}
    metadata: Any = {
        ".png": {"Software": "orsched"},
        ".svg": {"Creator": "orsched", "Date": None},
        ".pdf": {"Creator": "orsched", "Producer": "orsched", "CreationDate": None},
    }[suffix]
    with (
        matplotlib.rc_context({**matplotlib.rcParamsDefault, **fixed, "backend": "Agg"}),
        warnings.catch_warnings(),
    ):
        # A name in a script that the font lacks is drawn as boxes, and no reason to warn.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        # Of the resolution of the file, so that words are measured as they are drawn.
        figure = Figure(size, dpi=DPI)
        if size is not None:
            figure.set_layout_engine("constrained")
        draw(figure)
        with opened(path, binary=True) as stream:
            figure.savefig(stream, format=suffix[1:], dpi=DPI, metadata=metadata)


def figure_or_new(figure: Figure | None, size: tuple[float, float]) -> Figure:
    """Return a figure, or a new one of pyplot with a size in inches; needs matplotlib."""
    require_matplotlib()
    if figure is not None:
        return figure
    from matplotlib import pyplot

    return pyplot.figure(figsize=size, layout="constrained")


def heading(instance: Instance, schedules: Sequence[Schedule]) -> str:
    """Return the default title: instance, and method and information of a single schedule."""
    if len(schedules) != 1:
        return f"{instance.name}, {len(schedules)} methods"
    (schedule,) = schedules
    return f"{instance.name}, {schedule.method} (information: {schedule.information})"


def line_names(schedules: Sequence[Schedule], names: Sequence[str] = ()) -> list[str]:
    """Return the words of lines: the names, else methods, with information where equal."""
    if len(names) == len(schedules):
        words = list(names)
    else:
        methods = [schedule.method for schedule in schedules]
        words = [
            name if methods.count(name) == 1 else f"{name} ({schedule.information})"
            for name, schedule in zip(methods, schedules, strict=True)
        ]
    # A name that begins with an underscore would be left out.
    return [shortened(word, 40).lstrip("_") or "?" for word in words]


def time_axes(axes: Sequence[Axes], end_ns: int) -> None:
    """Finish axes below each other that share the time axis: each from 0, the last one named."""
    axes[-1].set_xlabel("time (s)", loc="right")
    axes[-1].set_xlim(0, end_ns / NS_PER_S or 1)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_ylim(bottom=0)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")


def title_above(ax: Axes, text: str, legend: Legend | None = None) -> None:
    """Write the title of a picture over its first axes, above their legend."""
    rows = 0 if legend is None else -(-len(legend.get_texts()) // max(1, legend._ncols))  # type: ignore[attr-defined]
    words = ax.set_title(
        shortened(text, _TITLE_LETTERS), loc="left", fontweight="bold",
        pad=6 + _LEGEND_ROW * rows, parse_math=False,
    )  # fmt: skip
    figure = ax.get_figure(root=True)
    assert figure is not None
    fit(words, 0.9 * figure.get_figwidth())


def fit(text: Text, inches: float) -> None:
    """Make the letters of a text smaller until it is as wide as that at most."""
    figure = text.get_figure(root=True)
    assert figure is not None
    renderer = figure._get_renderer()  # type: ignore[attr-defined]
    for _ in range(8):  # the width of letters goes in steps of pixels, not with their size
        width = text.get_window_extent(renderer).width / figure.dpi
        if width <= inches:
            return
        text.set_fontsize(0.99 * float(text.get_fontsize()) * inches / width)


def legend_above(ax: Axes) -> Legend | None:
    """Explain what axes show above them, in as many rows as it takes; None without anything."""
    handles, words = ax.get_legend_handles_labels()
    figure = ax.get_figure(root=True)
    assert figure is not None

    def draw(columns: int) -> Legend:
        return ax.legend(
            handles, words, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, frameon=False,
            fontsize=8.5, handlelength=1.6, borderaxespad=0.2,
        )  # fmt: skip

    # Axes are not laid out yet; beside them stand the numbers of their own axis.
    return fitting(draw, len(handles), 0.9 * figure.get_figwidth() * figure.dpi)


def legend_below(figure: Figure, handles: Iterable[Any], words: Iterable[str]) -> Legend | None:
    """Explain lines below all axes of a figure, in as many rows as it takes."""
    from matplotlib.legend_handler import HandlerTuple

    marks, names = list(handles), list(words)
    beside: Any = {tuple: HandlerTuple(ndivide=None, pad=0)}

    def draw(columns: int) -> Legend:
        return figure.legend(
            marks, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=10,
            handler_map=beside,
        )  # fmt: skip

    return fitting(draw, len(marks), figure.get_figwidth() * figure.dpi)


def fitting(draw: Callable[[int], Legend], entries: int, room: float) -> Legend | None:
    """Return a legend in one row, or else with as many columns as certainly fit; None if empty.

    ``draw`` makes it with a number of columns; its words are not read as formulas.
    """
    if entries == 0:
        return None
    legend = _plain(draw(entries))
    if entries == 1 or _width(legend) <= room:
        return legend
    legend.remove()
    single = _plain(draw(1))  # as wide as the widest entry
    columns = max(1, int(room / _width(single)))
    if columns == 1:
        return single
    single.remove()
    return _plain(draw(columns))


def _plain(legend: Legend) -> Legend:
    for text in legend.get_texts():
        text.set_parse_math(False)
    return legend


def _width(legend: Legend) -> float:
    figure = legend.get_figure(root=True)
    assert figure is not None
    renderer = figure._get_renderer()  # type: ignore[attr-defined]
    return float(legend.get_window_extent(renderer).width)


def mark_limit(
    ax: Axes, value: float, word: str, gid: str, colour: str = "black", top: float | None = None
) -> None:
    """Draw a limit as a dotted line; one far above the data is at the border with its value.

    There it would flatten everything else. Without a word there is the line alone. Call it after
    the data are drawn; ``top`` is the largest value of axes that share a scale.
    """
    if top is None:
        top = float(ax.dataLim.y1) if ax.has_data() else 0.0
    near = 0 < value <= MOST_OF_DATA * top or not top > 0
    if near:
        ax.axhline(value, color=colour, lw=1, ls=":", gid=gid)
        room = 1.16 if ax.get_yscale() == "linear" else 1.5  # for the words above the line
        ax.set_ylim(top=room * max(top, value))
    if not word:
        return
    place, text = ((1, value), word) if near else ((1, 1), f"{word} ↑")
    ax.annotate(
        text, place, (-2, 2 if near else -2), textcoords="offset points", ha="right",
        xycoords=("axes fraction", "data") if near else "axes fraction", color=colour,
        va="bottom" if near else "top", fontsize=8.5, gid=f"{gid}-word",
    )  # fmt: skip


def as_schedules(value: object) -> list[Schedule]:
    """Return schedules of one or of several schedules or results; errors name the row."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes)):
        return [as_schedule(value, "schedules")]
    several: Iterable[object] = value
    found = []
    for row, each in enumerate(several):
        try:
            found.append(as_schedule(each, "schedules"))
        except InputError as error:
            raise error.located(row=row) from None
    return found


def verdict_of(schedule: Schedule) -> Verdict | None:
    """Return the verdict of a schedule, or None where its file has none that can be read."""
    found = schedule.run.get("verdict")
    if not isinstance(found, dict):
        return None
    objective, status, certified, termination, features = map(found.get, Verdict._fields)
    texts = all(isinstance(value, str) for value in (objective, status, termination))
    if not texts or status not in ("optimal", "feasible") or not isinstance(certified, bool):
        return None
    if not isinstance(features, list) or not all(each in list(FEATURES) for each in features):
        features = None
    return Verdict(str(objective), str(status), certified, str(termination), features)
