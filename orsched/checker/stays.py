"""Stays: the sound rows of work by request and stay, with the tokens that they give."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from orsched.checker.intervals import Bools, Ints, before

if TYPE_CHECKING:
    from orsched.checker.reading import Reading

PREFILLS, DECODES, INVALID = 0, 1, 2
"""Phases of rows."""


class Stays:
    """The sound rows in order of request, stay and step; a stay is a run of them.

    Attributes of the rows:
        row: row of the schedule's work.
        request, number, client, worker, phase, tokens, first, last: what it says; first and last
            are positions.
        rounds: rounds that it spans, 0 for prefill.
        opens: whether a stay begins with it.
    Attributes of the stays:
        begin, end: their first and last rows here.
        of: request of each.
    """

    def __init__(self, r: Reading) -> None:
        work = r.schedule.work
        columns = [work.request, work.stay, r.first, r.last, work.client, work.phase, work.tokens]
        self.reading, self.row = r, np.arange(len(work))
        if not r.row_ok.all():
            self.row = np.flatnonzero(r.row_ok)
            columns = [column[self.row] for column in columns]
        if not _ascending(*columns[:3]):
            order = np.lexsort(columns[2::-1])
            self.row, columns = self.row[order], [column[order] for column in columns]
        self.request, self.number, self.first, self.last = columns[:4]
        self.client, self.phase, self.tokens = columns[4:]
        self.worker: Ints = r.worker[self.first]
        self.is_prefill: Bools = self.phase == PREFILLS
        spanned = r.rounds_before[self.last + 1] - r.rounds_before[self.first]
        spanned[self.is_prefill] = 0
        self.rounds: Ints = spanned
        self.opens = _changes(self.request) | _changes(self.number)
        self.begin = np.flatnonzero(self.opens)
        self.end: Ints = np.append(self.begin[1:], len(self.row)) - 1
        self.end = self.end[: len(self.begin)]
        self.of: Ints = self.request[self.begin]

    # -- rows -----------------------------------------------------------------------------

    @cached_property
    def prefills(self) -> Ints:
        """The prefill rows."""
        return np.flatnonzero(self.is_prefill)

    @cached_property
    def decodes(self) -> Ints:
        """The decode rows."""
        return np.flatnonzero(self.phase == DECODES)

    @cached_property
    def invalids(self) -> Ints:
        """The invalid rows."""
        return np.flatnonzero(self.phase == INVALID)

    @cached_property
    def runs(self) -> Ints:
        """The decode and the invalid rows: what makes a request active in rounds."""
        return np.flatnonzero(~self.is_prefill) if len(self.invalids) else self.decodes

    @cached_property
    def cache_after(self) -> Ints:
        """Tokens in the request's cache after each row."""
        sums = before(np.where(self.is_prefill, self.tokens, self.rounds))
        return sums[1:] - np.repeat(sums[self.begin], self.end - self.begin + 1)

    @cached_property
    def cache_before(self) -> Ints:
        """Tokens in the request's cache before each decode or invalid row; 0 for prefill rows."""
        return np.where(self.is_prefill, 0, self.cache_after - self.rounds)

    # -- stays ----------------------------------------------------------------------------

    @cached_property
    def prefilled(self) -> Ints:
        """Tokens that each stay prefills."""
        return self._sum_of(np.where(self.is_prefill, self.tokens, 0))

    @cached_property
    def prefill_rows(self) -> Ints:
        """Number of prefill rows of each stay."""
        return self._sum_of(self.is_prefill.astype(np.int64))

    @cached_property
    def decode_rounds(self) -> Ints:
        """Rounds that yield each stay's tokens."""
        return self._sum_of(np.where(self.phase == DECODES, self.rounds, 0))

    def _sum_of(self, values: Ints) -> Ints:
        sums = before(values)
        return np.asarray(sums[self.end + 1] - sums[self.begin])

    @cached_property
    def ordinal(self) -> Ints:
        """Place of each stay among those of its request, from 0."""
        index = np.arange(len(self.of))
        heads = np.flatnonzero(_changes(self.of))
        return index - np.repeat(heads, np.diff(heads, append=len(index)))

    @cached_property
    def due(self) -> Ints:
        """Tokens that each stay has to prefill: the prompt and what was yielded before."""
        return self.reading.instance.requests.prompt_tokens[self.of] + self.yielded_before

    @cached_property
    def yielded_before(self) -> Ints:
        """Tokens that earlier stays of the request have yielded."""
        return self._tokens[0]

    @cached_property
    def complete(self) -> Bools:
        """Whether the prefill of each stay is complete; taken for granted where it decodes."""
        return self._tokens[1]

    @cached_property
    def yielded(self) -> Ints:
        """Tokens that each request has yielded after all."""
        return self._tokens[2]

    @cached_property
    def _tokens(self) -> tuple[Ints, Bools, Ints]:
        """Tokens before each stay, complete prefills, and tokens of each request.

        Whether a prefill is complete depends on the tokens before, and these on whether earlier
        ones were: all first stays are looked at together, then all second ones.
        """
        r = self.reading
        prompts = r.instance.requests.prompt_tokens
        total = np.zeros(r.n, np.int64)
        earlier, complete = np.zeros(len(self.of), np.int64), np.zeros(len(self.of), bool)
        decodes = self.prefill_rows <= self.end - self.begin
        order = np.argsort(self.ordinal, kind="stable")
        borders = np.searchsorted(self.ordinal[order], np.arange(self.ordinal.max(initial=-1) + 2))
        for begin, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
            stays = order[begin:end]
            of = self.of[stays]
            earlier[stays] = total[of]
            complete[stays] = decodes[stays] | (self.prefilled[stays] == prompts[of] + total[of])
            total[of] += self.decode_rounds[stays]
            if r.first_by_prefill:
                total[of] += complete[stays]
        return earlier, complete, total

    # -- places ---------------------------------------------------------------------------

    @cached_property
    def moves(self) -> Bools:
        """Rows that are on another client or worker than the one before in the same stay."""
        return ~self.opens & (_changes(self.client) | _changes(self.worker))

    @cached_property
    def places(self) -> tuple[Ints, Ints]:
        """First and last row of each visit: a stay, or the part of it on one client.

        In order of client, then position: visits of one client of one worker are neighbours.
        """
        begin, end = self.begin, self.end
        if self.moves.any():
            begin = np.flatnonzero(self.opens | self.moves)
            end = np.append(begin[1:], len(self.row)) - 1
        key = self.client[begin] * len(self.reading.worker) + self.first[begin]
        order = np.argsort(key, kind="stable")
        return begin[order], end[order]


def _changes(values: Ints) -> Bools:
    """Entries that differ from the one before; the first one does."""
    result = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=result[1:])
    return result


def _ascending(*columns: Ints) -> bool:
    """Say if rows are in order of the columns, the first one first."""
    behind = np.zeros(max(len(columns[0]) - 1, 0), bool)
    for column in reversed(columns):
        behind &= column[1:] == column[:-1]
        behind |= column[1:] < column[:-1]
    return not behind.any()
