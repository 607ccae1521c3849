"""Pictures of answers: attainment against workers, what knobs do, errors of predictions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError
from orsched.views.pictures import (
    legend_above,
    legend_below,
    require_matplotlib,
    save_picture,
    scale_axis,
)
from orsched.views.style import WORKER_COLOURS, axis_name

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from matplotlib.figure import Figure


Row = dict[str, Any]
METRICS = {
    "tpot": "TPOT, s",
    "ttft": "TTFT, s",
    "throughput": "tokens/s",
    "makespan": "makespan, s",
}
DIMENSIONS = ("gpu", "model", "precision", "engine", "tp", "in_flight")
"""What errors are grouped by; ``in_flight`` is the concurrency, up to a power of two."""


@dataclass(frozen=True)
class Validation:
    """Errors of predictions: a row for each metric of a configuration, and what is left out.

    ``rows`` have ``id, metric, measured, predicted, error`` (a share, above 0: predicted too
    large), ``DIMENSIONS`` and the ``pace``, measured and predicted: output tokens a second and GPU.
    ``skipped`` have ``id, reason``.
    """

    rows: tuple[Row, ...]
    skipped: tuple[Row, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return rows, what is skipped and all groups as JSON values."""
        return {"rows": list(self.rows), "skipped": list(self.skipped), "groups": self.groups()}

    @property
    def reasons(self) -> dict[str, int]:
        """How many configurations were left out for each reason, the commonest first."""
        return dict(Counter(each["reason"] for each in self.skipped).most_common())

    def groups(self) -> list[Row]:
        """Return errors of all rows, and by each of the ``DIMENSIONS`` that rows have.

        For each metric the median of absolute errors, and of errors (``_bias``); ``order`` is
        Kendall's tau of paces.
        """
        found = []
        for by in ("all", *DIMENSIONS):
            for value in sorted({row.get(by, "") for row in self.rows if by in row or by == "all"}):
                rows = [row for row in self.rows if row.get(by, "") == value]
                group: Row = {"by": by, "value": value, "rows": len({row["id"] for row in rows})}
                for metric in METRICS:
                    errors = [row["error"] for row in rows if row["metric"] == metric]
                    group[metric] = float(np.median(np.abs(errors))) if errors else None
                    group[f"{metric}_bias"] = float(np.median(errors)) if errors else None
                found.append(group | {"order": order(rows)})
        return found


def order(rows: Iterable[Row]) -> float | None:
    """Return Kendall's tau-b of measured and predicted paces; None for less than two, all equal."""
    paces = {row["id"]: row["pace"] for row in rows if "pace" in row}
    if len(paces) < 2:
        return None
    one, other = (np.sign(np.subtract.outer(x, x)) for x in np.array(list(paces.values())).T)
    scale = float(np.sqrt((one != 0).sum() * (other != 0).sum()))
    return float((one * other).sum()) / scale if scale else None


def save_predicted(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """Draw the rows of a ``Validation``, a colour for each model; raises as ``save_picture``."""
    metrics = [name for name in METRICS if any(row["metric"] == name for row in rows)]
    models = sorted({str(row.get("model") or row["id"]) for row in rows})

    def draw(figure: Figure) -> None:
        marks: dict[str, Any] = {}
        for place, metric in enumerate(metrics, start=1):
            ax = figure.add_subplot(1, len(metrics), place)
            every = [row for row in rows if row["metric"] == metric]
            for number, model in enumerate(models):
                mine = [row for row in every if str(row.get("model") or row["id"]) == model]
                x, y = ([row[kind] for row in mine] for kind in ("measured", "predicted"))
                colour = WORKER_COLOURS[number % len(WORKER_COLOURS)]
                sign = "o^sD"[number // len(WORKER_COLOURS) % 4]
                marks[model] = ax.scatter(x, y, s=9, alpha=0.6, color=colour, marker=sign)
            values = [row[kind] for row in every for kind in ("measured", "predicted")]
            ax.plot([min(values), max(values)], [min(values), max(values)], "k-", linewidth=0.8)
            for which, kind in (("x", "measured"), ("y", "predicted")):
                scale_axis(ax, which, values)
                getattr(ax, f"set_{which}label")(f"{kind} {METRICS[metric]}")
            ax.spines[["top", "right"]].set_visible(False)
        legend_below(figure, marks.values(), marks)

    save_picture(draw, path, (4.2 * len(metrics), 5.0))


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
        if found.bound is not None and found.rate is None:
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
    does = "keeps" if rate else "exceeds"
    proven = f"no setting {does} {found.bound:.4g} (proven)" if found.bound else "no bound"
    if found.objective == "attainment" and found.bound == 1:
        proven = "the proven bound, 1, excludes nothing: --maximise rate asks where it does"
    return f"{best.setting}: {said}{more}; {proven}"
