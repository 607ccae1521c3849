"""What a gate may expect: when running requests end, and whether others will arrive."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from math import inf
from typing import TYPE_CHECKING, Protocol

import numpy as np

from orsched.simulator.policy import ClairvoyantView, PredictedView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.simulator.policy import View


KEPT = 4096  # lengths that are kept; the oldest are forgotten
_LARGEST_TABLE = 1 << 16


class RecentLengths(Protocol):
    """The newest lengths: ``lengths.at_most[x]`` of the ``lengths.size`` are at most ``x``."""

    size: int

    @property
    def at_most(self) -> AtMost:
        """Counts by length, from 0 to the longest that can be."""

    def add(self, length: int) -> None:
        """Record a length, and forget the oldest if there are too many."""


class AtMost(Protocol):
    """What can be asked with an index."""

    def __getitem__(self, length: int, /) -> int:
        """Return how many are at most so long."""


class SortedLengths:
    """The lengths in order: it takes a search to count, and no memory for what has not been."""

    def __init__(self, kept: int = KEPT) -> None:
        self.kept = kept
        self.lengths: list[int] = []
        self.order: list[int] = []
        self.oldest = 0
        self.size = self.total = 0

    @property
    def at_most(self) -> SortedLengths:
        """Counts by length."""
        return self

    def __getitem__(self, length: int) -> int:
        """Return how many are at most so long."""
        return bisect_right(self.lengths, length)

    def add(self, length: int) -> None:
        """Record a length, and forget the oldest if there are too many."""
        insort(self.lengths, length)
        self.total += length
        if self.size < self.kept:
            self.order.append(length)
            self.size += 1
            return
        gone = self.order[self.oldest]
        self.total -= gone
        self.lengths.pop(bisect_right(self.lengths, gone) - 1)
        self.order[self.oldest] = length
        self.oldest = (self.oldest + 1) % self.kept


class LengthTable:
    """The same as a table of counts by length: an entry to count, a slice of it to add."""

    def __init__(self, limit: int, kept: int = KEPT) -> None:
        self.kept = kept
        self.at_most = array("i", [0]) * (limit + 1)
        self._table = np.frombuffer(self.at_most, np.int32)
        self._order: list[int] = []
        self._oldest = 0
        self.size = 0

    def add(self, length: int) -> None:
        """Record a length, and forget the oldest if there are too many."""
        if self.size < self.kept:
            self._order.append(length)
            self.size += 1
            self._table[length:] += 1
            return
        oldest = self._order[self._oldest]
        self._order[self._oldest] = length
        self._oldest = (self._oldest + 1) % self.kept
        if length < oldest:
            part = self._table[length:oldest]
            part += 1
        elif length > oldest:
            part = self._table[oldest:length]
            part -= 1


def recent_lengths(limit: int) -> RecentLengths:
    """Return a table unless lengths up to the limit would make it large."""
    return LengthTable(limit) if limit < _LARGEST_TABLE else SortedLengths()


_SILENCE = 8  # after so many usual gaps without an arrival none is expected (e^-8 under Poisson)
_MEMORY = 1 / 32  # weight of the last gap between arrivals, and prediction error, in their means
_DOUBT = 20  # requests with the mean hazard that the learned hazard at an age is mixed with
_LOOKED_AT = 64  # ends, or stages, that a decision looks at


class ArrivalRate:
    """How many requests arrive a nanosecond, by a moving average of the gaps."""

    def __init__(self) -> None:
        self.count = 0
        self.gap_ns = 0.0
        self.last_ns = 0

    def note(self, arrival_ns: int) -> None:
        """Record an arrival."""
        if self.count:
            gap = arrival_ns - self.last_ns
            self.gap_ns += (gap - self.gap_ns) * max(_MEMORY, 1 / self.count)
        self.count += 1
        self.last_ns = arrival_ns

    def rate(self, now_ns: int) -> float:
        """Return the rate, 0 where none has been seen or it has been silent for long."""
        if self.gap_ns <= 0 or now_ns - self.last_ns > _SILENCE * self.gap_ns:
            return 0.0
        return 1 / self.gap_ns


class Tally:
    """Numbers of which many are equal, in order: what it costs grows with the different ones."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.order: list[int] = []
        self._found = 0, 0, 0  # the last answer of `smallest`, and to which question
        self._up_to = -1  # it holds as long as no number up to this comes or goes

    def add(self, number: int) -> None:
        """Count a number."""
        before = self.counts.get(number, 0)
        self.counts[number] = before + 1
        if not before:
            insort(self.order, number)
        if number <= self._up_to:
            self._up_to = -1

    def remove(self, numbers: Sequence[int]) -> None:
        """Count each of some present numbers once less."""
        counts, order = self.counts, self.order
        if min(numbers, default=0) <= self._up_to:
            self._up_to = -1
        for number in numbers:
            counts[number] -= 1
            if not counts[number]:
                del counts[number], order[bisect_left(order, number)]

    def largest(self) -> int:
        """Return the largest number, 0 if there is none."""
        return self.order[-1] if self.order else 0

    def smallest(self, most: int) -> tuple[int, int]:
        """Return the number of the smallest ones, at most that many, and their sum."""
        if self._up_to >= 0 and self._found[0] == most:
            return self._found[1:]
        left, total, counts, number = most, 0, self.counts, -1
        for number in self.order:
            count = counts[number]
            if count >= left:
                total += left * number
                left = 0
                break
            total += count * number
            left -= count
        self._found = most, most - left, total
        self._up_to = -1 if left else number
        return most - left, total


class KnownEnds:
    """Ends of running requests, and rounds of waiting ones, by known or predicted lengths."""

    def __init__(self, view: View, lengths: Sequence[int]) -> None:
        self.lengths, self.limit = lengths, view.output_limit_tokens
        self.first = int(view.first_token == "prefill")
        self.ends: list[int] = []
        self.end_of: dict[int, int] = {}
        self.waiting = Tally()
        self.work = 0
        self.sum_ends = 0
        self.mean_error = 0.0

    def _rounds(self, request: int) -> int:
        return max(0, min(self.lengths[request], self.limit) - self.first)

    def queue(self, request: int) -> None:
        """Record a request that waits."""
        rounds = self._rounds(request)
        self.waiting.add(rounds)
        self.work += rounds

    def start(self, now: int, stage: Sequence[int]) -> None:
        """Record requests that start."""
        lengths, first, most = self.lengths, self.first, self.limit - self.first
        rounds = [lengths[request] - first for request in stage]
        if not 0 <= min(rounds, default=0) <= max(rounds, default=0) <= most:
            rounds = [max(0, min(each, most)) for each in rounds]
        self.waiting.remove(rounds)
        self.work -= sum(rounds)
        ends = [now + each for each in rounds]
        self.end_of.update(zip(stage, ends, strict=True))
        if ends and ends[0] > ends[-1]:
            ends.reverse()  # longest first, of which many are equal
        self.ends += ends
        self.ends.sort()  # two runs that are in order, or nearly: one pass
        self.sum_ends += sum(ends)

    def finish(self, now: int, request: int) -> None:
        """Record an end, and how wrong the length was."""
        end = self.end_of.pop(request, None)
        if end is None:
            return
        error = abs(now - end)
        self.mean_error += (error - self.mean_error) * _MEMORY
        at = bisect_right(self.ends, end) - 1
        if at >= 0 and self.ends[at] == end:
            self.ends.pop(at)
            self.sum_ends -= end

    def wait(
        self, now: int, clients: int, left: int, most: int, price: float, worth: float, delay: int
    ) -> int:
        """Return the rounds until the next end that is worth it, or 0. Waiting until the j-th end
        costs ``price`` for each idle client-round until then, and ``delay`` for each round by which
        the longest waiting request would end after everything else; it brings j clients (at most
        ``left`` can be used), each worth ``worth``."""
        ends = self.ends
        if ends and ends[0] <= now:
            past = bisect_right(ends, now)
            self.sum_ends -= sum(ends[:past])  # overdue: predictions that were too short
            del ends[:past]
        if not ends:
            return 0
        count, short = self.waiting.smallest(most)
        tail = short / (2 * count) if count else 0.0
        work = self.work + self.sum_ends - now * len(ends)
        rest = max(ends[-1] - now, work / most + tail)
        longest = self.waiting.largest() if delay else -inf
        useful = min(left, _LOOKED_AT)
        most_worth = worth * useful  # idle time only grows: more than this never pays
        total = 0
        for count, end in enumerate(ends[:useful], 1):
            rounds = end - now
            total += rounds
            cost = price * ((clients + count) * rounds - total)
            if cost > most_worth:
                break
            late = rounds + longest - rest
            if late > 0:
                cost += delay * late
            if cost < worth * count:
                return rounds
        return 0


class LearnedEnds:
    """When running requests may end, learned from those that have, and from the output limit."""

    def __init__(self, view: View) -> None:
        self.limit = view.output_limit_tokens - int(view.first_token == "prefill")
        self.doubt = max(1, self.limit) / 2
        self.stages: list[list[int]] = []  # start round, requests that still run
        self.stage_of: dict[int, list[int]] = {}
        self.lengths = recent_lengths(self.limit)
        self.sum_lengths = self.sum_starts = self.count = 0

    def start(self, now: int, stage: Sequence[int]) -> None:
        """Record requests that start."""
        self.stages = [entry for entry in self.stages if entry[1]]
        entry = [now, len(stage)]
        self.stages.append(entry)
        self.stage_of.update(dict.fromkeys(stage, entry))
        self.sum_starts += now * len(stage)

    def finish(self, now: int, request: int) -> int:
        """Record an end; return the rounds that the request took."""
        entry = self.stage_of.pop(request)
        begin = entry[0]
        entry[1] -= 1
        taken = now - begin
        self.sum_starts -= begin
        self.sum_lengths += taken
        self.count += 1
        self.lengths.add(taken)
        return taken

    def hazard(self, now: int, active: int) -> float:
        """Return ends a client-round: requests that ended over the rounds of all so far; before any
        has, as if each took half of the limit."""
        rounds = self.sum_lengths + active * now - self.sum_starts
        return (self.count + 1) / (rounds + self.doubt)

    def expects_one(self, now: int, rounds: int, hazard: float) -> bool:
        """Whether at least one running request is expected to end within some rounds. The hazard of
        each age is that of the requests seen at that age; one at the limit ends."""
        at_most, limit = self.lengths.at_most, self.limit - rounds
        doubted = _DOUBT * rounds * hazard
        expected, longer = 0.0, self.lengths.size + _DOUBT
        for begin, alive in self.stages[-_LOOKED_AT:] if len(self.stages) > 99 else self.stages:
            if not alive:
                continue
            age = now - begin
            if age < limit:
                below = at_most[age]
                share = (at_most[age + rounds] - below + doubted) / (longer - below)
                expected += alive * share if share < 1 else alive
            else:
                expected += alive
            if expected >= 1:
                return True
            longer += alive  # requests of older stages have outlived this age too
        return False


def known_lengths(view: View) -> Sequence[int] | None:
    """Return the output lengths that the view shows, true before predicted, or None."""
    if isinstance(view, ClairvoyantView):
        return view.output_tokens
    if isinstance(view, PredictedView):
        return view.predicted_tokens
    return None
