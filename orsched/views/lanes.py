"""Where the clients stand in a Gantt chart: who never holds a request is folded away."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.views.spans import lane_offsets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.views.spans import Spans

FOLD_FROM = 3
"""So many clients of a worker without a request are folded; fewer are shown."""

HEIGHT_PIXELS, MIN_HEIGHT_PIXELS, MAX_ROW_PIXELS = 1000, 120, 45
_STRIP_PIXELS, _WORDED_STRIPS = 26, 12
"""Height of a strip in which words stand, and how many of them there may be."""


@dataclass(frozen=True, eq=False)
class Lanes:
    """Rows of a Gantt chart, counted from the top, one a client; folded clients share a strip.

    Attributes:
        row: row of each client (``lane_offsets``); the strip's for folded ones.
        top: first row of each worker, and the number of rows at the end.
        shown: clients of each worker that have rows of their own.
        folded: clients of each worker in its strip, which is below the others; 0 without one.
        numbers: number of the client, within its worker, of each row; -1 in strips.
    """

    row: IntColumn
    top: IntColumn
    shown: IntColumn
    folded: IntColumn
    numbers: IntColumn

    @property
    def rows(self) -> int:
        """Rows of all workers together."""
        return int(self.top[-1])

    @property
    def worded(self) -> bool:
        """Whether strips are high enough for words."""
        return int((self.folded > 0).sum()) <= _WORDED_STRIPS

    def row_pixels(self) -> int:
        """Pixels of a row: as high as a line of text for few, thin for many."""
        return max(1, min(MAX_ROW_PIXELS, HEIGHT_PIXELS // max(1, self.rows)))

    def height_pixels(self) -> int:
        """Pixels of all rows, each a whole number, so that all look the same."""
        pixels = self.rows * self.row_pixels()
        return max(MIN_HEIGHT_PIXELS, min(pixels, 2 * HEIGHT_PIXELS))


def lanes_of(instance: Instance, stays: Spans | None = None) -> Lanes:
    """Return the rows of all clients; with ``stays`` (``ClientUse``) unused ones are folded."""
    offsets = lane_offsets(instance)
    used = np.ones(int(offsets[-1]), bool)
    if stays is not None:
        used = np.zeros(int(offsets[-1]), bool)
        used[stays.lane] = True
    kept = [used[low:high] for low, high in pairwise(offsets.tolist())]
    kept = [mask if (~mask).sum() >= FOLD_FROM else np.ones_like(mask) for mask in kept]
    return _laid_out(kept, _strip_rows(kept))


def _strip_rows(kept: Sequence[Any]) -> int:
    """Rows that a strip takes: as many as its words need, or one where there are many strips."""
    strips = sum(not mask.all() for mask in kept)
    if not 0 < strips <= _WORDED_STRIPS:
        return 1
    shown = sum(int(mask.sum()) for mask in kept)
    pixels = min(MAX_ROW_PIXELS, HEIGHT_PIXELS // max(1, shown + strips))
    return max(1, min(-(-_STRIP_PIXELS // max(1, pixels)), max(1, shown // 6)))


def _laid_out(kept: Sequence[Any], strip: int) -> Lanes:
    row, top, numbers = [], [0], []
    for mask in kept:
        shown = int(mask.sum())
        place = np.cumsum(mask) - 1
        row.append(top[-1] + np.where(mask, place, shown))
        numbers.append(np.flatnonzero(mask))
        if shown < len(mask):
            numbers.append(np.full(strip, -1))
        top.append(top[-1] + shown + (strip if shown < len(mask) else 0))
    shown_of = np.array([int(mask.sum()) for mask in kept], np.int64)
    folded = np.array([len(mask) for mask in kept], np.int64) - shown_of
    empty = np.empty(0, np.int64)
    return Lanes(
        np.concatenate([empty, *row]).astype(np.int64), np.array(top, np.int64), shown_of, folded,
        np.concatenate([empty, *numbers]).astype(np.int64),
    )  # fmt: skip
