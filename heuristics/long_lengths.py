"""How long requests may be, where their distributions are predicted: what is planned for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.data.length_quantiles import LengthLaw
from orsched.simulator.policy import PredictedView

if TYPE_CHECKING:
    from orsched.simulator.policy import View

LEVEL = 0.9
"""What starts too late because it was thought short costs a makespan more than the reverse."""


class LongLengths(dict[int, int]):
    """The 0.9 quantile of each request's length, in whole tokens, worked out when it is asked for.

    It may be forgotten (``pop``) when the request is done.
    """

    def __init__(self, view: PredictedView) -> None:
        super().__init__()
        self._quantiles = view.predicted_quantiles
        self._law = LengthLaw(view.quantile_levels)
        at = [place for place, level in enumerate(view.quantile_levels) if level == LEVEL]
        self._place = at[0] if at else None

    def __missing__(self, request: int) -> int:
        row = self._quantiles(request)
        if not row[0]:  # it has not arrived
            return 0
        if self._place is not None:
            found = row[self._place]
        else:
            found = max(1, round(self._law.quantile(row, LEVEL)))
        self[request] = found
        return found


def long_lengths(view: View) -> LongLengths | None:
    """Return the lengths to plan for; None where no distributions are predicted."""
    if isinstance(view, PredictedView) and view.quantile_levels:
        return LongLengths(view)
    return None
