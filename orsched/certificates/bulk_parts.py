"""What the program of bulk bounds is made of: demands, least times of steps, and whole numbers.

By when requests with limits need their prefills and rounds; what every step of every worker takes
at least, in parts that add up over steps (exact fractions of nanoseconds, from the floors that cost
models state; docs/proofs.md); and a linear program whose dual prices prove a bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from orsched.certificates.scope import has_prefix_cache

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from orsched.certificates.scope import Scope
    from orsched.common.columns import IntColumn
    from orsched.costs import Floor, StageFloor
    from orsched.data.instance import Instance
    from orsched.data.workers import Worker


PRICE_SCALE = 2**80
"""Dual prices are whole numbers of so many parts."""


class Program:
    """Maximise ``gain x`` over ``rows x <= limits`` and ``0 <= x <= upper``, all whole numbers.

    ``gain`` and ``upper`` are by column, ``rows`` are entries (column, coefficient).
    """

    def __init__(self) -> None:
        self.gain: list[int] = []
        self.upper: list[int] = []
        self.rows: list[list[tuple[int, int]]] = []
        self.limits: list[int] = []

    def column(self, upper: int, gain: int = 0) -> int:
        """Add a column; return its number."""
        self.gain.append(gain)
        self.upper.append(upper)
        return len(self.gain) - 1

    def at_most(
        self,
        entries: Iterable[tuple[int, int | Fraction]],
        limit: int | Fraction,
        scale: int | Fraction = 1,
    ) -> int:
        """Add a row, in parts of 1 / scale; return its number.

        Coefficients are rounded down, the limit up: no solution is lost, as no column is negative.
        """
        row = [(column, _down(value * scale)) for column, value in entries]
        self.rows.append([entry for entry in row if entry[1]])
        self.limits.append(-_down(-limit * scale))
        return len(self.rows) - 1

    def proven(self, prices: Iterable[tuple[int, int]]) -> int:
        """Return what the program's value is at most, rounded down, by weak duality.

        For prices y >= 0 of the rows: y limits, and of each column as much as its gain is above
        what its entries are priced, up to its upper bound. Any prices prove a bound. ``prices``:
        rows and prices, in parts of 1 / ``PRICE_SCALE``; all others are 0. Raises ``ValueError``
        for no such row, one named twice, or a negative price.
        """
        left = [gain * PRICE_SCALE for gain in self.gain]
        total, named = 0, set()
        for row, price in prices:
            if price < 0 or row >= len(self.rows) or row in named:
                raise ValueError(f"the price {price} of row {row}")
            named.add(row)
            total += price * self.limits[row]
            for column, value in self.rows[row]:
                left[column] -= price * value
        columns = zip(left, self.upper, strict=True)
        return (total + sum(rest * upper for rest, upper in columns if rest > 0)) // PRICE_SCALE


def _down(value: int | Fraction) -> int:
    return value.numerator // value.denominator


_NOTHING = Fraction(0)


@dataclass(frozen=True)
class Rates:
    """Least nanoseconds of steps: ``round_fixed`` of one with a round, ``request`` of each in it.

    ``context`` and ``longest`` for each token of the contexts, and of the longest of them.
    ``again_fixed``: of a step without a round in which requests that were evicted are prefilled
    again, which yields a token of each; None where no step yields tokens so. ``again_cached``: such
    a request may find its own blocks. ``prefills``: of a prompt, by the tokens of it that are
    computed. ``added``: rounds and prefills of a step add up; else it takes the larger of both.
    """

    round_fixed: Fraction
    request: Fraction
    context: Fraction
    longest: Fraction
    again_fixed: Fraction | None
    again_cached: bool
    prefills: Prefills
    added: bool

    def again_of(self, prompt: int) -> Fraction:
        """Return the time of a repeated prefill of such a prompt, or a longer one."""
        return self.prefills.of(1 if self.again_cached else prompt + 1)

    def least_of(self, other: Rates) -> Rates:
        """Return the smaller of each part: what steps of both workers take at least."""
        again = None
        if self.again_fixed is not None and other.again_fixed is not None:
            again = min(self.again_fixed, other.again_fixed)
        return Rates(
            min(self.round_fixed, other.round_fixed),
            min(self.request, other.request),
            min(self.context, other.context),
            min(self.longest, other.longest),
            again,
            self.again_cached or other.again_cached,
            Prefills((*self.prefills.kinds, *other.prefills.kinds)),
            self.added and other.added,
        )


@dataclass(frozen=True)
class Prefills:
    """Least nanoseconds of a prompt's prefill, by its tokens; the least over the workers' kinds.

    Each kind: ``factor * (request + max(square p^2 + token p, least)) + rate * p``.
    """

    kinds: tuple[tuple[Fraction, int, int, int, int, Fraction], ...]

    def of(self, tokens: int) -> Fraction:
        """Return the time of a prompt that computes so many tokens."""
        return min(self._of(kind, tokens) for kind in self.kinds)

    def slope(self, tokens: int) -> Fraction:
        """Return by what the time grows at least with each token above these."""
        return min(self._of(kind, tokens + 1) - self._of(kind, tokens) for kind in self.kinds)

    @staticmethod
    def _of(kind: tuple[Fraction, int, int, int, int, Fraction], tokens: int) -> Fraction:
        factor, request, square, token, least, rate = kind
        own = request + max((square * tokens + token) * tokens, least)
        return factor * own + rate * tokens


def rates_of(instance: Instance, scope: Scope, active: int) -> Rates:
    """Return what each step of each worker takes at least; ``ValueError`` where none is known.

    ``active``: the most requests that a round has.
    """
    found = [_rates(instance, worker, scope, active) for worker in instance.workers]
    rates = found[0]
    for other in found[1:]:
        rates = rates.least_of(other)
    return rates


def _rates(instance: Instance, worker: Worker, scope: Scope, active: int) -> Rates:
    floor = scope.require_floor(worker)
    if not floor.stage.grows:
        raise ValueError("prompts of the cost model take less for being longer")
    clients = min(worker.clients, max(1, len(instance)))
    prompts = instance.requests.prompt_tokens
    shortest, longest = int(prompts.min(initial=1)), int(prompts.max(initial=1))
    longest += int(instance.requests.output_tokens.max(initial=1))
    parts, unit = floor.round, floor.unit
    mean = parts.mean or 0
    all_contexts = parts.context + parts.longest + mean
    least = parts.fixed + parts.request + all_contexts * (shortest + 1)
    exact = unit == 1 and not mean
    times = Fraction(floor.times, unit) * _kept(least, unit, exact)
    again_fixed, prefills = _stage(floor, worker, clients, longest, scope)
    return Rates(
        times * parts.fixed,
        times * parts.request,
        times * (parts.context + Fraction(mean, min(clients, active))),
        times * parts.longest,
        again_fixed if scope.yielding else None,
        has_prefix_cache(instance),
        prefills,
        not scope.mixed or floor.mixed in ("sum", "one_fixed"),
    )


def _kept(least: int, unit: int, exact: bool) -> Fraction:
    """Return the share of a step's time that rounding leaves, of at least ``least`` units.

    Half a nanosecond is lost at most, of a time of at least that many whole ones.
    """
    if exact:
        return Fraction(1)
    whole = least // unit
    return Fraction(2 * whole - 1, 2 * whole) if whole else _NOTHING


def _stage(
    floor: Floor, worker: Worker, clients: int, longest: int, scope: Scope
) -> tuple[Fraction, Prefills]:
    """Return the fixed part of a stage, and the parts of prompts."""
    stage, limit = floor.stage, worker.prefill_limit
    if stage.levels is not None:
        # The larger of the smallest level and of the tokens' time: at least half of both.
        rate = min(Fraction(time, cap) for cap, time in stage.levels)
        if not scope.yielding:
            return _NOTHING, Prefills(((_NOTHING, 0, 0, 0, 0, rate),))
        half = Fraction(stage.levels[0][1], 2)
        return half, Prefills(((_NOTHING, 0, 0, 0, 0, rate / 2),))
    least = stage.fixed + stage.longest + stage.own(1)
    times = Fraction(floor.times, floor.unit) * _kept(least, floor.unit, floor.unit == 1)
    rate = Fraction(stage.longest, clients)
    both_fixed = not scope.mixed or floor.mixed != "one_fixed"
    if both_fixed and limit is not None and not scope.yielding:
        rate += Fraction(stage.fixed, limit)
    if scope.chunks:
        rate += _chunk_rate(stage, longest)
        return times * stage.fixed, Prefills(((times, 0, 0, 0, 0, times * rate),))
    kind = (times, stage.request, stage.square, stage.token, stage.least or 0, times * rate)
    return times * stage.fixed, Prefills((kind,))


def _chunk_rate(stage: StageFloor, longest: int) -> Fraction:
    """Return what a token of a prefill takes at least, in whatever chunks: units a token."""
    own = Fraction(stage.request, longest)
    if stage.least is None or stage.least <= 0:
        return own + stage.square + stage.token
    low, high = 0, longest  # the most tokens that take the least time
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high)
            if (stage.square * middle + stage.token) * middle <= stage.least
            else (low, middle - 1)
        )
    beyond = Fraction(stage.square * (low + 1) + stage.token)
    within = Fraction(stage.least, low) if low else beyond
    return own + (within if low == longest else min(within, beyond))


def active_at_most(instance: Instance, held: np.ndarray, room: int | None) -> int:
    """Return the most requests that any worker serves at one time: its clients, or its memory.

    ``held`` is what each request holds at least while it is served, ``room`` what a worker has.
    """
    clients = min(max(worker.clients for worker in instance.workers), max(1, len(instance)))
    if room is None:
        return clients
    return max(1, min(clients, int((np.cumsum(np.sort(held)) <= room).sum())))


NEVER = 2**63 - 1
"""A moment that no limit names."""


@dataclass(frozen=True)
class Demands:
    """When the requests with limits are due, whichever of the usual readings of TPOT is meant.

    ``rows`` are the requests that have limits and are not bulk. By ``first_ns`` the prefill must be
    done, by ``end_ns`` all tokens be there, ``NEVER`` without a limit; ``rounds`` are needed.
    """

    rows: IntColumn
    arrival_ns: IntColumn
    first_ns: IntColumn
    end_ns: IntColumn
    rounds: IntColumn

    @classmethod
    def of(cls, instance: Instance) -> Demands:
        """Return the demands of an instance's classes.

        A request meets its limits only if its last token comes before ``ttft + (tpot + 1) (n - 1)``
        nanoseconds after its arrival: both if each token i is due at ``ttft + i tpot`` and if the
        mean time a token, rounded down, is at most ``tpot``.
        """
        requests, kinds = instance.requests, instance.classes
        limited = np.array([kind.has_limits and not kind.bulk for kind in kinds])
        rows = np.flatnonzero(limited[requests.service_class])
        codes, arrival = requests.service_class[rows], requests.arrival_ns[rows]
        own = instance.deadlines_ns
        first, end = [], []
        columns = (rows, codes, arrival, requests.output_tokens[rows])
        for row, code, came, tokens in zip(*(c.tolist() for c in columns), strict=True):
            kind = kinds[code]
            deadline = -1 if own is None else int(own[row])
            last = came + deadline if deadline >= 0 else NEVER
            begun = NEVER if kind.ttft_ns is None else came + kind.ttft_ns
            if kind.ttft_ns is not None and (kind.tpot_ns is not None or tokens == 1):
                pace = 0 if kind.tpot_ns is None else kind.tpot_ns + 1
                last = min(last, begun + pace * (tokens - 1))
            end.append(min(last, NEVER))
            first.append(min(begun, last, NEVER))
        rounds = instance.rounds_needed[rows]
        return cls(rows, arrival, np.array(first, np.int64), np.array(end, np.int64), rounds)

    @property
    def horizon_ns(self) -> int:
        """The last moment at which something is due, or the last arrival where nothing is."""
        due = self.end_ns[self.end_ns < NEVER]
        due = np.concatenate([due, self.first_ns[self.first_ns < NEVER], self.arrival_ns])
        return int(due.max(initial=0))


def hopeless(
    instance: Instance, demands: Demands, rates: Rates, computed: IntColumn, measure: str
) -> NDArray[np.bool_]:
    """Return which requests cannot meet their limits even if they are served alone.

    ``computed`` are the prompt tokens that each request of the instance has to compute. By the
    measure ``attained`` the mean round after the first token must be within the limit.
    """
    codes = instance.requests.service_class
    after = instance.first_token == "decode"
    found = np.zeros(len(demands.rows), bool)
    for at, row in enumerate(demands.rows.tolist()):
        a_round = rates.round_fixed + rates.request
        context = int(instance.requests.prompt_tokens[row]) + 1
        a_round += (rates.context + rates.longest) * context
        if rates.again_fixed is not None:
            a_round = min(a_round, rates.again_fixed + rates.again_of(context - 1))
        begun = int(demands.arrival_ns[at]) + rates.prefills.of(int(computed[row]))
        late = begun + after * a_round > int(demands.first_ns[at])
        end = begun + Fraction(int(demands.rounds[at])) * a_round
        pace = instance.classes[int(codes[row])].tpot_ns
        several = int(instance.requests.output_tokens[row]) > 1
        slow = measure == "attained" and pace is not None and several and a_round >= pace + 1
        found[at] = late or slow or end > int(demands.end_ns[at])
    return found
