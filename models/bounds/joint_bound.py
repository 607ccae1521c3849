"""Lower bounds on stages and rounds together: few stages end requests at few moments.

A client gets its next request at a stage. So between the stage that prefills a request and the
first stage after its end (or the end of all) its client serves no other request: a *window*. K
stages have at most K (K + 1) / 2 windows of different lengths, and every request's rounds are
rounded up to one of these. The cheapest rounding is bounded from below by a price for each length
used. Where many requests are long, some client serves as many of these as fit, one after the other:
their starts are so far apart that fewer windows are short. Weights by role and window prove more
rounds: a linear program, by cutting planes, finds them."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.certificates.alignment import (
    Contents,
    Shorts,
    Weights,
    least_weight,
    short_windows,
    too_few,
)
from orsched.certificates.stages_rounds import Long, Rounding, long_of, windows
from orsched.certificates.step_lower_bounds import decode_floor, prefill_floor
from orsched.models.pcmax.columns import linear_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orsched.certificates.alignment import Floats, Numbers
    from orsched.certificates.context import Context, Jobs
    from orsched.costs import Floor


MAX_REQUESTS, MAX_WORK, MAX_ROUNDS_IN_ALL = 2_000, 12_000, 2**60


def joint_certificate(context: Context, plain: dict[str, Any]) -> dict[str, Any] | None:
    """Return the certificate of the joint bound, given that by stages and rounds each alone. None
    where it cannot improve (so many windows as there are lengths), where the cost model has no
    fixed parts to trade, or where it would take long. ``prices`` are of K, K + 1, ... stages: one
    for all windows and, where there is a ``long`` length, one for those shorter than it. For more
    stages than are listed the time of the stages and the rounds alone suffices."""
    jobs, floor = context.released(plain["released_ns"]), context.floor(0)
    rounding = Rounding.of(jobs.rounds)
    lengths, n = rounding.lengths, len(rounding.lengths)
    if not floor.by_counts or len(jobs) > MAX_REQUESTS or n == 0:
        return None
    if n * (isqrt(2 * n) + 1) > MAX_WORK or lengths[-1] * len(jobs) > MAX_ROUNDS_IN_ALL:
        return None
    best: dict[str, Any] | None = None
    for long in [None, *long_lengths(jobs, plain["decode_rounds"]["value"])]:
        trade = _Trade(floor, jobs, plain, rounding, long)
        if trade.few_windows(plain["prefill_stages"]["value"]):
            found = trade.certificate()
            if best is None or found["value_ns"] > best["value_ns"]:
                best = found
    return best


def long_lengths(jobs: Jobs, rounds: int) -> list[Long]:
    """Return for each q the greatest length L of which q fit into the rounds and more than ``(q -
    1) J`` requests are that long: some client must serve q of them."""
    ordered = np.sort(jobs.rounds)[::-1]
    found = []
    for fitting in range(1, -(-len(ordered) // jobs.clients) + 1):
        length = min(int(ordered[(fitting - 1) * jobs.clients]), rounds // fitting)
        if length > 0 and rounds // length == fitting:
            found.append(long_of(jobs, rounds, length))
    return found


@dataclass(frozen=True)
class _Trade:
    """More stages against more rounds."""

    floor: Floor
    jobs: Jobs
    plain: dict[str, Any]
    rounding: Rounding
    long: Long | None

    def few_windows(self, stages: int) -> bool:
        """Whether there are fewer windows than lengths, so that something is lost."""
        if windows(stages) < len(self.rounding.lengths):
            return True
        if self.long is None:
            return False
        return short_windows(stages, self.long.fitting) + 1 < len(self.long.rounding.lengths)

    def certificate(self) -> dict[str, Any]:
        """Price each number of stages that matters; the least time of all is the bound."""
        plain, floor, jobs = self.plain, self.floor, self.jobs
        stages, rounds = plain["prefill_stages"]["value"], plain["decode_rounds"]["value"]
        decode_alone = decode_floor(floor, jobs, rounds)
        prices: list[list[int]] = []
        best: int | None = None
        while True:
            prefill = prefill_floor(floor, jobs, stages)
            alone = prefill + decode_alone
            if not self.few_windows(stages) or (best is not None and alone >= best):
                best = alone if best is None else min(best, alone)
                break
            found, needed = self._needed(stages, prices[-1] if prices else None)
            prices.append(found)
            time = prefill + decode_floor(floor, jobs, needed)
            best = time if best is None else min(best, time)
            stages += 1
        kept = {k: value for k, value in plain.items() if k not in ("prefill_ns", "decode_ns")}
        long = {} if self.long is None else {"long": self.long.length}
        value = plain["released_ns"] + best
        return kept | {"bound": "joint", **long, "prices": prices, "value_ns": value}

    def _needed(self, stages: int, known: list[int] | None) -> tuple[list[int], int]:
        """Return the prices for a number of stages, and how many rounds they need at least."""
        least: int = self.plain["decode_rounds"]["value"]
        price, lost = best_price(self.rounding, windows(stages), known[0] if known else None)
        rounds = max(least, self._rounds(lost))
        if self.long is None:
            return [price], rounds
        values = short_windows(stages, self.long.fitting) + 1
        short, lost = best_price(self.long.rounding, values, known[1] if known else None)
        aligned, beyond = (
            max(rounds, self._rounds(lost)),
            self.long.length * (least // self.long.length + 1),
        )
        return [price, short], aligned if aligned < beyond else max(rounds, beyond)

    def _rounds(self, lost: int) -> int:
        needed: int = self.plain["rounds_needed"] + lost
        return -(-needed // self.jobs.clients)


def best_price(rounding: Rounding, values: int, at_most: int | None = None) -> tuple[int, int]:
    """Return a price, and the least cost of rounding to this many values or fewer. ``at_most``: a
    price that is known to be enough, such as that for fewer values."""
    low, high = 0, at_most
    if high is None:
        high = rounding.lengths[-1] * rounding.requests[-1]
    while low < high:
        middle = (low + high) // 2
        if rounding.priced(middle)[1] <= values:
            high = middle
        else:
            low = middle + 1
    return low, rounding.priced(low)[0] - low * values


MOST_REQUESTS = 200
_NONE = -(2**60)
WHOLE = 1 << 26  # of weights in whole numbers: what is 1 in the linear program


def shorts_of(jobs: Jobs) -> Shorts | None:
    """Return the requests by length, or None where there are none or too many."""
    return None if len(jobs) > MOST_REQUESTS else Shorts.of(jobs.rounds, jobs.clients)


def from_row(row: Numbers) -> Weights:
    """Return the parts of a row of the linear program."""
    end, middle, single, window = row[:-1].reshape(4, -1)
    return Weights(end, middle, single, window, row[-1])


def whole(weights: Weights) -> Weights:
    """Return weights in whole numbers, not below 0."""
    parts = [np.rint(part * WHOLE).astype(np.int64) for part in weights[:4]]
    end, middle, single, window = (np.maximum.accumulate(part) for part in parts)
    return Weights(end, middle, single, window, round(float(weights.long) * WHOLE))


def heaviest_rows(contents: Contents, rounds: int) -> Iterator[Floats]:
    """Yield the heaviest content for each number of longs, as a row over the weights."""
    long, n = contents.shorts.long, len(contents.sizes)
    for longs in range(rounds // long + 1):
        row, left = np.zeros(4 * n + 1), rounds - longs * long
        row[-1] = longs
        other = contents.one[left] if longs else contents.only[left]
        if contents.two[left] >= max(other, 0):
            left = _add_end(contents, row, left, contents.last)
            left = _add_end(contents, row, left, contents.middles[-1])
            _add_middles(contents, row, left)
        elif longs and other > 0:
            _add_end(contents, row, left, np.zeros_like(contents.one))
        elif other > 0:
            fitting = sum(size <= left for size in contents.sizes)
            row[[2 * n + fitting - 1, 3 * n + fitting - 1]] += 1
        yield row


def _add_end(contents: Contents, row: Floats, left: int, before: Numbers) -> int:
    """Add the best first or last short to a row; return the rounds that are left."""
    n, rest = len(contents.sizes), left - contents.shorts.sizes
    values = before[np.maximum(rest, 0)] + contents.weights.end + contents.weights.window
    possible = (rest >= 0) & (before[np.maximum(rest, 0)] >= 0)
    at = int(np.argmax(np.where(possible, values, _NONE)))
    row[[at, 3 * n + at]] += 1
    return int(rest[at])


def _add_middles(contents: Contents, row: Floats, left: int) -> None:
    n = len(contents.sizes)
    for number in range(len(contents.items) - 1, -1, -1):
        at, times = contents.items[number]
        if contents.middles[number + 1][left] > contents.middles[number][left]:
            row[[n + at, 3 * n + at]] += times
            left -= times * contents.sizes[at]


def rounded_rows(
    shorts: Shorts, weights: Weights, places: int, windows: int
) -> tuple[float, Floats, Floats]:
    """Return the least weight of all requests, by role and by window, and a row for each."""
    n = len(shorts.sizes)
    by_role, by_window, longs = least_weight(shorts, weights, places, windows)
    roles, in_windows = np.zeros(4 * n + 1), np.zeros(4 * n + 1)
    for at, many in enumerate(shorts.counts.tolist()):
        up = int(by_role.lengths[at])
        options = (weights.end[up], weights.middle[at], weights.single[at])
        roles[(up, n + at, 2 * n + at)[int(np.argmin(options))]] += many
        in_windows[3 * n + int(by_window.lengths[at])] += many
    roles[-1] = shorts.longs
    return by_role.total + by_window.total + longs, roles, in_windows


MOST_SOLVES = 800  # linear programs solved for all proofs of an instance together
MOST_STAGES_MORE, MOST_ROUNDS_MORE = 6, 16
_MARGIN, _NEAR = 1e-5, 0.05
"""By how much weights must prove, and how near the last solution a cut must be to be kept."""


class Proof(NamedTuple):
    """Weights, and what they prove: (stages, rounds), so many stages need so many rounds."""

    weights: Weights
    proves: list[tuple[int, int]]


class Solver:
    """Finds weights by cutting planes: contents of a client, and roundings of all requests. The
    program maximizes what all requests weigh, where no client holds more than 1. Cuts are taken
    halfway between its solution and the best weights so far."""

    def __init__(self, shorts: Shorts, out_of_time: Callable[[], bool]) -> None:
        self.shorts, self.out_of_time, self.solves = shorts, out_of_time, MOST_SOLVES
        self._contents: dict[bytes, Floats] = {}
        self._roles: dict[bytes, tuple[int, Floats]] = {}
        self._windows: dict[bytes, tuple[int, Floats]] = {}
        self._last: tuple[Floats, tuple[float, float]] | None = None
        self._sizes = np.concatenate([*[shorts.sizes] * 3, 0 * shorts.sizes, [shorts.long]])
        self._inner = self._sizes

    def prove(self, stages: int, rounds: int) -> Proof | None:
        """Return a proof that this many stages need more rounds than these, or None."""
        known = self.shorts.places(stages, rounds)
        if known is None or known[0] >= len(self.shorts.lengths):
            return None
        row = self._weights(*known, rounds)
        self._forget()
        if row is None:
            return None
        weights = whole(from_row(row))
        proves = proven(self.shorts, weights, stages, rounds)
        return Proof(weights, proves) if proves else None

    def _weights(self, places: int, windows: int, rounds: int) -> Floats | None:
        """Return weights by which all requests are heavier than the clients' contents."""
        program, clients = _Program(len(self.shorts.sizes)), self.shorts.clients
        for row in self._contents.values():
            if float(row @ self._sizes) <= rounds:
                program.add_content(row)
        for kind, (rounded, limit) in enumerate(((self._roles, places), (self._windows, windows))):
            for values, row in rounded.values():
                if values <= limit:
                    program.add_rounding(kind, row)
        inner, best = self._start(places, windows, rounds)
        if best > clients * (1 + _MARGIN):
            return inner
        while self.solves > 0 and not self.out_of_time():
            outer, bounds = self._last = program.solve()
            self.solves -= 1
            if sum(bounds) <= clients * (1 + _MARGIN):
                return None
            for point in ((inner + outer) / 2, outer):
                weights = from_row(point)
                contents = Contents(self.shorts, weights, rounds)
                most = max(contents.by_longs(rounds))
                total, *rows = rounded_rows(self.shorts, weights, places, windows)
                if total > best * most:
                    inner, best = point / most, total / most
                    self._inner = inner
                if best > clients * (1 + _MARGIN):
                    return inner
                fresh = [
                    row for row in heaviest_rows(contents, rounds) if float(row @ outer) > 1 + 1e-9
                ]
                for row in fresh:
                    self._contents[row.tobytes()] = row
                    program.add_content(row)
                light = [k for k in (0, 1) if float(rows[k] @ outer) < bounds[k] - 1e-9]
                for kind in light:
                    known = (self._roles, self._windows)[kind]
                    known[rows[kind].tobytes()] = ((places, windows)[kind], rows[kind])
                    program.add_rounding(kind, rows[kind])
                if fresh or light:
                    break
            else:
                return None
        return None

    def _start(self, places: int, windows: int, rounds: int) -> tuple[Floats, float]:
        """Return the better of the lengths themselves and of the last weights, and its value."""
        found: list[tuple[float, Floats]] = []
        for point in (self._sizes / rounds, self._inner):
            weights = from_row(point)
            most = max(Contents(self.shorts, weights, rounds).by_longs(rounds))
            total, *_ = rounded_rows(self.shorts, weights, places, windows)
            found.append((total / most, point / most))
        best, inner = max(found, key=lambda pair: pair[0])
        return inner, best

    def _forget(self) -> None:
        """Keep the cuts that are near the last solution: programs of all of them are slow."""
        if self._last is None:
            return
        outer, bounds = self._last
        for row in list(self._contents.values()):
            if float(row @ outer) < 1 - _NEAR:
                del self._contents[row.tobytes()]
        for known, bound in zip((self._roles, self._windows), bounds, strict=True):
            for _, row in list(known.values()):
                if float(row @ outer) > bound + self.shorts.clients * _NEAR:
                    del known[row.tobytes()]


def proven(shorts: Shorts, weights: Weights, stages: int, rounds: int) -> list[tuple[int, int]]:
    """Return what whole weights prove: (stages, rounds), for these stages or more."""
    found: list[tuple[int, int]] = []
    contents = Contents(shorts, weights, rounds + MOST_ROUNDS_MORE)
    for more in range(MOST_STAGES_MORE):
        needed = rounds
        while needed < rounds + MOST_ROUNDS_MORE:
            if not too_few(shorts, weights, stages + more, needed, contents):
                break
            needed += 1
        if needed == rounds:
            break
        if found and found[-1][1] == needed:
            found.pop()
        found.append((stages + more, needed))
    return found


class _Program:
    """The linear program over the contents and roundings known so far, solved by SoPlex."""

    def __init__(self, n: int) -> None:
        self._lp = linear_program("ends")
        self._total = 4 * n + 1
        objective = [0.0] * self._total + [-1.0, -1.0]
        upper = [1.0] * self._total + [1e6, 1e6]
        columns: list[list[tuple[int, float]]] = [[] for _ in objective]
        self._lp.addCols(columns, objs=objective, lbs=[0.0] * len(objective), ubs=upper)
        for at in range(4 * n):
            if (at + 1) % n:
                self._lp.addRow([(at, 1.0), (at + 1, -1.0)], lhs=-1e20, rhs=0.0)

    def add_content(self, row: Floats) -> None:
        """A client's content weighs 1 at most."""
        self._lp.addRow([(int(k), float(row[k])) for k in np.flatnonzero(row)], lhs=-1e20, rhs=1.0)

    def add_rounding(self, kind: int, row: Floats) -> None:
        """All requests together weigh no more than with this rounding, by role or by window."""
        entries = [(int(k), -float(row[k])) for k in np.flatnonzero(row)]
        self._lp.addRow([*entries, (self._total + kind, 1.0)], lhs=-1e20, rhs=0.0)

    def solve(self) -> tuple[Floats, tuple[float, float]]:
        """Return the best weights, and what all requests weigh with them, by role and window."""
        self._lp.solve(dual=True)
        values = np.array(self._lp.getPrimal())
        return np.maximum(values[:-2], 0.0), (float(values[-2]), float(values[-1]))
