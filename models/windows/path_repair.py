"""What falls short by a little, repaired: the best paths at these stage times, and stages more.

The moves change a path or a stage at a time, and end where no such change helps. The program over
all paths at once ends lower, and its prices say at which moment one stage more helps most: often it
costs less than the rounds that would make up for what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.models.windows.path_program import PathProgram
from orsched.models.windows.structure import Windows

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.common.columns import IntColumn
    from orsched.models.windows.prices import Prices

PARTS = 16
"""Tokens are counted in these parts, so that means are whole numbers."""
MORE_STAGES = 3
WHOLE_S = 4.0
"""Most stages put in, and seconds for whole paths."""


class PathRepair:
    """Repairs the states of one instance whose stages have one capacity."""

    def __init__(
        self, lengths: IntColumn, prompts: IntColumn, clients: int, prices: Prices
    ) -> None:
        """Take the requests, J, and prices with one level."""
        longest = np.sort(prompts[lengths == lengths.max()])
        half = max(1, len(longest) // 2)
        mean, few, many = (
            round(PARTS * float(part.mean())) for part in (prompts, longest[:half], longest[-half:])
        )
        few, many = min(mean, few), max(mean, many)
        self.program = PathProgram(lengths, clients, mean, few, many)
        self.full = PARTS * prices.levels[0][0]
        self.prices = prices

    def __call__(
        self, state: Windows, seconds: float, give_up: Callable[[], bool] = lambda: False
    ) -> Windows | None:
        """Return a state with the same end, better paths and a few stages more at its moments.

        None where there are no such paths. V need not be 0.
        """
        times, stages = self.moments(state)
        for added in range(MORE_STAGES + 1):
            found = self.program.relaxed(times, [self.full * each for each in stages])
            if found.missing < 0.5 or give_up():
                break
            if added == MORE_STAGES or not found.room.any():
                break
            stages[int(found.room.argmax())] += 1
        whole = self.program.whole(
            times, [self.full * each for each in stages], min(WHOLE_S, seconds)
        )
        if whole is None:
            return None
        tables = state.tables
        return Windows(
            state.lengths, times[:-1], times[-1], whole[1], tables.price, tables.late_price
        )

    def moments(self, state: Windows) -> tuple[list[int], list[int]]:
        """Return the times at which requests start, and the end; and the stages of each."""
        tables = state.tables
        starts: dict[int, int] = {}
        longest: dict[int, int] = {}
        most = int(state.lengths.max())
        for stage, span in zip(tables.start, state.spans().tolist(), strict=True):
            time = tables.times[stage]
            starts[time] = starts.get(time, 0) + 1
            longest[time] = longest.get(time, 0) + (span >= most)
        times = sorted(starts)
        tokens = [self.program.needed(starts[time], longest[time]) for time in times]
        return [*times, state.end], [max(1, -(-each // self.full)) for each in tokens]
