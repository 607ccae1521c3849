"""The bilinear cost model (SCLS, eq. 3-4)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from orsched.common.errors import InputError
from orsched.common.scalars import set_whole
from orsched.costs.exact import (
    FS_PER_MS,
    FS_PER_NS,
    MAX_COEFFICIENT_FS,
    round_half_up,
    round_half_up_sum,
    to_whole_units,
)
from orsched.costs.floor import Floor, RoundFloor, StageFloor, stated
from orsched.costs.protocol import read_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.costs.protocol import CostModel

COEFFICIENTS = ("p1_fs", "p2_fs", "p3_fs", "p4_fs", "d1_fs", "d2_fs", "d3_fs", "d4_fs")


@dataclass(frozen=True, kw_only=True)
class BilinearCost:
    """Prefill ``p1 N L + p2 N + p3 L + p4``, round ``d1 N l + d2 N + d3 l + d4`` (SCLS, eq. 3-4).

    N is the number of requests, L the longest prompt (all are padded to it), l the longest
    context in the round. SCLS pads a batch to one cached length; here the longest plays its part.

    The coefficients are whole femtoseconds (1e-15 s): p1 and d1 a request and token, p2 and d2 a
    request, p3 and d3 a token, p4 and d4 alone. Each stage and each round is computed in integers
    and rounded once, half up, to a nanosecond; ``time_scale`` multiplies the rounded duration, so
    that a scaled model keeps every schedule exactly.

    A coefficient may be negative, as an unconstrained fit can make it; ``warnings`` says so. A step
    whose exact duration is below 0 raises ``InputError``: it is never clipped, since a clipped
    model is no longer the fitted one. So does a coefficient that is not a whole number up to 2**62.
    """

    p1_fs: int
    p2_fs: int
    p3_fs: int
    p4_fs: int
    d1_fs: int
    d2_fs: int
    d3_fs: int
    d4_fs: int
    time_scale: int = 1

    model: ClassVar[str] = "bilinear"
    context_matters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        set_whole(self, *COEFFICIENTS, minimum=-MAX_COEFFICIENT_FS, maximum=MAX_COEFFICIENT_FS)
        set_whole(self, "time_scale", minimum=1)

    @classmethod
    def from_ms(
        cls, p: tuple[float, float, float, float], d: tuple[float, float, float, float]
    ) -> Self:
        """Build from (p1, p2, p3, p4) and (d1, d2, d3, d4) in milliseconds.

        Each is rounded to the nearest femtosecond. Raises ``InputError`` unless there are four
        finite numbers in each.
        """
        for name, values in (("p", p), ("d", d)):
            if not isinstance(values, (list, tuple)) or len(values) != 4:
                raise InputError(
                    f"{values!r} is not a list of four coefficients",
                    field=name,
                    remedy="give four numbers",
                )
        pairs = zip(COEFFICIENTS, (*p, *d), strict=True)
        return cls(**{name: to_whole_units(value, FS_PER_MS, name) for name, value in pairs})

    @property
    def prefill_limit(self) -> None:
        """No limit by the model."""
        return None

    def prefill_ns(self, prompts: Sequence[int]) -> int:
        """Duration of a prefill stage, padded to the longest, in ns; ``InputError`` if negative."""
        count, longest = len(prompts), max(prompts, default=0)
        value = (self.p1_fs * longest + self.p2_fs) * count + self.p3_fs * longest + self.p4_fs
        if value < 0:
            raise self._negative(f"a prefill stage of {count} prompts up to {longest} tokens", "p")
        return round_half_up(value, FS_PER_NS) * self.time_scale

    def round_ns(self, active: int, context_sum: int, context_max: int) -> int:
        """Duration of one decode round, in nanoseconds; the sum of the contexts plays no part.

        Raises ``InputError`` when it is negative.
        """
        value = self._round_fs(active, context_max)
        if value < 0:
            raise self._negative(f"a round of {active} requests at context {context_max}", "d")
        return round_half_up(value, FS_PER_NS) * self.time_scale

    def rounds_ns(self, rounds: int, active: int, context_sum: int, context_max: int) -> int:
        """Duration of a run of rounds, each rounded for itself, in nanoseconds.

        The round's time is linear in its position in the run: SCLS eq. (2) in closed form.
        Raises ``InputError`` when one of the rounds is negative.
        """
        if rounds <= 0:
            return 0
        first = self._round_fs(active, context_max)
        slope = self.d1_fs * active + self.d3_fs
        if first < 0 or first + slope * (rounds - 1) < 0:
            last = context_max + rounds - 1
            text = f"a run of rounds of {active} requests at context {context_max} to {last}"
            raise self._negative(text, "d")
        return round_half_up_sum(rounds, FS_PER_NS, slope, first) * self.time_scale

    def _round_fs(self, active: int, context_max: int) -> int:
        per_request = self.d1_fs * context_max + self.d2_fs
        return per_request * active + self.d3_fs * context_max + self.d4_fs

    def _negative(self, step: str, letter: str) -> InputError:
        values = [f"{key}={getattr(self, key)}" for key in COEFFICIENTS if key[0] == letter]
        return InputError(
            f"{step} would take a negative time with the coefficients {', '.join(values)}",
            field="cost",
            remedy="fit coefficients of at least 0",
        )

    def warnings(self) -> tuple[str, ...]:
        """What makes the model doubtful: one text a negative coefficient."""
        return tuple(
            f"the coefficient {name} is negative ({getattr(self, name)}): times can fall with load"
            for name in COEFFICIENTS
            if getattr(self, name) < 0
        )

    def floor(self) -> Floor | None:
        """Return what steps take, exactly; None where a coefficient is negative."""
        if self.warnings():
            return None
        stage = StageFloor(
            fixed=self.p4_fs, request=self.p2_fs, token=self.p1_fs, longest=self.p3_fs
        )
        round_floor = RoundFloor(
            fixed=self.d4_fs, request=self.d2_fs, context=self.d1_fs, longest=self.d3_fs
        )
        scale = self.time_scale
        return Floor(stage, round_floor, FS_PER_NS, scale, mixed="sum", padded=True, exact=True)

    def as_bilinear(self) -> BilinearCost:
        """Return the bilinear model that steps follow exactly: this one."""
        return self

    def scaled(self, factor: int) -> Self:
        """Every duration multiplied by ``factor``, after its rounding."""
        return type(self)(**{**asdict(self), "time_scale": self.time_scale * factor})

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Read the eight coefficients and, if given, ``time_scale``."""
        return cls(**read_parameters(parameters, cls.model, COEFFICIENTS, ["time_scale"]))


def as_bilinear(cost: CostModel) -> BilinearCost | None:
    """Return the bilinear model that a cost model states to follow exactly, or None."""
    found: BilinearCost | None = stated(cost, "as_bilinear")
    return found
