"""The figures that results draw of themselves: ``Result.plot`` and ``Comparison.plot``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.common.near_names import known_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

KINDS = ("gantt", "usage", "latency", "timeline", "history")
OF_SEVERAL = ("latency", "timeline", "history")
"""Kinds that show several schedules in one figure."""


def figure_of(
    instance: Instance | None, schedules: Sequence[Schedule], kind: str, options: dict[str, Any]
) -> Figure:
    """Return a new figure of one kind, of a result or of several; ``options`` are of what draws it.

    In a notebook that shows pictures below cells pyplot lets go of it: as the value of a cell the
    figure would be shown twice. Raises ``InputError`` for another kind, or without an instance.
    """
    from orsched.views.gantt import gantt
    from orsched.views.latency import latency
    from orsched.views.over_time import timeline_chart, usage
    from orsched.views.search_charts import history_chart

    several = len(schedules) > 1
    known = OF_SEVERAL if several else KINDS
    if kind not in known:
        raise InputError(
            f"{kind!r} is not a picture{' of several schedules' * several}",
            field="kind",
            remedy=known_names(kind, known, "known: "),
        )
    if instance is None:
        raise InputError(
            "the result has lost its instance", field="instance", remedy="solve it again"
        )
    if kind == "history":
        return _of(history_chart(instance, schedules, **options))
    if kind in OF_SEVERAL:
        draw = latency if kind == "latency" else timeline_chart
        return _of(draw(instance, schedules, **options)[0])
    if kind == "usage":
        return _of(usage(instance, schedules[0], **options)[0])
    return _of(gantt(instance, schedules[0], **options))


def _of(axes: Any) -> Figure:
    from matplotlib import pyplot

    figure: Figure = axes.get_figure()
    if pyplot.get_backend().endswith("inline"):
        pyplot.close(figure)
    return figure
