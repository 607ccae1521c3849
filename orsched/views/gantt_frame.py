"""What a Gantt chart shows, and what surrounds its bars: axes, lines, title, names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.units import NS_PER_S
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import finishes_ns
from orsched.views import style
from orsched.views.pictures import DPI, fit, heading, verdict_of
from orsched.views.spans import client_use, lanes_of, rank_in_lane
from orsched.views.style import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.views.spans import ClientUse, Lanes


@dataclass(frozen=True, eq=False)
class Chart:
    """What a Gantt chart shows: a schedule, who holds which client when, and the clients' rows."""

    line: Timeline
    use: ClientUse
    lanes: Lanes

    @classmethod
    def of(cls, instance: Instance, schedule: Schedule) -> Chart:
        """Return the chart of a schedule."""
        line = Timeline(instance, schedule)
        use = client_use(line)
        return cls(line, use, lanes_of(instance, use.stays))

    @property
    def instance(self) -> Instance:
        """The problem."""
        return self.line.instance

    @property
    def schedule(self) -> Schedule:
        """The schedule."""
        return self.line.schedule


class LastRequest(NamedTuple):
    """The request that finishes last, and what its time from arrival to finish went into.

    Attributes:
        request: its row.
        worker: the worker of its last row.
        waiting_ns: from the arrival to the begin of its prefill.
        prefill_ns: the steps that prefill it, again after evictions included.
        rounds, rounds_ns: the steps that yield its tokens, and how many there are.
        other_ns: the rest: it was paused or evicted, or others were prefilled.
    """

    request: int
    worker: int
    waiting_ns: int
    prefill_ns: int
    rounds: int
    rounds_ns: int
    other_ns: int


def last_request(line: Timeline) -> LastRequest | None:
    """Return the request that finishes last, the first row of several; None without any work."""
    if not len(line.row):
        return None
    finish = finishes_ns(line)
    request = int(finish.argmax())
    rows = np.flatnonzero(line.request == request)
    prefills = line.is_prefill[rows]
    took = line.row_time_ns[rows]
    begin = int(line.start_ns[line.first[rows[0]]])
    waiting = begin - int(line.instance.requests.arrival_ns[request])
    prefill_ns, rounds_ns = int(took[prefills].sum()), int(took[~prefills].sum())
    rounds = int(line.row_rounds[rows][~prefills].sum())
    other = int(finish[request]) - begin - prefill_ns - rounds_ns
    worker = int(line.row_worker[rows[-1]])
    return LastRequest(request, worker, waiting, prefill_ns, rounds, rounds_ns, other)


WIDTH, RIGHT, TOP, BOTTOM = 10.0, 0.3, 0.65, 0.9
"""Inches: width of the picture, and what is beside, above and below the axes."""

MAX_LABELS = 80
"""With more requests their bars have no names."""

_MAX_NAMES = 30
_GAP = 0.2  # of a row is white, at least a pixel; rows below three pixels touch


def left_of(instance: Instance) -> float:
    """Return the inches left of the axes: names of workers need more room than numbers."""
    return 0.7 if len(instance.workers) == 1 else 1.45


def place_axes(figure: Figure, chart: Chart) -> Axes:
    """Add axes with fixed margins in inches and a whole number of pixels a row."""
    height = chart.lanes.height_pixels() / DPI
    total = height + TOP + BOTTOM
    figure.set_size_inches(WIDTH, total)
    left = left_of(chart.instance)
    box = (left / WIDTH, BOTTOM / total, 1 - (left + RIGHT) / WIDTH, height / total)
    return figure.add_axes(box)


def inches_of(ax: Axes) -> tuple[float, float]:
    """Return width and height of axes."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    box = ax.get_position()
    return figure.get_figwidth() * box.width, figure.get_figheight() * box.height


def gap_of(ax: Axes, lanes: Lanes) -> float:
    """Return the white between rows, as a share of a row: whole pixels; 0 for thin rows."""
    pixels = inches_of(ax)[1] * DPI / max(1, lanes.rows)
    return 0.0 if pixels < 3 else max(1, round(_GAP * pixels)) / pixels


def rectangles(start: Any, end: Any, low: Any, high: Any) -> Any:
    """Return corners of rectangles, shape (n, 4, 2), times in seconds."""
    corners = np.empty((len(np.atleast_1d(low)), 4, 2))
    corners[:, 0, 0] = corners[:, 1, 0] = start / NS_PER_S
    corners[:, 2, 0] = corners[:, 3, 0] = end / NS_PER_S
    corners[:, 0, 1] = corners[:, 3, 1] = low
    corners[:, 1, 1] = corners[:, 2, 1] = high
    return corners


def draw_background(ax: Axes, chart: Chart) -> None:
    """Tint the whole client-time: what no bar covers is a client without a request."""
    from matplotlib.patches import Rectangle

    end = chart.schedule.makespan_ns / NS_PER_S
    ax.add_patch(
        Rectangle(
            (0, -0.5), end, chart.lanes.rows, color=style.IDLE_COLOUR, lw=0,
            zorder=0.5, gid="idle",
        )
    )  # fmt: skip


def draw_borders(ax: Axes, chart: Chart) -> None:
    """Separate clients by white, over the stripes of stages, workers by more; label strips."""
    from matplotlib.collections import PolyCollection

    lanes, makespan_ns = chart.lanes, chart.schedule.makespan_ns
    gap = gap_of(ax, lanes)
    shown = np.flatnonzero(lanes.numbers >= 0)
    inner = shown[1:][np.diff(shown) == 1] - 0.5
    if gap and len(inner):
        corners = rectangles(0, makespan_ns, inner - gap / 2, inner + gap / 2)
        ax.add_collection(
            PolyCollection(corners, facecolors="white", linewidths=0, zorder=3.5, gid="borders"),
            autolim=False,
        )
    if len(chart.instance.workers) > 1:
        ax.hlines(lanes.top[1:-1] - 0.5, 0, 1, transform=ax.get_yaxis_transform(), colors="white",
                  linewidths=2.5, zorder=4.5, gid="workers")  # fmt: skip
    _draw_strips(ax, lanes, makespan_ns, gap)


def _draw_strips(ax: Axes, lanes: Lanes, makespan_ns: int, gap: float) -> None:
    from matplotlib.collections import PolyCollection

    folding = np.flatnonzero(lanes.folded)
    if len(folding) == 0:
        return
    low = lanes.top[folding] + lanes.shown[folding] - 0.5
    high = lanes.top[folding + 1] - 0.5
    ax.add_collection(
        PolyCollection(
            rectangles(0, makespan_ns, low, high), facecolors=style.FOLDED_COLOUR,
            edgecolors="white", linewidths=1, zorder=3.6, gid="folded",
        ),
        autolim=False,
    )  # fmt: skip
    if not lanes.worded:
        return
    for worker, top, end in zip(folding.tolist(), low.tolist(), high.tolist(), strict=True):
        ax.annotate(
            f"{lanes.folded[worker]:,} clients without a request", (0, (top + end) / 2), (4, 0),
            textcoords="offset points", va="center_baseline", fontsize=8, color="#555555", zorder=7,
            gid="folded-words",
        )  # fmt: skip


def label_axes(ax: Axes, chart: Chart, end_ns: int) -> None:
    """Set limits, ticks and names of both axes."""
    schedule, lanes, workers = chart.schedule, chart.lanes, chart.instance.workers
    bound = 0 if schedule.bound is None else int(schedule.bound["value_ns"])
    right = 1.01 * max(schedule.makespan_ns, bound, end_ns) / NS_PER_S or 1.0
    beside, below = _sharing(ax, ax.get_shared_x_axes()), _sharing(ax, ax.get_shared_y_axes())
    ax.set_xlim(0, max([right, *(each.get_xlim()[1] for each in beside)]))
    ax.set_ylim(max([lanes.rows - 0.5, *(each.get_ylim()[0] for each in below)]), -0.5)
    ax.set_xlabel("time (s)", loc="right")
    if len(workers) == 1:
        ax.set_ylabel("client")
        _number_clients(ax, lanes)
    else:
        middles = (lanes.top[:-1] + lanes.top[1:] - 1) / 2
        names = [shortened(worker.name, 14) for worker in workers]
        every = -(-len(names) // _MAX_NAMES)
        ax.set_yticks(middles[::every], names[::every], parse_math=False)
        ax.set_ylabel("worker")
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(length=3, color="#666666")
    place = ax.get_subplotspec()
    if place is not None and ax.get_shared_x_axes().get_siblings(ax)[1:]:
        ax.set_xlabel("time (s)" if place.is_last_row() else "", loc="right")
    if place is not None and ax.get_shared_y_axes().get_siblings(ax)[1:]:
        ax.set_ylabel(ax.get_ylabel() if place.is_first_col() else "")


def _sharing(ax: Axes, groups: Any) -> list[Axes]:
    """Return the other axes of a group that show something already."""
    return [each for each in groups.get_siblings(ax) if each is not ax and each.collections]


def _number_clients(ax: Axes, lanes: Lanes) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    shown = int(lanes.shown[0])
    ax.yaxis.set_major_locator(
        MaxNLocator(min(max(shown, 1), 11), integer=True, steps=[1, 2, 5, 10])
    )
    if shown == lanes.rows:
        return

    def number(value: float, _: object = None) -> str:
        row = round(value)
        return str(lanes.numbers[row]) if 0 <= row < shown else ""

    ax.yaxis.set_major_formatter(FuncFormatter(number))


def draw_lines(ax: Axes, schedule: Schedule) -> None:
    """Mark the makespan and, if there is one, the lower bound."""
    end = schedule.makespan_ns / NS_PER_S
    ax.axvline(end, color=style.MAKESPAN_COLOUR, lw=1.2, zorder=5, gid="makespan", clip_on=False)
    if schedule.bound is not None:
        bound = int(schedule.bound["value_ns"]) / NS_PER_S
        # A white line below keeps the dashes visible on every background.
        ax.axvline(bound, color="white", lw=3, zorder=5)
        ax.axvline(bound, color=style.BOUND_COLOUR, lw=1.6, ls=(0, (4, 1.5)), zorder=6,
                   gid="bound")  # fmt: skip


def mark_last(ax: Axes, chart: Chart) -> None:
    """Frame the request that ends last in a fleet, and say below the axis what its time went to."""
    last = last_request(chart.line)
    if len(chart.instance.workers) == 1 or last is None:
        return
    stays = chart.use.stays.take(chart.use.stays.request == last.request)
    rows = chart.lanes.row[stays.lane]
    half = max(0.5, 3 * chart.lanes.rows / (inches_of(ax)[1] * DPI))  # at least six pixels high
    for corners in rectangles(stays.start_ns, stays.end_ns, rows - half, rows + half):
        ax.plot(*np.vstack([corners, corners[:1]]).T, color=style.LAST_COLOUR, lw=1.4, zorder=7,
                gid="last", clip_on=False)  # fmt: skip
    spent = {
        "waited": last.waiting_ns, "prefill": last.prefill_ns,
        f"{last.rounds:,} rounds": last.rounds_ns, "without work": last.other_ns,
    }  # fmt: skip
    parts = [f"{word} {style.seconds(ns)}" for word, ns in spent.items() if ns]
    name = shortened(chart.instance.requests.id_of(last.request), 24)
    where = shortened(chart.instance.workers[last.worker].name, 14)
    words = ax.annotate(
        f"ends last: request {name} on {where}: {', '.join(parts)}", (0, 0), (0, -27),
        xycoords="axes fraction", textcoords="offset points", color=style.LAST_COLOUR,
        fontsize=9, parse_math=False, gid="last-words",
    )  # fmt: skip
    fit(words, inches_of(ax)[0] - 0.8)


def draw_title(ax: Axes, chart: Chart, title: str | None) -> None:
    """Write the title and, below it, the figures of the schedule, each on one line that fits."""
    instance, schedule = chart.instance, chart.schedule
    title = heading(instance, [schedule]) if title is None else title
    words = ax.set_title(
        shortened(title, 100), loc="left", fontweight="bold", pad=24, parse_math=False
    )
    facts = ax.annotate(
        "   ".join(_facts(instance, schedule)), (0, 1), (0, 8), xycoords="axes fraction",
        textcoords="offset points", color="#333333", parse_math=False, gid="facts", fontsize=10,
    )  # fmt: skip
    room = inches_of(ax)[0] + RIGHT - 0.05
    fit(words, room)
    fit(facts, room)


def _facts(instance: Instance, schedule: Schedule) -> list[str]:
    from orsched.metrics.summary import summarise

    results = summarise(instance, schedule)
    facts = [
        f"makespan {style.seconds(schedule.makespan_ns)}",
        f"slot utilization {style.percent(results['slot_utilization'])}",
    ]
    if schedule.bound is not None:
        facts.append(f"lower bound {style.seconds(results['bound_ns'])}")
        if results["gap"] is not None or not schedule.is_measured:
            facts.append(f"gap {style.gap_text(results['gap'])}")
        verdict = None if schedule.is_measured else verdict_of(schedule)
        if verdict is not None and verdict.closes_gap:
            facts[-1] = f"gap {style.gap_text(0.0)}, {verdict.words}"
    if schedule.is_measured:
        facts.append("partial run" if schedule.is_partial else "measured")
    for name, word in (
        ("prefill_stages", "prefill stage"),
        ("decode_rounds", "round"),
        ("mixed_steps", "mixed step"),
        ("restarts", "restart"),
        ("invalid_tokens", "invalid token"),
    ):
        if results[name] or name in ("prefill_stages", "decode_rounds"):
            facts.append(f"{results[name]:,} {word}{'' if results[name] == 1 else 's'}")
    return facts


def label_bars(ax: Axes, chart: Chart) -> None:
    """Write the names of requests into bars that are wide and high enough for them."""
    requests, decode, lanes = chart.instance.requests, chart.use.decode, chart.lanes
    width, height = (72 * inches for inches in inches_of(ax))
    size = min(9.0, 0.6 * height / max(1, lanes.rows))
    if size < 4:
        return
    points_per_s = width / (ax.get_xlim()[1] or 1)
    dark = rank_in_lane(decode) % 2 == 0
    rows: IntColumn = lanes.row[decode.lane]
    for k in range(len(decode)):
        name = shortened(requests.id_of(int(decode.request[k])), 24)
        start, end = decode.start_ns[k] / NS_PER_S, decode.end_ns[k] / NS_PER_S
        if (end - start) * points_per_s > size * (0.7 * len(name) + 1):
            ax.text(
                start + 0.5 * size / points_per_s, rows[k], name, va="center_baseline",
                fontsize=size, color="white" if dark[k] else "black", zorder=7, clip_on=True,
                parse_math=False,
            )  # fmt: skip
