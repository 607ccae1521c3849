"""Pictures and tables of answers: attainment against workers, and what knobs do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.views.pictures import legend_above, require_matplotlib, save_picture, scale_axis
from orsched.views.style import WORKER_COLOURS, axis_name

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence


_BLUE, _ORANGE, _GREEN = WORKER_COLOURS[:3]


def save_capacity(found: Any, path: str | os.PathLike[str]) -> None:
    """Draw attainment with its interval, and p99 of TTFT and TPOT, against workers or price.

    What is proven to be too small is shaded. Latencies stand on a logarithmic axis where they lie
    more than a factor of 30 apart. The suffix says the format: png, svg or pdf.

    Raises:
        InputError: another suffix, or nothing was simulated.
        MissingDependencyError: matplotlib is missing.
    """
    require_matplotlib()
    if not found.curve:
        raise InputError("no fleet was simulated", field="plot", remedy="give an answer with one")
    save_picture(lambda figure: _draw_capacity(figure, found), path, (8.0, 6.0))


def _draw_capacity(figure: Any, found: Any) -> None:
    above, below = figure.subplots(2, 1, sharex=True)
    rows = sorted(found.curve, key=lambda each: each.workers)
    line = "none" if len(found.machines) > 1 else "-"
    _draw_attainment(above, found, rows, line)
    _draw_latencies(below, rows, line)
    bound = found.lower_bound_workers
    for ax in (above, below):
        if bound > 1:
            ax.axvspan(0, bound - 0.5, color="#999999", alpha=0.3, lw=0, label="proven too few")
        if found.workers is not None:
            ax.axvline(found.workers, color=_GREEN, linestyle=":", label="answer")
        legend_above(ax)
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    figure.align_ylabels([above, below])


def _draw_attainment(ax: Any, found: Any, rows: Sequence[Any], line: str) -> None:
    shares = [100 * each.attainment for each in rows]
    ends = [
        [max(0.0, share - 100 * each.low) for share, each in zip(shares, rows, strict=True)],
        [max(0.0, 100 * each.high - share) for share, each in zip(shares, rows, strict=True)],
    ]
    ax.errorbar(
        [each.workers for each in rows], shares, yerr=ends, marker="o", color=_BLUE, capsize=3,
        linestyle=line, label="measured, with its interval",
    )  # fmt: skip
    wanted = 100 * found.attainment_wanted
    ax.axhline(wanted, color=_ORANGE, linestyle="--", label=f"wanted: {wanted:g} %")
    ax.set_ylabel("SLO attainment (%)")
    ax.set_ylim(-3, 103)


def _draw_latencies(ax: Any, rows: Sequence[Any], line: str) -> None:
    drawn: list[float] = []
    for name, colour, marker in (("ttft", _BLUE, "o"), ("tpot", _ORANGE, "s")):
        known = [(each.workers, getattr(each, f"{name}_p99_s")) for each in rows]
        pairs = [(x, y) for x, y in known if y]
        if pairs:
            ax.plot(
                *zip(*pairs, strict=True), marker=marker, color=colour, linestyle=line,
                label=axis_name(f"{name}_p99_s").words,
            )  # fmt: skip
            drawn += [y for _, y in pairs]
    if not scale_axis(ax, "y", drawn):
        ax.set_ylim(bottom=0)
    ax.set_ylabel("latency (s)")
    ax.set_xlabel("workers")
    ax.set_xlim(0.5, max(each.workers for each in rows) + 0.5)
    ax.xaxis.get_major_locator().set_params(integer=True)


def save_tuning(found: Any, path: str | os.PathLike[str]) -> None:
    """Draw for each value of each knob what is reached at best; a dotted line is the bound.

    As ``save_capacity``; ``InputError`` also where one setting alone was possible.
    """
    require_matplotlib()
    knobs = list(dict.fromkeys(row["knob"] for row in knob_effects(found)))
    if not knobs:
        raise InputError("no knob has two values", field="output", remedy="give a knob more values")
    save_picture(lambda figure: _draw(figure, found, knobs), path, (2.6 * len(knobs), 3.6))


def _draw(figure: Any, found: Any, knobs: list[str]) -> None:
    panels = figure.subplots(1, len(knobs), sharey=True, squeeze=False)[0]
    for ax, knob in zip(panels, knobs, strict=True):
        rows = [row for row in knob_effects(found) if row["knob"] == knob]
        for place, row in enumerate(rows):
            if row["value"] is not None:
                ends = [[max(0, row["value"] - row["low"])], [max(0, row["high"] - row["value"])]]
                colour = WORKER_COLOURS[1 if row["best"] else 0]
                ax.errorbar(place, row["value"], yerr=ends, marker="o", color=colour, capsize=3)
        if found.bound is not None:
            ax.axhline(found.bound, color="#666666", linestyle=":")
        ax.set_xticks(range(len(rows)), [str(row["setting"]) for row in rows], rotation=60)
        ax.set_xlim(-0.5, len(rows) - 0.5)
        ax.set_title(knob, fontsize=9)
        ax.grid(alpha=0.3)
    panels[0].set_ylabel("goodput (1/s per GPU)" if found.objective == "goodput" else "attainment")


def knob_effects(found: Any) -> list[dict[str, Any]]:
    """Return for each value of each knob of a tuning the best that was found with it.

    None where no setting with the value ran on the whole: it was behind on a part.
    """
    rows = []
    for name, value in ((n, v) for n, axis in found.axes.items() if len(axis) > 1 for v in axis):
        with_it = [t for t in found.trials if dict(t.setting.values).get(name) == value]
        ends = with_it[0].ends if with_it else dict.fromkeys(("value", "low", "high"))
        rows.append({"knob": name, "setting": value, "best": found.best in with_it, **ends})
    return rows


def tuning_rows(found: Any) -> list[dict[str, Any]]:
    """Return a row for the best setting, the default and the rivals."""
    marked = [("best", found.best), ("default", found.default)]
    marked += [("rival", each) for each in found.rivals if each != found.default]
    return [
        {"what": what, **dict(each.setting.values), **each.ends, **each.figures}
        for what, each in marked
        if each is not None and (what == "best" or each != found.best)
    ]


def tuning_sentence(found: Any) -> str:
    """Say what is best and how far from the bound."""
    best, rate = found.best, found.rate or {}
    said = f"{found.objective} {best.value:.4g}, 95 % interval {best.low:.4g}-{best.high:.4g}"
    if kept := rate.get("kept_per_s"):
        said = f"keeps {kept:.4g} requests per second"
    if lost := rate.get("lost_per_s"):
        said += f", and not {lost:.4g}"
    more = f"; {len(found.rivals)} others cannot be told from it" if found.rivals else ""
    at = " at this rate" if rate else ""
    proven = f"no setting exceeds {found.bound:.4g}{at} (proven)" if found.bound else "no bound"
    return f"{best.setting}: {said}{more}; {proven}"
