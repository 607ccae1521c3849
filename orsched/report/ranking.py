"""Which schedules of a report are the best, by the objective that fits the instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orsched.objectives import OBJECTIVES, fitting_objective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.instance import Instance
    from orsched.report.comparison import Row


class Ranking(NamedTuple):
    """The best schedules.

    Attributes:
        name: the objective.
        words: what the best may be called.
        best: numbers of the best schedules; none without rivals.
        rivals: numbers of the schedules that compete: valid ones with times of the model.
    """

    name: str
    words: str
    best: frozenset[int]
    rivals: tuple[int, ...]


def ranking_of(instance: Instance, rows: Sequence[Row]) -> Ranking:
    """Return the ranking by the objective that fits: never the makespan where requests arrive.

    Where all rivals attain the limits alike, the least mean JCT decides among them.
    """
    rivals = tuple(
        k for k, row in enumerate(rows) if not row.violations and not row.schedule.is_measured
    )
    competing = [rows[k].results for k in rivals]
    objective = fitting_objective(instance, [row.results for row in rows])
    best = objective.best(competing)
    if objective.name == "slo_attainment" and len(best) == len(rivals) > 1:
        objective = OBJECTIVES["jct_mean"]
        best = objective.best(competing)
    chosen = frozenset(rivals[place] for place in best) if len(rivals) > 1 else frozenset()
    return Ranking(objective.name, objective.words, chosen, rivals)
