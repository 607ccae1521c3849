"""Floors: what a cost model states of its own steps, for bounds, exact models and certificates.

No code outside this folder tests the class of a cost model. What can be proven about schedules
follows from the floor that the model states; a model that states none gets no such bound.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.common.scalars import set_whole
from orsched.costs.exact import round_half_up
from orsched.costs.protocol import knows_cached, mixed_ns, prefill_ns, read_levels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orsched.costs.protocol import CostModel


MIXED = ("sum", "one_fixed", "larger")
"""What a step with prefill and round may be known to take at least; see ``Floor``."""

_MOST = 2**126


@dataclass(frozen=True, kw_only=True)
class StageFloor:
    """Parts of a prefill stage over the prompts p_1 ... p_N, all of at least 0.

    It takes ``fixed + longest * max(p) + sum of (request + max(square p^2 + token p, least))``,
    or, with ``levels`` of (capacity in tokens, time), the time of the smallest level that holds
    the sum of the prompts. ``least`` None: no least part of a request; with one, ``square`` and
    ``token`` may be negative.
    """

    fixed: int = 0
    request: int = 0
    token: int = 0
    longest: int = 0
    square: int = 0
    least: int | None = None
    levels: tuple[tuple[int, int], ...] | None = None

    def __post_init__(self) -> None:
        falls = self.least is not None
        for item in fields(self):
            if item.name != "levels":
                low = -_MOST if falls and item.name in ("square", "token") else 0
                set_whole(self, item.name, minimum=low, maximum=_MOST, optional=True)
        if self.levels is not None:
            object.__setattr__(self, "levels", read_levels(self.levels))
            if replace(self, levels=None) != StageFloor():
                raise InputError(
                    "a stage has levels or parts, not both",
                    field="levels",
                    remedy="leave one of both out",
                )

    @property
    def is_curved(self) -> bool:
        """Whether a prompt's own part is not in proportion to its tokens."""
        return self.square != 0 or self.least is not None

    @property
    def grows(self) -> bool:
        """Whether no prompt takes less for being longer."""
        return self.square >= 0 and self.token >= 0

    def own(self, prompt: int) -> int:
        """Return the part of one prompt, the longest one's extra aside."""
        own = (self.square * prompt + self.token) * prompt
        return self.request + (own if self.least is None else max(own, self.least))


@dataclass(frozen=True, kw_only=True)
class RoundFloor:
    """Parts of a decode round of N requests with the contexts c_1 ... c_N, all of at least 0.

    It takes ``fixed + request N + context sum(c) + longest max(c) + mean sum(c) / N``; ``mean``
    None: the mean context plays no part, and a step's exact time is a whole number of units.
    """

    fixed: int = 0
    request: int = 0
    context: int = 0
    longest: int = 0
    mean: int | None = None

    def __post_init__(self) -> None:
        set_whole(self, *(item.name for item in fields(self)), maximum=_MOST, optional=True)


@dataclass(frozen=True, kw_only=True)
class StepLine:
    """A line that no step's time is below, whichever parts the step has; all of at least 0.

    It has ``stage`` for a step that only prefills, else ``round``, and ``prompt`` for each prompt
    token that is computed. A round adds ``request`` for each of its requests and ``context`` for
    each token of their contexts. ``attended`` counts each token that a prompt token attends to,
    cached ones too.
    """

    stage: int = 0
    round: int = 0
    prompt: int = 0
    request: int = 0
    context: int = 0
    attended: int = 0

    def __post_init__(self) -> None:
        set_whole(self, *(item.name for item in fields(self)), maximum=_MOST)

    def of(self, prompts: Sequence[int], attended: int, active: int, context_sum: int) -> int:
        """Return the line at a step."""
        prefilled = self.prompt * sum(prompts) + self.attended * attended
        fixed = self.round if active else self.stage
        return fixed + prefilled + self.request * active + self.context * context_sum


@dataclass(frozen=True)
class Floor:
    """The least times of a cost model's steps, whichever requests are in them.

    A step takes at least the sum of its parts in units of 1 / ``unit`` nanoseconds, rounded once,
    half up, to a whole nanosecond, times ``times``. (A model that rounds down states parts that
    are half a nanosecond less in all, or whole nanoseconds, ``unit`` 1.)

    A floor looks at the tokens of a chunk and not at what is cached before it, so it has to hold
    whatever that is: with nothing cached, if the model takes no less with more. The attended tokens
    of c tokens behind k cached ones are ``c (c + 1) / 2 + c k``, at least those at k = 0. So the
    floors of the roofline and the linear model hold for chunks, repeated prefills and prefills
    behind hits in a prefix cache. A bound that adds floors of steps stays below every schedule.

    Attributes:
        stage, round: the parts.
        unit: units in a nanosecond.
        times: a factor on the rounded time.
        mixed: what is known of a step with prompts beside a round. ``sum``: it takes no less than
            stage and round one after the other. ``one_fixed``: no less than that less the smaller
            fixed part, in whole nanoseconds. ``larger``: no less than either. None: nothing, and
            there are no bounds for schedules with such steps.
        padded: ``token`` counts N max(p) and ``context`` N max(c): more than the sums.
        exact: a stage with nothing cached before its prompts, or a round, takes exactly this. Only
            exact models let a solver compute times.
        lines: lines that no step is below, mixed steps included, in the same unit; a step takes
            at least the largest of them. Empty: only those that the parts give are known.
    """

    stage: StageFloor
    round: RoundFloor
    unit: int = 1
    times: int = 1
    mixed: str | None = None
    padded: bool = False
    exact: bool = False
    lines: tuple[StepLine, ...] = ()

    def __post_init__(self) -> None:
        set_whole(self, "unit", "times", minimum=1)
        if self.mixed not in (None, *MIXED):
            raise InputError(
                f"{self.mixed!r} is nothing that is known of a mixed step",
                field="mixed",
                remedy=f"None, {', '.join(MIXED)}",
            )
        if self.mixed == "one_fixed" and (self.unit > 1 or self.stage.levels is not None):
            raise InputError(
                "one_fixed needs fixed parts in whole nanoseconds",
                field="mixed",
                remedy="give whole nanoseconds, or leave mixed out",
            )
        if self.stage.levels is not None and (self.unit > 1 or self.times > 1):
            raise InputError(
                "levels are in whole nanoseconds: unit and times are 1",
                field="unit",
                remedy="leave unit and times out",
            )

    @property
    def by_counts(self) -> bool:
        """Whether time splits into constants and the numbers of stages and rounds.

        A stage has a fixed part and one for each token, or a level; a round a fixed part and one
        for each request; all in whole nanoseconds.
        """
        stage, a_round = self.stage, self.round
        one_unit = self.unit == self.times == 1
        plain = not (stage.is_curved or stage.request or stage.longest)
        return (
            one_unit and plain and not (a_round.context or a_round.longest) and a_round.mean is None
        )

    def of_chunks(self) -> Floor:
        """Return a floor of prompts in any chunks that is in proportion to their tokens, if known.

        A chunk of c >= 1 tokens takes ``square c^2 + token c >= (square + token) c`` where no part
        is below 0. Of a least part of a prompt nothing is known that adds up over chunks.
        """
        stage = self.stage
        if not stage.square or stage.least is not None:
            return self
        straight = replace(stage, square=0, token=stage.token + stage.square)
        return replace(self, stage=straight, exact=False)

    def prefill_ns(self, prompts: Sequence[int]) -> int:
        """Return the least time of a stage over these prompts; ``InputError`` above all levels."""
        stage, longest = self.stage, max(prompts, default=0)
        if stage.levels is not None:
            index = bisect_left(stage.levels, (sum(prompts),))
            if index == len(stage.levels):
                raise InputError(
                    f"no level holds {sum(prompts)} tokens",
                    field="levels",
                    remedy="add a larger level, or split the stage",
                )
            return stage.levels[index][1]
        counted = [longest] * len(prompts) if self.padded else prompts
        exact = stage.fixed + stage.longest * longest + sum(map(stage.own, counted))
        return round_half_up(exact, self.unit) * self.times

    def round_ns(self, active: int, context_sum: int, context_max: int) -> int:
        """Return the least time of a round."""
        parts, contexts = self.round, active * context_max if self.padded else context_sum
        exact = parts.fixed + parts.request * active
        exact += parts.context * contexts + parts.longest * context_max
        if parts.mean is None:
            return round_half_up(exact, self.unit) * self.times
        count = max(1, active)
        pooled = exact * count + parts.mean * context_sum
        return round_half_up(pooled, self.unit * count) * self.times

    def mixed_ns(
        self, prompts: Sequence[int], active: int, context_sum: int, context_max: int
    ) -> int:
        """Return the least time of a step with prompts beside a round; 0 where none is known."""
        stage, a_round = self.prefill_ns(prompts), self.round_ns(active, context_sum, context_max)
        if self.mixed == "one_fixed":
            return stage + a_round - min(self.stage.fixed, self.round.fixed) * self.times
        known = {"sum": stage + a_round, "larger": max(stage, a_round), None: 0}
        return known[self.mixed]


def floor_of(
    cost: CostModel, requests: int | None = None, tokens: int | None = None
) -> Floor | None:
    """Return the floor that a cost model states of its own type, or None.

    ``requests``, ``tokens``: the most requests of a round, and prompt tokens of a step, that the
    floor has to hold for (None: any number). A model whose floor is higher with fewer has a method
    ``floor_within`` beside ``floor``, which takes the two. Raises ``InputError`` for anything but a
    ``Floor``, and for levels below the prefill limit.
    """
    within = stating(cost, "floor_within")
    floor = stated(cost, "floor") if within is None else within(requests, tokens)
    if floor is None:
        return None
    if not isinstance(floor, Floor):
        raise InputError(
            f"{type(cost).__name__}.floor() is a {type(floor).__name__}",
            field="cost",
            remedy="return an orsched.Floor, or None",
        )
    levels, limit = floor.stage.levels, cost.prefill_limit
    if levels is not None and (limit is None or limit > levels[-1][0]):
        raise InputError(
            f"{type(cost).__name__}: the floor's levels end at {levels[-1][0]} tokens, "
            f"below the prefill limit of {limit}",
            field="cost",
            remedy="let prefill_limit be the capacity of the largest level",
        )
    return floor


def splits(cost: CostModel) -> Floor | None:
    """Return a cost model's floor if it is exact and by counts (``Floor.by_counts``), or None.

    Then makespan = constants + stages' fixed times or levels + fixed time of a round x rounds.
    """
    floor = floor_of(cost)
    return floor if floor is not None and floor.exact and floor.by_counts else None


def stated(cost: CostModel, name: str) -> Any:
    """Return what a cost model's method ``name`` states of its type, or None (``stating``)."""
    method = stating(cost, name)
    return None if method is None else method()


def stating(cost: CostModel, name: str) -> Any:
    """Return the method ``name`` of a cost model if it speaks for the model's type, or None.

    A statement belongs to the class that defines it. It holds for a derived class only if nothing
    is added that could change a time: with any other name in a class that the stating one does not
    derive from, or any method set on the object itself, nothing is stated.
    """
    kind = type(cost)
    owner = next((each for each in kind.__mro__ if name in vars(each)), None)
    if owner is None:
        return None
    added = [each for each in kind.__mro__ if each not in owner.__mro__]
    if any(not _HARMLESS.issuperset(vars(each)) for each in added):
        return None
    if not _TIMING.isdisjoint(getattr(cost, "__dict__", ())):
        return None
    return getattr(cost, name)


_TIMING = {
    "prefill_ns", "round_ns", "rounds_ns", "mixed_ns", "floor", "floor_within", "as_bilinear",
}  # fmt: skip
_MADE_BY_PYTHON = set(vars(type("_Empty", (), {}))) | {
    "__annotate__",
    "__annotate_func__",
    "__annotations__",
    "__annotations_cache__",
    "__conditional_annotations__",
    "__dataclass_fields__",
    "__dataclass_params__",
    "__eq__",
    "__firstlineno__",
    "__hash__",
    "__match_args__",
    "__orig_bases__",
    "__parameters__",
    "__replace__",
    "__repr__",
    "__slots__",
    "__static_attributes__",
}
_HARMLESS = _MADE_BY_PYTHON | {
    "__delattr__",  # of a frozen dataclass
    "__init__",
    "__setattr__",
    "from_dict",
    "model",
    "scaled",
    "to_dict",
    "warnings",
}


BEHIND = ("stage of later chunks", "mixed step of later chunks")


def floor_faults(cost: CostModel, steps: int = 1_000, seed: int = 0) -> list[str]:
    """Return the random steps that take less than the floor that a cost model states of them.

    Of 1 to 256 requests with prompts and contexts of 1 to about 4,096 tokens; prefills within the
    model's own limit, and an exact floor is compared for equality. Each is also tried behind random
    numbers of cached tokens if the model is told of them.
    """
    floor, rng, found = floor_of(cost), random.Random(seed), []
    if floor is None:
        return []
    limit = cost.prefill_limit
    for _ in range(steps):
        prompts = [_tokens(rng) for _ in range(int(2 ** rng.uniform(0, 8)))]
        while limit is not None and sum(prompts) > limit and len(prompts) > 1:
            prompts.pop()
        contexts = [_tokens(rng) for _ in range(int(2 ** rng.uniform(0, 8)))]
        load = (len(contexts), sum(contexts), max(contexts))
        cached: list[int] = []
        pairs = [("round", cost.round_ns(*load), floor.round_ns(*load))]
        if limit is None or sum(prompts) <= limit:
            pairs.append(("stage", cost.prefill_ns(prompts), floor.prefill_ns(prompts)))
            both = mixed_ns(cost, prompts, *load), floor.mixed_ns(prompts, *load)
            pairs.append(("mixed step", *both))
            if knows_cached(cost):
                cached = [_tokens(rng) for _ in prompts]
                times = prefill_ns(cost, prompts, cached), mixed_ns(cost, prompts, *load, cached)
                pairs.append((BEHIND[0], times[0], floor.prefill_ns(prompts)))
                pairs.append((BEHIND[1], times[1], floor.mixed_ns(prompts, *load)))
            pairs += _above_lines(cost, floor, prompts, load, cached)
        for what, time, least in pairs:
            if time < least or (floor.exact and what in ("stage", "round") and time != least):
                text = f"a {what} takes {time} ns, its floor {least} ns"
                behind_them = f", cached {cached}" if what in BEHIND else ""
                found.append(f"{text}: prompts {prompts}, contexts {contexts}{behind_them}")
    return found


def _above_lines(
    cost: CostModel, floor: Floor, prompts: list[int], load: tuple[int, int, int], cached: list[int]
) -> Iterator[tuple[str, int, int]]:
    """Yield what a stage, a round and a mixed step take, with the largest line at each."""
    behind = cached or [0] * len(prompts)
    attended = sum(c * (c + 1) // 2 + c * k for c, k in zip(prompts, behind, strict=True))
    steps: tuple[tuple[str, int, tuple[Sequence[int], int, int, int]], ...] = (
        ("stage", prefill_ns(cost, prompts, cached), (prompts, attended, 0, 0)),
        ("round", cost.round_ns(*load), ([], 0, *load[:2])),
        ("mixed step", mixed_ns(cost, prompts, *load, cached), (prompts, attended, *load[:2])),
    )
    for what, time, step in steps:
        largest = max((line.of(*step) for line in floor.lines), default=0)
        yield f"{what} by lines", time, round_half_up(largest, floor.unit) * floor.times


def _tokens(rng: random.Random) -> int:
    return int(2 ** rng.uniform(0, 12))
