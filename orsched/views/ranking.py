"""Which schedules of a report are the best, by the objective that fits the instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orsched.solving.objectives import OBJECTIVES, fitting_objective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance
    from orsched.views.comparison import Row


class Ranking(NamedTuple):
    """The best schedules.

    Attributes:
        name: the objective.
        words: what the best may be called.
        classes: how many classes of information compete.
        best: numbers of the best schedules; none without rivals.
        rivals: numbers of the schedules that compete: valid ones with times of the model.
    """

    name: str
    words: str
    best: frozenset[int]
    rivals: tuple[int, ...]
    classes: int = 1


def ranking_of(instance: Instance, rows: Sequence[Row]) -> Ranking:
    """Return the ranking by the objective that fits: never the makespan where requests arrive.

    Where all rivals attain the limits alike, the least mean JCT decides among them. The best are
    those of each class of information; none where nothing is to choose between.
    """
    rivals = tuple(
        k for k, row in enumerate(rows) if not row.violations and not row.schedule.is_measured
    )
    competing = [rows[k].results for k in rivals]
    told = [rows[k].schedule.information for k in rivals]
    objective = fitting_objective(instance, [row.results for row in rows])
    alike = len(objective.best(competing)) == len(rivals) > 1
    if objective.name == "slo_attainment" and alike:
        objective = OBJECTIVES["jct_mean"]
    classes = objective.best_by_information(competing, told)
    best = [rivals[place] for _, places in classes for place in places]
    chosen = frozenset(best) if len(rivals) > 1 else frozenset()
    return Ranking(objective.name, objective.words, chosen, rivals, len(classes))
