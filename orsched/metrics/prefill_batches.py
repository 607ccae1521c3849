"""The prefill rows of each prefill and mixed step."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.metrics.timeline_stays import Stays


class PrefillBatches:
    """Prefill rows by step, in order of place.

    Attributes:
        place: steps with prefill rows.
        begin, size: their rows in ``tokens``.
        rows: these rows in the timeline.
        tokens: tokens of the rows.
        total: tokens of each step.
        longest: tokens of its largest row.
        padded: tokens of each step with what its worker pads.
    """

    def __init__(self, line: Stays) -> None:
        rows = line.prefills
        self.line = line
        place = line.first[rows]
        order = np.argsort(place, kind="stable")
        place = place[order]
        self.rows: IntColumn = rows[order]
        self.tokens: IntColumn = line.tokens[self.rows]
        opens = np.ones(len(rows), bool)
        np.not_equal(place[1:], place[:-1], out=opens[1:])
        self.begin = np.flatnonzero(opens)
        self.size: IntColumn = np.diff(self.begin, append=len(rows))
        self.place: IntColumn = place[self.begin]
        self.total: IntColumn = np.add.reduceat(self.tokens, self.begin)
        self.longest: IntColumn = np.maximum.reduceat(self.tokens, self.begin)
        pads = np.array([worker.padding for worker in line.instance.workers], bool)
        padding = pads[line.worker[self.place]]
        self.padded: IntColumn = np.where(padding, self.longest * self.size, self.total)

    @cached_property
    def cached(self) -> IntColumn:
        """Tokens of its request in the cache before each row, hits in a prefix cache included."""
        before: IntColumn = self.line.cached_after[self.rows] - self.tokens
        return before

    @cached_property
    def as_list(self) -> list[int]:
        """The tokens of the rows, as Python numbers."""
        tokens: list[int] = self.tokens.tolist()
        return tokens
