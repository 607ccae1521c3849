"""Distributions of TTFT, TPOT and JCT of several schedules, and attainment over the limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.units import NS_PER_S
from orsched.data.schedule import Schedule, Scheduled, served_instance
from orsched.views import style
from orsched.views.latency_curves import (
    MEASURES,
    ecdf,
    has_limits,
    latencies,
    limits_of,
    needed_multiples,
)
from orsched.views.pictures import (
    as_schedules,
    figure_or_new,
    fit,
    heading,
    legend_below,
    line_names,
    save_picture,
    scale_axis,
    wants_log,
)
from orsched.views.style import MOST_OF_DATA, shortened

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from orsched.data.instance import Instance
    from orsched.metrics.summary import SLO
    from orsched.views.latency_curves import Latencies, Limit

_MULTIPLES = (0.125, 8.0)
"""The attainment is shown from an eighth of the limits to eight times them."""


def latency(
    instance: Instance,
    schedules: Scheduled | Sequence[Scheduled],
    figure: Figure | None = None,
    *,
    names: Sequence[str] = (),
    slo: SLO | None = None,
    title: str | None = None,
) -> list[Axes]:
    """Draw how TTFT, TPOT and JCT are distributed, one line a schedule.

    A point (x, y) of a line says that y per cent of the requests have x seconds at most; grey lines
    mark p50 and p99. With limits (``slo``, those that the first schedule was judged by, or those of
    the instance's classes) one more panel shows the attainment over multiples of all of them: were
    they half or twice as long. An axis is logarithmic where its largest value is over 30 times its
    smallest. Lines carry the ``gid`` ``ttft-K``, ``tpot-K``, ``jct-K`` and ``attainment-K``.

    Args:
        instance: the problem.
        schedules: complete schedules for it or results, or one.
        figure: where to draw; None: a new figure.
        names: one for each schedule; by default its method.
        slo: limits on TTFT and TPOT.
        title: first line; None: the instance, and the method if there is one.

    Raises:
        InputError: a schedule is a run that was stopped.
        MissingDependencyError: matplotlib is missing.

    >>> case = orsched.load("gate")
    >>> [axes.get_xlabel() for axes in orsched.latency(case, orsched.solve(case, "fcfs"))]
    ['TTFT (s)', 'TPOT (s)', 'JCT (s)']
    """
    several = as_schedules(schedules)
    instance = served_instance(instance, several)
    limit = _limit_of(instance, several, slo)
    found = [latencies(instance, schedule) for schedule in several]
    needs = [needed_multiples(instance, each, limit) for each in found]
    judged = any(len(need) for need in needs) and has_limits(instance, limit)
    figure = figure_or_new(figure, _size(judged))
    shape = (2, 2) if judged else (1, 3)
    axes: list[Axes] = list(figure.subplots(*shape, squeeze=False).ravel())
    for ax, name in zip(axes, MEASURES, strict=False):
        _draw_latency(ax, name, found, limit)
    if judged:
        _draw_attainment(axes[-1], needs, limit)
    for ax in axes:
        _finish(ax)
    words = figure.suptitle(
        shortened(heading(instance, several) if title is None else title, 100), x=0.01, ha="left",
        fontweight="bold", parse_math=False,
    )  # fmt: skip
    fit(words, 0.97 * figure.get_figwidth())
    if len(several) > 1:
        legend_below(figure, axes[0].lines[: len(several)], line_names(several, names))
    return axes


def save_latency(
    instance: Instance,
    schedules: Scheduled | Sequence[Scheduled],
    path: str | os.PathLike[str],
    *,
    names: Sequence[str] = (),
    slo: SLO | None = None,
    title: str | None = None,
) -> None:
    """Write the picture of ``latency`` as PNG, SVG or PDF, by suffix; equal input, equal bytes.

    Raises:
        InputError: another suffix, a run that was stopped, or the file cannot be written.
        MissingDependencyError: matplotlib is missing.

    >>> case = orsched.load("gate")
    >>> orsched.save_latency(case, orsched.solve(case, "fcfs"), "latency.svg")
    """
    several = as_schedules(schedules)
    instance = served_instance(instance, several)
    save_picture(
        lambda figure: latency(instance, several, figure, names=names, slo=slo, title=title),
        path,
        _size(has_limits(instance, _limit_of(instance, several, slo))),
    )


def _limit_of(instance: Instance, several: Sequence[Schedule], slo: SLO | None) -> Limit | None:
    given = None if slo is None or slo.limits_ns == (None, None) else slo.limits_ns
    return limits_of(instance, several[0], given) if several else given


def _size(judged: bool) -> tuple[float, float]:
    return (10.0, 6.6) if judged else (10.0, 3.8)


def _draw_latency(ax: Axes, name: str, found: Sequence[Latencies], limit: Limit | None) -> None:
    curves = [ecdf(each.of(name)) for each in found]
    values = [each.value / NS_PER_S for each in curves]
    shown = np.concatenate([[], *values])
    end = float(shown.max(initial=0.0))
    for k, (value, curve) in enumerate(zip(values, curves, strict=True)):
        _steps(ax, value, curve.share, end, f"{name}-{k}", **style.line_look(k))
    scale_axis(ax, "x", shown)
    if not wants_log(shown):
        ax.set_xlim(left=0)
    allowed = None if limit is None or name == "jct" else limit[("ttft", "tpot").index(name)]
    if allowed is not None:
        _mark(ax, allowed / NS_PER_S, f"limit {style.short(allowed / NS_PER_S)} s")
    ax.set_xlabel(f"{name.upper()} (s)")
    if ax.get_subplotspec().is_first_col():  # type: ignore[union-attr]
        ax.set_ylabel("requests (%)")


def _draw_attainment(ax: Axes, needs: Sequence[NDArray[np.float64]], limit: Limit | None) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = _MULTIPLES
    for k, need in enumerate(needs):
        look = style.line_look(k)
        curve = ecdf(need)
        shown = curve.value < high
        value, share = np.maximum(curve.value[shown], low), curve.share[shown]
        if len(value) == 0:
            value, share = np.array([high]), np.zeros(1)
        _steps(ax, value, share, high, f"attainment-{k}", **look)
        here = float((need <= 1).mean()) if len(need) else 0.0
        ax.plot([1], [100 * here], "o", color=look["color"], markersize=5, gid=f"attained-{k}")
    ax.set_xscale("log", base=2)
    ax.set_xlim(low, high)
    ax.xaxis.set_major_locator(FixedLocator([low * 2**k for k in range(7)]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _mark(ax, 1.0, "the limits" if limit is not None else "the classes' limits")
    ax.set_xlabel("multiple of the limits")
    ax.set_ylabel("requests within them (%)")


def _steps(
    ax: Axes, value: NDArray[np.float64], share: NDArray[np.float64], end: float, gid: str,
    **look: Any,
) -> None:  # fmt: skip
    """Draw a distribution from 0 to its last share, which holds up to ``end``."""
    x = np.concatenate([value[:1], value, [end] if len(value) else []])
    y = 100 * np.concatenate([np.zeros(len(value[:1])), share, share[-1:]])
    ax.plot(x, y, drawstyle="steps-post", linewidth=1.8, gid=gid, **look)


def _mark(ax: Axes, at: float, word: str) -> None:
    """Draw a limit with its words beside it, at the foot of the axes.

    One far outside of the data is drawn at the border with its value: it would flatten the curves.
    """
    low, high = ax.get_xlim()
    if high < at <= MOST_OF_DATA * high:
        high = 1.05 * at
        ax.set_xlim(low, high)
    inside = low <= at <= high
    place = float(ax.transAxes.inverted().transform(ax.transData.transform((at, 0)))[0])
    to_left = place > 0.6
    if inside:
        ax.axvline(at, color=style.LIMIT_COLOUR, lw=1.2, ls=(0, (4, 1.5)), zorder=1, gid="limit")
    else:
        word = f"{word} →" if to_left else f"← {word}"
    ax.annotate(
        word, (min(max(place, 0.0), 1.0), 0.03), (-3 if to_left else 3, 0),
        xycoords="axes fraction", textcoords="offset points", ha="right" if to_left else "left",
        fontsize=9, color=style.LIMIT_COLOUR, gid="limit-word",
    )  # fmt: skip


def _finish(ax: Axes) -> None:
    ax.set_ylim(0, 103)
    ax.set_yticks([0, 25, 50, 75, 99], ["0", "25", "50", "75", "99"])
    for share in (50, 99):
        ax.axhline(share, color="#BBBBBB", lw=0.8, zorder=0)
    ax.spines[["top", "right"]].set_visible(False)
