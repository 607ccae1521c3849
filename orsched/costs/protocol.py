"""The one protocol that all cost models follow."""

from __future__ import annotations

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

    Four further methods are optional. ``mixed_ns``: a step with prompts beside a round (see
    ``mixed_ns`` below). ``floor() -> orsched.Floor | None``: the least that steps take, from which
    all bounds on schedules are proven, and which holds for the class that defines it only; without
    it the only bound is the last arrival. ``as_bilinear() -> BilinearCost``: the bilinear model
    that the steps follow exactly, which batching needs. ``longest_round_ns``, with the arguments of
    ``rounds_ns``: the longest of the rounds, for speed; like ``floor`` it holds for the class that
    defines it only, and without it each round is asked for.
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


def mixed_ns(
    cost: CostModel, prompts: Sequence[int], active: int, context_sum: int, context_max: int
) -> int:
    """Duration of a step that processes prompt tokens beside a round, in nanoseconds.

    A model that knows such steps has its own ``mixed_ns`` (affine: one fixed part; pooling: Echo,
    eq. 8). For the others it is the sum: first the prefill, then the round.
    """
    if not active:
        return cost.prefill_ns(prompts)
    if not prompts:
        return cost.round_ns(active, context_sum, context_max)
    own = getattr(cost, "mixed_ns", None)
    if own is not None:
        duration: int = own(prompts, active, context_sum, context_max)
        return duration
    return cost.prefill_ns(prompts) + cost.round_ns(active, context_sum, context_max)
