"""The one protocol that all cost models follow, and the reading of their parameters."""

from __future__ import annotations

from functools import lru_cache
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, known_names
from orsched.common.units import MAX_TIME_NS, seconds_to_ns

if TYPE_CHECKING:
    from collections.abc import Sequence


def read_parameters(
    values: object, owner: str, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the mapping if it has exactly the required and some of the optional fields."""
    if not isinstance(values, dict):
        raise InputError(f"{owner} must be an object with named fields", field=owner)
    allowed = [*required, *optional]
    for name in values:
        if name not in allowed:
            raise InputError(
                f"{owner} has no field '{name}'",
                field=str(name),
                remedy=known_names(name, allowed, "known fields: "),
            )
    for name in required:
        if name not in values:
            raise InputError(f"{owner} needs the field '{name}'", field=name, remedy="add it")
    return dict(values)


def read_levels(values: object, *, seconds: bool = False) -> tuple[tuple[int, int], ...]:
    """Return pairs of capacity, which grows strictly, and time in ns, which never falls."""
    if not isinstance(values, (list, tuple)) or not values:
        raise InputError(
            "must be a list of at least one pair",
            field="levels",
            remedy="give pairs of capacity in tokens and time in nanoseconds",
        )
    levels: list[tuple[int, int]] = []
    for row, pair in enumerate(values):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise InputError(
                f"{pair!r} is not a pair of capacity in tokens and time in nanoseconds",
                row=row,
                field="levels",
                remedy="give two whole numbers",
            )
        try:
            cap = whole_number(pair[0], "levels", minimum=1)
            time = (
                seconds_to_ns(pair[1], "levels_s")
                if seconds
                else whole_number(pair[1], "levels", maximum=MAX_TIME_NS)
            )
        except InputError as error:
            raise error.located(row=row) from None
        if levels and cap <= levels[-1][0]:
            raise InputError(
                f"the capacity {cap} is not above {levels[-1][0]}, that of the level before",
                row=row,
                field="levels",
                remedy="sort the levels by capacity and drop repeated ones",
            )
        if levels and time < levels[-1][1]:
            raise InputError(
                f"the time {time} ns is below {levels[-1][1]} ns, that of the level before",
                row=row,
                field="levels",
                remedy="drop the smaller, slower level",
            )
        levels.append((cap, time))
    return tuple(levels)


@runtime_checkable
class CostModel(Protocol):
    """Time of a step in integer nanoseconds, rounded once per engine iteration.

    ``prefill_ns`` and ``round_ns`` are the scalar reference formula, which the checker calls;
    ``rounds_ns`` is the aggregate form for speed and must equal the sum of single rounds.

    The *context* of a request in a round is its prompt tokens plus the number of decode rounds
    it has taken part in, this round included: the cache entries that the round attends to.
    ``context_sum`` and ``context_max`` are taken over the active requests *in the (first) round*;
    in each further round of a run every context is one longer.

    Three further methods are optional. ``mixed_ns``: a step with prompts beside a round (see
    ``mixed_ns`` below). ``floor() -> orsched.Floor | None``: the least that steps take, from which
    all bounds on schedules are proven, and which holds for the class that defines it only; without
    it the only bound is the last arrival. ``as_bilinear() -> BilinearCost``: the bilinear model
    that the steps follow exactly, which batching needs.

    What is *cached* before a chunk are the tokens of its request that are in the cache when the
    step begins: those of earlier chunks of the same stay, and those found in a prefix cache. A
    model whose chunks take longer for it states ``cached_matters: ClassVar[bool] = True``, and its
    ``prefill_ns`` and ``mixed_ns`` take a last optional argument ``cached``, one number a chunk,
    where an empty sequence means that all are 0. All others are never told (``knows_cached``).
    """

    model: ClassVar[str]
    """Name in files and in the registry."""

    context_matters: ClassVar[bool]
    """False when a round depends on the active clients only: contexts may be passed as 0."""

    @property
    def prefill_limit(self) -> int | None:
        """Most tokens that one prefill stage can hold by the model itself; None: no limit."""

    def prefill_ns(self, prompts: Sequence[int]) -> int:
        """Duration of a prefill stage over these numbers of prompt tokens (one per request)."""

    def round_ns(self, active: int, context_sum: int, context_max: int) -> int:
        """Duration of one decode round with ``active`` requests."""

    def rounds_ns(self, rounds: int, active: int, context_sum: int, context_max: int) -> int:
        """Duration of a run of rounds with an unchanged set of active requests."""

    def scaled(self, factor: int) -> Self:
        """The model with every time multiplied by a positive whole number."""

    def to_dict(self) -> dict[str, Any]:
        """Parameters as plain JSON values, under the names that ``from_dict`` reads."""

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Inverse of ``to_dict``; raises ``InputError`` on unknown, missing or wrong fields."""


def knows_cached(cost: CostModel) -> bool:
    """Return whether a cost model is to be told what is cached before chunks.

    It is if it states ``cached_matters`` and takes the argument. One that derives from such a
    model and has a ``prefill_ns`` or ``mixed_ns`` without the argument is called as it was written.
    """
    return _knows_cached(type(cost))


@lru_cache(maxsize=256)
def _knows_cached(kind: type) -> bool:
    methods = [getattr(kind, name, None) for name in ("prefill_ns", "mixed_ns")]
    return getattr(kind, "cached_matters", False) is True and all(
        "cached" in signature(method).parameters for method in methods if method is not None
    )


def prefill_ns(cost: CostModel, prompts: Sequence[int], cached: Sequence[int] = ()) -> int:
    """Duration of a prefill stage over chunks, in nanoseconds.

    ``cached``: tokens of its request in the cache before each chunk; empty: all 0. The model is
    told of them if it wants to know.
    """
    if cached and knows_cached(cost):
        told: Any = cost
        duration: int = told.prefill_ns(prompts, cached)
        return duration
    return cost.prefill_ns(prompts)


def mixed_ns(
    cost: CostModel,
    prompts: Sequence[int],
    active: int,
    context_sum: int,
    context_max: int,
    cached: Sequence[int] = (),
) -> int:
    """Duration of a step that processes prompt tokens beside a round, in nanoseconds.

    A model that knows such steps has its own ``mixed_ns`` (affine: one fixed part; pooling: Echo,
    eq. 8). For the others it is the sum: first the prefill, then the round. Without active
    requests it is a stage, without prompts a round. ``cached`` as in ``prefill_ns``.
    """
    if not active:
        return prefill_ns(cost, prompts, cached)
    if not prompts:
        return cost.round_ns(active, context_sum, context_max)
    own = getattr(cost, "mixed_ns", None)
    if own is None:
        return prefill_ns(cost, prompts, cached) + cost.round_ns(active, context_sum, context_max)
    load = (prompts, active, context_sum, context_max)
    duration: int = own(*load, cached) if cached and knows_cached(cost) else own(*load)
    return duration
