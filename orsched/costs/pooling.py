"""The pooling cost model (Echo, eq. 6-8)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
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
from orsched.costs.floor import Floor, RoundFloor, StageFloor
from orsched.costs.protocol import read_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

PPM = 1_000_000
COEFFICIENTS = ("alpha_fs", "beta_fs", "c_fs", "gamma_fs", "delta_fs")
_LEAST = {"c_fs": 0, "time_scale": 1}


@dataclass(frozen=True, kw_only=True)
class PoolingCost:
    """Prefill ``max(alpha l^2 + beta l, c)``, round ``gamma max(L) + delta mean(L)`` (Echo).

    Echo, eq. (6)-(8): l is the length of one prompt, L are the contexts of the active requests.
    Echo prefills requests one by one, so a stage over several prompts takes the sum of their times.
    A step with both takes ``lambda max(prefill, decode) + (1 - lambda) min(prefill, decode)``;
    lambda is not clipped to [0, 1], because such a step takes more than the larger of its parts, as
    Echo states, for lambda > 1 only.

    alpha is in whole femtoseconds (1e-15 s) a squared token, beta, gamma and delta a token, c
    alone; lambda in millionths; all of at most 2**62, else ``InputError``. Each step is computed as
    an exact fraction and rounded once, half up, to a nanosecond; ``time_scale`` multiplies the
    rounded duration, so that a scaled model keeps every schedule exactly.

    A coefficient may be negative (c not), as an unconstrained fit can make it; ``warnings`` says
    so. A step whose exact duration is below 0 raises ``InputError``.
    """

    alpha_fs: int
    beta_fs: int
    c_fs: int
    gamma_fs: int
    delta_fs: int
    lambda_ppm: int = PPM
    time_scale: int = 1

    model: ClassVar[str] = "pooling"
    context_matters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for item in fields(self):
            set_whole(self, item.name, minimum=_LEAST.get(item.name, -MAX_COEFFICIENT_FS))

    @classmethod
    def from_ms(
        cls,
        *,
        alpha: float,
        beta: float,
        c: float,
        gamma: float,
        delta: float,
        lambda_: float = 1,
    ) -> Self:
        """Build from coefficients in milliseconds; ``lambda_`` has no unit.

        Each is rounded to the nearest femtosecond, lambda to the nearest millionth. Raises
        ``InputError`` for anything but a finite number.
        """
        pairs = zip(COEFFICIENTS, (alpha, beta, c, gamma, delta), strict=True)
        values = {name: to_whole_units(value, FS_PER_MS, name) for name, value in pairs}
        return cls(**values, lambda_ppm=to_whole_units(lambda_, PPM, "lambda_ppm"))

    @property
    def prefill_limit(self) -> None:
        """No limit by the model."""
        return None

    def prefill_ns(self, prompts: Sequence[int]) -> int:
        """Duration of a prefill stage over these prompts, one after the other, in nanoseconds."""
        return round_half_up(self._prefill_fs(prompts), FS_PER_NS) * self.time_scale

    def round_ns(self, active: int, context_sum: int, context_max: int) -> int:
        """Duration of a decode round, in ns; ``InputError`` if negative or without requests."""
        value = self._decode_fs(active, context_sum, context_max)
        return round_half_up(value, active * FS_PER_NS) * self.time_scale

    def rounds_ns(self, rounds: int, active: int, context_sum: int, context_max: int) -> int:
        """Duration of a run of rounds, each rounded for itself, in nanoseconds.

        From round to round both pools grow by one token, so that the time is linear in the
        position. Raises ``InputError`` when one of the rounds is negative or no request is active.
        """
        if rounds <= 0:
            return 0
        first = self._decode_fs(active, context_sum, context_max)
        slope = (self.gamma_fs + self.delta_fs) * active
        if slope < 0:
            later = rounds - 1
            self._decode_fs(active, context_sum + later * active, context_max + later)
        return round_half_up_sum(rounds, active * FS_PER_NS, slope, first) * self.time_scale

    def mixed_ns(
        self, prompts: Sequence[int], active: int, context_sum: int, context_max: int
    ) -> int:
        """Duration of a step that prefills the prompts beside a decode round (Echo, eq. 8).

        Without prompts it is a round, without active requests a prefill stage. Raises
        ``InputError`` when it is negative.
        """
        if not prompts:
            return self.round_ns(active, context_sum, context_max)
        if active == 0:
            return self.prefill_ns(prompts)
        prefill = self._prefill_fs(prompts) * active  # both parts over the denominator `active`
        decode = self._decode_fs(active, context_sum, context_max)
        larger, smaller = max(prefill, decode), min(prefill, decode)
        value = self.lambda_ppm * larger + (PPM - self.lambda_ppm) * smaller
        if value < 0:
            raise InputError(
                f"a mixed step would take a negative time with lambda_ppm={self.lambda_ppm}",
                field="cost",
                remedy="lambda is usually about 1",
            )
        return round_half_up(value, PPM * active * FS_PER_NS) * self.time_scale

    def _prefill_fs(self, prompts: Sequence[int]) -> int:
        alpha, beta, least = self.alpha_fs, self.beta_fs, self.c_fs
        return sum(max((alpha * tokens + beta) * tokens, least) for tokens in prompts)

    def _decode_fs(self, active: int, context_sum: int, context_max: int) -> int:
        """Time of a round times ``active``, which keeps the mean whole."""
        if active < 1:
            raise InputError(
                "a round without an active request has no mean context",
                field="cost",
                remedy="give at least one active request",
            )
        value = self.gamma_fs * context_max * active + self.delta_fs * context_sum
        if value < 0:
            raise InputError(
                f"a round of {active} requests at context {context_max} would take a negative "
                f"time with the coefficients gamma_fs={self.gamma_fs}, delta_fs={self.delta_fs}",
                field="cost",
                remedy="fit coefficients of at least 0",
            )
        return value

    def warnings(self) -> tuple[str, ...]:
        """What makes the model doubtful: one text a negative coefficient."""
        return tuple(
            f"the coefficient {name} is negative ({getattr(self, name)}): times can fall with load"
            for name in (*COEFFICIENTS, "lambda_ppm")
            if getattr(self, name) < 0
        )

    def floor(self) -> Floor | None:
        """Return what steps take, exactly; None where rounds fall with the contexts.

        A step with both takes at least the larger part unless lambda is below 1.
        """
        if min(self.gamma_fs, self.delta_fs) < 0:
            return None
        stage = StageFloor(square=self.alpha_fs, token=self.beta_fs, least=self.c_fs)
        round_floor = RoundFloor(longest=self.gamma_fs, mean=self.delta_fs)
        mixed = "larger" if self.lambda_ppm >= PPM else None
        return Floor(stage, round_floor, FS_PER_NS, self.time_scale, mixed=mixed, exact=True)

    def scaled(self, factor: int) -> Self:
        """Every duration multiplied by ``factor``, after its rounding."""
        return type(self)(**{**asdict(self), "time_scale": self.time_scale * factor})

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Read the five coefficients and lambda; ``time_scale`` may be left out."""
        required = [*COEFFICIENTS, "lambda_ppm"]
        return cls(**read_parameters(parameters, cls.model, required, ["time_scale"]))
