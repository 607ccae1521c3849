"""Loads: the prefill rows of each prefill and mixed step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from orsched.checker.intervals import Ints
    from orsched.checker.reading import Reading


class Loads:
    """Prefill rows by step, in order of position.

    Attributes:
        position: steps with prefill rows.
        begin, size: their rows in ``tokens``.
        tokens, as_list: tokens of the rows.
        total: tokens of each step.
        longest: tokens of its largest row.
        padded: tokens of each step with what its worker pads.
    """

    def __init__(self, r: Reading) -> None:
        stays = r.stays
        rows = stays.prefills
        place = stays.first[rows]
        order = np.argsort(place, kind="stable")
        place = place[order]
        self.tokens: Ints = stays.tokens[rows[order]]
        self.as_list: list[int] = self.tokens.tolist()
        begins = np.ones(len(rows), bool)
        np.not_equal(place[1:], place[:-1], out=begins[1:])
        self.begin = np.flatnonzero(begins)
        self.size: Ints = np.diff(self.begin, append=len(rows))
        self.position: Ints = place[self.begin]
        self.total: Ints = np.add.reduceat(self.tokens, self.begin)
        self.longest: Ints = np.maximum.reduceat(self.tokens, self.begin)
        pads = np.array([worker.padding for worker in r.instance.workers], bool)
        padding = pads[r.worker[self.position]]
        self.padded: Ints = np.where(padding, self.longest * self.size, self.total)
