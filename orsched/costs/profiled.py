"""The profiled cost model: interpolation in tables of measured times, without fractions."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, lcm
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.units import MAX_TIME_NS
from orsched.costs.exact import floor_sum
from orsched.costs.profiled_grid import Grid, ends_of_line
from orsched.costs.protocol import read_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction


Key = TypeVar("Key")
Value = TypeVar("Value")

Ratio = tuple[int, int]
"""A time in nanoseconds: a whole number over a positive one."""

_MOST_KEPT = 1 << 16
_MOST_LINES = 4096


class Spot(NamedTuple):
    """Where a number lies on an axis: the time there is a line through two of its points.

    ``(a * rest + b * share) / width`` for the times a and b at the points ``low`` and ``high``.
    Beyond the axis it is ``(b * width + max(0, b - a) * share) / width``.
    """

    low: int
    high: int
    rest: int
    share: int
    width: int
    beyond: bool


def spot(axis: Sequence[int], numerator: int, denominator: int = 1) -> Spot:
    """Return where a ratio lies on an axis."""
    index = bisect_right(axis, numerator // denominator)
    low, high, flat = ends_of_line(axis, index)
    if flat:
        return Spot(low, low, 1, 0, 1, False)
    width = (axis[high] - axis[low]) * denominator
    share = numerator - axis[low] * denominator
    if index == len(axis):
        return Spot(low, high, 0, share - width, width, True)
    return Spot(low, high, width - share, share, width, False)


class RoundTimes(NamedTuple):
    """Times of rounds of some active requests: linear in the sum of their contexts, in pieces.

    ``borders`` are the sums at which another piece begins. In a piece a round, rounded half up,
    takes ``(slope * sum + start) // divisor``.
    """

    borders: list[int]
    slopes: list[int]
    starts: list[int]
    divisors: list[int]


class ProfiledTimes:
    """Times of steps before ``time_scale``.

    ``level``: what a step of some tokens and sequences takes without attention; ``prefill`` and
    ``decode``: attention of a chunk behind cached tokens, of a round beside prompt tokens.
    """

    def __init__(self, level: Callable[[int, int], Fraction], prefill: Grid, decode: Grid) -> None:
        self.level_of, self.prefill, self.decode = level, prefill, decode
        self.levels: dict[tuple[int, int], Ratio] = {}
        self.chunks: dict[tuple[int, int], Ratio] = {}
        self.beside: dict[int, Spot] = {}
        self.batches: dict[int, Spot] = {}
        self.lines: dict[int, RoundTimes] = {}
        self.context_axis = decode.axes[2]
        self.batch_stride = len(self.context_axis)
        self.beside_stride = len(decode.axes[1]) * self.batch_stride

    def level(self, tokens: int, sequences: int) -> Ratio:
        """Return what a step of some tokens and sequences takes without attention."""
        found = self.levels.get((tokens, sequences))
        if found is None:
            time = self.level_of(tokens, sequences)
            found = time.numerator, time.denominator
            _keep(self.levels, (tokens, sequences), found, _MOST_KEPT)
        return found

    def chunk(self, tokens: int, cached: int) -> Ratio:
        """Return the attention of a chunk behind cached tokens."""
        found = self.chunks.get((tokens, cached))
        if found is None:
            time = self.prefill.at(tokens, cached)
            found = time.numerator, time.denominator
            _keep(self.chunks, (tokens, cached), found, _MOST_KEPT)
        return found

    def attention(self, prompts: Sequence[int], cached: Sequence[int]) -> Ratio:
        """Return the attention of all chunks; ``cached`` may be empty."""
        total, divisor = 0, 1
        for place, tokens in enumerate(prompts):
            time, width = self.chunk(tokens, cached[place] if cached else 0)
            if width != divisor:
                common = lcm(width, divisor)
                total *= common // divisor
                time *= common // width
                divisor = common
            total += time
        return total, divisor

    def round_beside(self, tokens: int, active: int, context_sum: int) -> Ratio:
        """Return the attention of a round beside prompt tokens; some request is active."""
        outer = self.beside.get(tokens)
        if outer is None:
            outer = spot(self.decode.axes[0], tokens)
            _keep(self.beside, tokens, outer, _MOST_KEPT)
        inner = self.batches.get(active)
        if inner is None:
            inner = spot(self.decode.axes[1], active)
            _keep(self.batches, active, inner, _MOST_KEPT)
        last = spot(self.context_axis, context_sum, active)
        low = self._between(outer, inner, last.low)
        high = low if last.low == last.high else self._between(outer, inner, last.high)
        return _line(last, low, high), outer.width * inner.width * last.width

    def _between(self, outer: Spot, inner: Spot, place: int) -> int:
        """Return the time at a point of the last axis and a place on the others, undivided."""
        times, stride = self.decode.times_ns, self.beside_stride
        ends = []
        for each in (inner.low, inner.high):
            at = each * self.batch_stride + place
            ends.append(
                _line(outer, times[outer.low * stride + at], times[outer.high * stride + at])
            )
        return _line(inner, *ends)

    def stage(self, prompts: Sequence[int], cached: Sequence[int]) -> int:
        """Return the duration of a prefill stage."""
        time, divisor = self.level(sum(prompts), len(prompts))
        more, width = self.attention(prompts, cached)
        divisor *= width
        return (2 * (time * width + more * (divisor // width)) + divisor) // (2 * divisor)

    def mixed(
        self, prompts: Sequence[int], cached: Sequence[int], active: int, context_sum: int
    ) -> int:
        """Return the duration of a step with prompts beside a round of some active requests."""
        tokens = sum(prompts)
        level, a = self.level(tokens + active, len(prompts) + active)
        chunks, b = self.attention(prompts, cached)
        rounds, c = self.round_beside(tokens, active, context_sum)
        divisor = a * b * c
        total = (level * b + chunks * a) * c + rounds * a * b
        return (2 * total + divisor) // (2 * divisor)

    def round(self, active: int, context_sum: int) -> int:
        """Return the duration of a round; some request is active."""
        borders, slopes, starts, divisors = self.lines.get(active) or self._lines(active)
        piece = bisect_right(borders, context_sum)
        return (slopes[piece] * context_sum + starts[piece]) // divisors[piece]

    def rounds(self, rounds: int, active: int, context_sum: int) -> int:
        """Return the duration of a run of rounds, in each of which contexts are one longer."""
        total = 0
        for count, piece, begin in self.pieces(rounds, active, context_sum):
            _, slopes, starts, divisors = self.lines[active]
            slope, start, divisor = slopes[piece], starts[piece], divisors[piece]
            start += slope * begin
            if count == 1 or not slope:
                total += count * (start // divisor)
            else:
                total += floor_sum(count, divisor, slope * active, start)
        return total

    def pieces(self, rounds: int, active: int, context_sum: int) -> list[tuple[int, int, int]]:
        """Cut a run of rounds into straight pieces: rounds, number of the piece, first sum."""
        borders = (self.lines.get(active) or self._lines(active)).borders
        found = []
        while rounds > 0:
            piece = bisect_right(borders, context_sum)
            count = rounds
            if piece < len(borders):
                count = min(rounds, -((context_sum - borders[piece]) // active))
            found.append((count, piece, context_sum))
            rounds -= count
            context_sum += count * active
        return found

    def _lines(self, active: int) -> RoundTimes:
        """Work out the times of rounds of some active requests, and keep them."""
        row, over = self.decode.row(0, active)
        axis, (level, divisor) = self.context_axis, self.level(active, active)
        made = RoundTimes([point * active for point in axis], [], [], [])
        for index in range(len(axis) + 1):
            low, high, flat = ends_of_line(axis, index)
            a, b = row[low], row[high]
            if index == len(axis) and b < a:
                low, a, flat = high, b, True
            width = 1 if flat else (axis[high] - axis[low]) * active
            slope = 0 if flat else b - a
            start = a * width - slope * axis[low] * active
            width *= over
            # Doubled, with one half more: whole numbers alone round half up.
            parts = (
                2 * slope * divisor,
                2 * (start * divisor + level * width) + width * divisor,
                2 * width * divisor,
            )
            common = gcd(*parts)
            for column, part in zip(made[1:], parts, strict=True):
                column.append(part // common)
        _keep(self.lines, active, made, _MOST_LINES)
        return made


def _line(at: Spot, a: int, b: int) -> int:
    """Return the time at a place between two points, times the width."""
    if at.beyond:
        return b * at.width + (b - a) * at.share if b > a else b * at.width
    return a * at.rest + b * at.share


def _keep(kept: dict[Key, Value], key: Key, value: Value, most: int) -> None:
    """Keep a value; all others are dropped when there are too many."""
    if len(kept) >= most:
        kept.clear()
    kept[key] = value


GRIDS = {
    "dense": ("tokens",),
    "prefill": ("chunk", "context"),
    "decode": ("beside", "batch", "context"),
}
"""The tables that every profiled model has, and their axes."""

PER_SEQUENCE = ("sequences",)
"""The axis of the table that a model may have besides."""


@dataclass(frozen=True, kw_only=True)
class ProfiledCost:
    """A step takes ``fixed + dense(x) + sum prefill(c_i, k_i) + decode(p, N, mean context)``.

    With the table ``per_sequence`` it takes ``per_sequence(n)`` besides: what is done once for each
    of the n sequences in the step (chunks, and requests in the round), such as the output layer.

    All tokens of a step go through the dense layers together: x prompt tokens p = sum c_i plus N
    requests in the round. Attention is apart. That of a prompt goes by its c_i tokens and the k_i
    cached before them. That of the N requests beside the p tokens goes by their mean context: it
    reads every cache once, so it depends on the sum. Tables, of whole numbers of at least 0, are
    interpolated (``Grid``), the sum is rounded once, half up, to a nanosecond, and ``time_scale``
    multiplies the rounded duration, so that a scaled model keeps every schedule exactly. A step
    without a round has no decode part.
    """

    fixed_ns: int
    dense: Grid
    prefill: Grid
    decode: Grid
    time_scale: int = 1
    per_sequence: Grid | None = None

    model: ClassVar[str] = "profiled"
    context_matters: ClassVar[bool] = True
    cached_matters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "fixed_ns", whole_number(self.fixed_ns, "fixed_ns", maximum=MAX_TIME_NS))
        scale = whole_number(self.time_scale, "time_scale", minimum=1, maximum=2**62)
        put(self, "time_scale", scale)
        for name, axes in GRIDS.items():
            put(self, name, Grid.read(getattr(self, name), name, axes))
        if self.per_sequence is not None:
            put(self, "per_sequence", Grid.read(self.per_sequence, "per_sequence", PER_SEQUENCE))

    @property
    def prefill_limit(self) -> None:
        """No limit by the model."""
        return None

    def prefill_ns(self, prompts: Sequence[int], cached: Sequence[int] = ()) -> int:
        """Duration of a prefill stage, in ns; ``cached``: tokens before each prompt's (none: 0)."""
        self._require_cached(prompts, cached)
        return self._times.stage(prompts, cached) * self.time_scale

    def round_ns(self, active: int, context_sum: int, context_max: int) -> int:
        """Duration of one decode round, in nanoseconds; the longest context plays no part."""
        if active == 0:
            return self._times.stage((), ()) * self.time_scale
        return self._times.round(active, context_sum) * self.time_scale

    def rounds_ns(self, rounds: int, active: int, context_sum: int, context_max: int) -> int:
        """Duration of a run of rounds, each rounded, in ns: between points of the table linear."""
        if rounds <= 0:
            return 0
        if active == 0:
            return rounds * self.round_ns(0, 0, 0)
        return self._times.rounds(rounds, active, context_sum) * self.time_scale

    def mixed_ns(
        self,
        prompts: Sequence[int],
        active: int,
        context_sum: int,
        context_max: int,
        cached: Sequence[int] = (),
    ) -> int:
        """Duration of a step that prefills the prompts beside a round, in nanoseconds."""
        if active == 0:
            return self.prefill_ns(prompts, cached)
        self._require_cached(prompts, cached)
        return self._times.mixed(prompts, cached, active, context_sum) * self.time_scale

    @cached_property
    def _times(self) -> ProfiledTimes:
        """The same formula in whole numbers: fractions take ten times as long."""
        return ProfiledTimes(self._dense, self.prefill, self.decode)

    def _dense(self, tokens: int, sequences: int) -> Fraction:
        """Return what does not look at contexts."""
        time = self.fixed_ns + self.dense.at(tokens)
        return time if self.per_sequence is None else time + self.per_sequence.at(sequences)

    def _require_cached(self, prompts: Sequence[int], cached: Sequence[int]) -> None:
        if cached and len(cached) != len(prompts):
            raise InputError(
                f"{len(cached)} values for {len(prompts)} prompts",
                field="cached",
                remedy="give one value for each prompt",
            )

    def scaled(self, factor: int) -> Self:
        """Every duration multiplied by ``factor``, after its rounding."""
        return replace(self, time_scale=self.time_scale * factor)

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""
        grids = {name: getattr(self, name).to_dict() for name in GRIDS}
        if self.per_sequence is not None:
            grids["per_sequence"] = self.per_sequence.to_dict()
        return {"fixed_ns": self.fixed_ns, **grids, "time_scale": self.time_scale}

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Read ``fixed_ns`` and the tables; ``per_sequence`` and ``time_scale`` may be left out."""
        optional = ["time_scale", "per_sequence"]
        values = read_parameters(parameters, cls.model, ["fixed_ns", *GRIDS], optional)
        if "per_sequence" in values:  # in a file it is a table or not there: never null
            grid = Grid.read(values["per_sequence"], "per_sequence", PER_SEQUENCE)
            values["per_sequence"] = grid
        return cls(**values)
