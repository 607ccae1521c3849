"""Errors of predictions beside what was measured: medians by group, their order, a picture."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.views.pictures import legend_below, save_picture, scale_axis
from orsched.views.style import WORKER_COLOURS

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
