"""The roofline cost model: a step reads the weights or computes its tokens, whichever is longer.

The ridge is where both take as long.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import set_whole
from orsched.costs.exact import (
    FS_PER_NS,
    MAX_COEFFICIENT_FS,
    round_half_up,
    round_half_up_sum,
    to_whole_units,
)
from orsched.costs.floor import Floor, RoundFloor, StageFloor, StepLine
from orsched.costs.linear import attended_tokens
from orsched.costs.protocol import read_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.costs.protocol import CostModel

FS_PER_S = 10**15
COEFFICIENTS = ("fixed_fs", "weights_fs", "token_fs", "context_fs", "attended_fs")
MORE = (
    "row_fs", "longest_fs", "launch_fs",
    "beside_request_fs", "beside_context_fs", "beside_launch_fs",
    "request_fs", "window", "window_context_fs", "window_attended_fs",
)  # fmt: skip
"""Coefficients that are 0 unless they are given."""

MOST_PIECES = 64
_FAR = 2**40
Pieces = tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class RooflineCost:
    """A step takes ``fixed + row x + max(weights, token x) + P(x) + context C + attended A``.

    x are the tokens that go through the layers: the prompt tokens and one for each request of the
    round. C is the sum of the round's contexts, M the longest of them. A are the attended tokens of
    the prompts: each prompt token attends to itself, those before it in its chunk, and those cached
    before the chunk, ``c (c + 1) / 2 + c k`` for c tokens after k cached ones. One formula for
    stages, rounds and steps that do both (Williams, Waterman and Patterson, *Roofline*, 2009, for
    one operation). ``request N + longest M`` come on top for a round of N requests, and beside
    prompts ``beside_request N + beside_context C``. A step with prompts takes at least ``launch``,
    and beside a round ``beside_launch``.

    The coefficients are whole femtoseconds (1e-15 s) from 0 to 2**62 (else ``InputError``):
    ``fixed_fs`` a step, ``weights_fs`` the reading of the weights, ``token_fs`` a token,
    ``context_fs`` a token of context that a round reads, ``attended_fs`` an attended token. The
    others are 0 by default. ``row_fs`` is a token, on both sides of the larger part.
    ``request_fs`` is a request of a round, ``longest_fs`` a token of its longest context, for which
    the others wait. ``beside_request_fs`` and ``beside_context_fs`` are a request and a token of
    context beside prompts, where such steps read caches in a slower way. ``launch_fs`` and
    ``beside_launch_fs`` are the least times of steps with prompts, whose kernels the host launches
    one by one.

    ``pieces`` give ``P(x)``, a curve of straight pieces, for experts of which more are read as more
    tokens choose them: a pair (n, s) makes each token above the n-th take s femtoseconds more. The
    n grow strictly from at least 1, at most 64 of them. Some layers may see the last ``window``
    tokens alone. They take ``window_context_fs`` for each of ``min(C, N window)`` tokens: N
    contexts of sum C cannot show them more. ``window_attended_fs`` is a token within the window
    that a prompt token attends to.

    A step is rounded once, half up, to a nanosecond; ``time_scale`` multiplies the rounded
    duration, so that a scaled model keeps every schedule exactly.
    """

    fixed_fs: int
    weights_fs: int
    token_fs: int
    context_fs: int
    attended_fs: int
    time_scale: int = 1
    row_fs: int = 0
    longest_fs: int = 0
    launch_fs: int = 0
    beside_request_fs: int = 0
    beside_context_fs: int = 0
    beside_launch_fs: int = 0
    request_fs: int = 0
    window: int = 0
    window_context_fs: int = 0
    window_attended_fs: int = 0
    pieces: Pieces = ()

    model: ClassVar[str] = "roofline"
    context_matters: ClassVar[bool] = True
    cached_matters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        set_whole(self, *COEFFICIENTS, *MORE, maximum=MAX_COEFFICIENT_FS)
        set_whole(self, "time_scale", minimum=1)
        object.__setattr__(self, "pieces", _read_pieces(self.pieces))

    @classmethod
    def from_s(
        cls, *, fixed: float, weights: float, token: float, context: float, attended: float
    ) -> Self:
        """Build from coefficients of at least 0 in seconds, each rounded to a femtosecond."""
        values = (fixed, weights, token, context, attended)
        pairs = zip(COEFFICIENTS, values, strict=True)
        found: dict[str, Any] = {n: to_whole_units(value, FS_PER_S, n) for n, value in pairs}
        return cls(**found)

    @property
    def prefill_limit(self) -> None:
        """No limit by the model."""
        return None

    def prefill_ns(self, prompts: Sequence[int], cached: Sequence[int] = ()) -> int:
        """Duration of a prefill stage, in ns; ``cached``: tokens before each prompt's (none: 0)."""
        return self._rounded(self._step_fs(prompts, cached, 0, 0, 0))

    def round_ns(self, active: int, context_sum: int, context_max: int) -> int:
        """Duration of one decode round, in nanoseconds."""
        return self._rounded(self._step_fs((), (), active, context_sum, context_max))

    def rounds_ns(self, rounds: int, active: int, context_sum: int, context_max: int) -> int:
        """Duration of a run of rounds, each rounded, in ns: linear as all contexts grow by one."""
        if rounds <= 0:
            return 0
        first = self._step_fs((), (), active, context_sum, context_max)
        slope = self.context_fs * active + self.longest_fs
        room = active * self.window - context_sum if self.window_context_fs else 0
        if room <= 0:  # the window is full for all, or there is none
            return round_half_up_sum(rounds, FS_PER_NS, slope, first) * self.time_scale
        inside = min(rounds, -(-room // active))
        grows = slope + self.window_context_fs * active
        time = round_half_up_sum(inside, FS_PER_NS, grows, first)
        if inside < rounds:
            later = context_sum + inside * active, context_max + inside
            full = self._step_fs((), (), active, *later)
            time += round_half_up_sum(rounds - inside, FS_PER_NS, slope, full)
        return time * self.time_scale

    def mixed_ns(
        self,
        prompts: Sequence[int],
        active: int,
        context_sum: int,
        context_max: int,
        cached: Sequence[int] = (),
    ) -> int:
        """Duration of a step with prefill and round, in ns; the weights are read once for both."""
        return self._rounded(self._step_fs(prompts, cached, active, context_sum, context_max))

    def _step_fs(
        self,
        prompts: Sequence[int],
        cached: Sequence[int],
        active: int,
        context_sum: int,
        context_max: int,
    ) -> int:
        tokens = sum(prompts) + active
        layers = self.row_fs * tokens + max(self.weights_fs, self.token_fs * tokens)
        if self.pieces:
            layers += self._pieces_fs(tokens)
        caches = self.context_fs * context_sum + self.longest_fs * context_max
        if self.window_context_fs:
            full = active * self.window  # the smaller of both, of arrays of contexts as well
            caches += self.window_context_fs * ((context_sum + full - abs(context_sum - full)) // 2)
        time = self.fixed_fs + layers + caches + self.request_fs * active
        if not prompts:
            return time
        time += self.attended_fs * attended_tokens(prompts, cached)
        if self.window_attended_fs:
            time += self.window_attended_fs * within_window(prompts, cached, self.window)
        if not active:
            return max(self.launch_fs, time)
        time += self.beside_request_fs * active + self.beside_context_fs * context_sum
        return max(self.launch_fs, self.beside_launch_fs, time)

    def _pieces_fs(self, tokens: int) -> int:
        """Return the curve at a number of tokens."""
        starts, before, slopes = self._curve
        piece = bisect_left(starts, tokens) - 1
        return 0 if piece < 0 else before[piece] + slopes[piece] * (tokens - starts[piece])

    @cached_property
    def _curve(self) -> tuple[list[int], list[int], list[int]]:
        """Where the pieces begin, the curve there, and their slopes."""
        starts, slopes = ([pair[i] for pair in self.pieces] for i in (0, 1))
        before = [0]
        for place, start in enumerate(starts[1:]):
            before.append(before[-1] + slopes[place] * (start - starts[place]))
        return starts, before, slopes

    def _rounded(self, time_fs: int) -> int:
        return round_half_up(time_fs, FS_PER_NS) * self.time_scale

    def floor(self) -> Floor:
        """Return the floor of steps of any size (``floor_within``)."""
        return self.floor_within(None, None)

    def floor_within(self, requests: int | None, tokens: int | None) -> Floor:
        """Return a floor: stages compute all their tokens, rounds read the weights.

        It is of steps with at most so many requests in a round, and so many prompt tokens (None:
        any number). ``fixed + row x + max(weights, token x) + P(x)`` is at least each line of its
        lower convex hull from one token to the most: without pieces those of ``weights`` and of
        ``token x``. A step meets the largest of them where the curve is convex, as of models
        without experts; that of experts bends down, and lies above its chord, so that fewer
        requests have a steeper chord. In steps with prompts and a round, which have more tokens
        than that, the slope of the round's tokens is that of the chord and the slope of the
        prompts that of the curve behind it (``_level``). The longest context, windows, and what a
        round takes more beside prompts are at least 0, so that the lines hold without them, and a
        mixed step takes no less than either of its parts. The last line is the launch, which only
        steps without a round are sure to have by what is in them. In units of half a femtosecond,
        in which ``attended c (c + 1) / 2`` is whole.
        """
        square, asked = self.attended_fs, 2 * self.request_fs
        context, longest = 2 * self.context_fs, 2 * self.longest_fs
        both = None if requests is None or tokens is None else requests + tokens
        stages, rounds, every = (self._hull(most) for most in (tokens, requests, both))
        (read, row), (fixed, token) = rounds[0], stages[-1]
        stage = StageFloor(fixed=2 * fixed, token=2 * token + square, square=square)
        round_floor = RoundFloor(
            fixed=2 * read, request=2 * row + asked, context=context, longest=longest
        )
        found = [(level, level, slope, slope) for level, slope in every]
        if self.pieces and requests is not None:
            slopes = {slope for _, slope in (*self._hull(both, requests), *stages)}
            pairs = [(a, b) for _, a in rounds for b in sorted(slopes) if a > b]
            found += [(*self._levels(a, b, requests, tokens), a, b) for a, b in pairs]
        lines = tuple(
            StepLine(
                stage=2 * alone, round=2 * beside, prompt=2 * prompt, request=2 * slope + asked,
                context=context, attended=2 * square,
            )
            for alone, beside, slope, prompt in found
            if min(alone, beside) >= 0
        )  # fmt: skip
        lines += (StepLine(stage=2 * self.launch_fs),) if self.launch_fs else ()
        unit, times = 2 * FS_PER_NS, self.time_scale
        return Floor(stage, round_floor, unit, times, mixed="larger", lines=lines)

    def _levels(self, a: int, b: int, requests: int, tokens: int | None) -> tuple[int, int]:
        """Return the heights of a line without and with a round.

        It rises by a for each request, and by b < a for each prompt token. A step of x tokens is
        nearest to it with as many requests as there can be; both are straight between bends.
        """
        alone = min(time - b * x for x, time in self._bends(1, tokens))
        last = None if tokens is None else tokens + requests
        points = [*self._bends(1, last), *self._bends(requests, requests)]
        return alone, min(t - b * x - (a - b) * min(requests, x) for x, t in points)

    def _bends(self, first: int, last: int | None) -> list[tuple[int, int]]:
        """Return the points (tokens, time) between which a step's time by tokens is straight."""
        ridge = self.weights_fs // self.token_fs if self.token_fs else 0
        inner = {ridge, ridge + 1, *(n for n, _ in self.pieces)}
        found = {first, last or first} | {x for x in inner if first < x < (last or _FAR)}
        return [(x, self._tokens_fs(x)) for x in sorted(found)]

    def _tokens_fs(self, x: int) -> int:
        """Return what a step takes by its tokens."""
        layers = self.row_fs * x + max(self.weights_fs, self.token_fs * x)
        return self.fixed_fs + layers + (self._pieces_fs(x) if self.pieces else 0)

    def _hull(self, last: int | None, first: int = 1) -> list[tuple[int, int]]:
        """Return lines (level, slope), of at least 0, below a step's time by its tokens.

        The flattest comes first. They hold at every whole number of tokens from the first on,
        up to the last (None: any).
        """
        fixed, row, token = self.fixed_fs, self.row_fs, self.token_fs
        if not self.pieces:
            return [(fixed + self.weights_fs, row), (fixed, row + token)]
        corners: list[tuple[int, int]] = []
        for point in self._bends(first, last):
            while len(corners) > 1 and _above(corners[-1], corners[-2], point):
                corners.pop()
            corners.append(point)
        if last is None:
            final = row + token + self.pieces[-1][1]
            while len(corners) > 1 and _above(corners[-1], corners[-2], _after(corners[-2], final)):
                corners.pop()
            corners.append(_after(corners[-1], final))
        steepest, found = min(time // x for x, time in corners), list[tuple[int, int]]()
        for (x, low), (y, high) in pairwise(corners):
            slope = (high - low) // (y - x)
            level = min(low - slope * x, high - slope * y)
            found.append((level, slope) if level >= 0 else (0, min(slope, steepest)))
        return found or [(corners[0][1], 0)]

    def scaled(self, factor: int) -> Self:
        """Every duration multiplied by ``factor``, after its rounding."""
        return type(self)(**{**asdict(self), "time_scale": self.time_scale * factor})

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values; those that are 0 by default only where they are not."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["pieces"] = [list(pair) for pair in self.pieces]
        return {n: value for n, value in values.items() if value or n not in (*MORE, "pieces")}

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Read the coefficients; those that have a default may be left out."""
        return cls(
            **read_parameters(parameters, cls.model, COEFFICIENTS, [*MORE, "time_scale", "pieces"])
        )


def within_window(prompts: Sequence[int], cached: Sequence[int], window: int) -> int:
    """Return how many tokens the tokens of chunks attend to, each to the last ``window`` at most.

    ``cached``: tokens of its prompt in the cache before each chunk; empty: none.
    """
    found = 0
    for place, tokens in enumerate(prompts):
        before = cached[place] if cached else 0
        rising = min(tokens, max(0, window - before))
        found += rising * (rising + 1) // 2 + rising * before + (tokens - rising) * window
    return found


def _above(middle: tuple[int, int], first: tuple[int, int], last: tuple[int, int]) -> bool:
    """Return whether a point lies on or above the chord between two others."""
    (a, low), (x, time), (b, high) = first, middle, last
    return (time - low) * (b - a) >= (high - low) * (x - a)


def _after(point: tuple[int, int], slope: int) -> tuple[int, int]:
    """Return the next point on a line, far off, so that it lies behind all others."""
    return point[0] + _FAR, point[1] + slope * _FAR


def _read_pieces(values: Any) -> Pieces:
    """Return the pairs of a curve as whole numbers; raises ``InputError``."""
    remedy = f"at most {MOST_PIECES} pairs of tokens and femtoseconds for each token above them"
    if not isinstance(values, (list, tuple)) or len(values) > MOST_PIECES:
        raise InputError("is not a short list of pairs", field="pieces", remedy=remedy)
    found: list[tuple[int, int]] = []
    for pair in values:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise InputError("a pair has two numbers", field="pieces", remedy=remedy)
        least = found[-1][0] + 1 if found else 1
        start = whole_number(pair[0], "pieces", minimum=least, maximum=2**31)
        found.append((start, whole_number(pair[1], "pieces", maximum=MAX_COEFFICIENT_FS)))
    return tuple(found)


_MANY = 1 << 14
"""Requests of a round that is beyond any ridge."""

_LEAST_RIDGE = 16
"""Tokens: below so many what looks like a ridge is the rounding of times."""


def ridge_tokens(cost: CostModel) -> int:
    """Return the tokens of a step at which computing takes as long as reading the weights.

    Below the ridge a step takes the time of its weights, so that prompt tokens beside a round cost
    nothing but their attention; above it each token adds its time. Of a roofline it is ``weights /
    token`` (Williams, Waterman and Patterson, *Roofline*, 2009), rounded to a whole token. Of any
    model it is where the straight line through rounds of many requests, their contexts left out,
    meets the time of a round of one: ``x`` with ``T(F) - slope (F - x) = T(1)``, F = 16,384.

    Raises ``InputError`` where there is none: each token takes time from the first on (affine and
    linear models), or none does.

    >>> from orsched.costs import RooflineCost
    >>> ridge_tokens(RooflineCost.from_s(fixed=0, weights=0.018, token=1e-4, context=0, attended=0))
    180
    """
    if type(cost) is RooflineCost:  # what the host takes for a request is not computing
        cost = replace(cost, request_fs=0)
    one, far, farther = (cost.round_ns(many, 0, 0) for many in (1, _MANY, 2 * _MANY))
    slope = farther - far
    tokens = 0
    if slope > 0:
        found = _MANY * (1 - Fraction(far - one, slope))
        tokens = round_half_up(found.numerator, found.denominator)
    if tokens < _LEAST_RIDGE:
        raise InputError(
            f"the {cost.model} cost model has no ridge: tokens take the same time in any step",
            field="max_num_batched_tokens",
            remedy="give a number of tokens, such as 2048",
        )
    return tokens
