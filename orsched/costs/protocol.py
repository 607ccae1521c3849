"""The one protocol that all cost models follow."""

from __future__ import annotations

from functools import lru_cache
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence


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
