"""The cost models of Pang: affine (section V-A), and the prefill levels of the MIP."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from orsched.common.errors import InputError
from orsched.common.units import set_times
from orsched.costs.bilinear import COEFFICIENTS, BilinearCost
from orsched.costs.exact import FS_PER_NS, MAX_COEFFICIENT_FS
from orsched.costs.floor import Floor, RoundFloor, StageFloor
from orsched.costs.protocol import read_levels, read_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, init=False)
class LevelsCost:
    """A prefill stage takes the time of the smallest level that holds it, a round T^d (Pang).

    ``levels`` are the pairs (N^cap_l in tokens, T^p_l in nanoseconds) of Pang's MIP, eq. (5)-(7):
    at least one, capacities of at least 1 grow strictly, times never fall. ``round_fixed_ns`` is
    T^d in eq. (8), the time of one round, whichever requests take part. (Table III of the paper
    gives T^d as 0.21 ms a token; eq. (8) needs the time of a round.) Anything else raises
    ``InputError``. In seconds, but not both, the arguments are ``levels_s``, pairs of tokens and
    seconds, and ``round_fixed_s``.
    """

    levels: tuple[tuple[int, int], ...]
    round_fixed_ns: int

    model: ClassVar[str] = "levels"
    context_matters: ClassVar[bool] = False

    def __init__(
        self,
        *,
        levels_s: Sequence[tuple[int, float]] | None = None,
        round_fixed_s: float | None = None,
        levels: Sequence[tuple[int, int]] | None = None,
        round_fixed_ns: int | None = None,
    ) -> None:
        if levels_s is not None:
            if levels is not None:
                raise InputError(
                    "is given in seconds and in nanoseconds",
                    field="levels_s",
                    remedy="leave levels out",
                )
            levels = read_levels(levels_s, seconds=True)
        object.__setattr__(self, "levels", read_levels(levels))
        set_times(self, round_fixed=(round_fixed_ns, round_fixed_s))

    @property
    def prefill_limit(self) -> int:
        """Capacity of the largest level, in tokens."""
        return self.levels[-1][0]

    def prefill_ns(self, prompts: Sequence[int]) -> int:
        """Duration of a prefill stage that a level holds, in nanoseconds (Pang eq. 5-7)."""
        tokens = sum(prompts)
        index = bisect_left(self.levels, (tokens,))  # (cap,) sorts before (cap, time)
        if index == len(self.levels):
            raise InputError(
                f"a prefill stage of {tokens} tokens is over the largest level, "
                f"{self.prefill_limit} tokens",
                field="levels",
                remedy="add a larger level or split the stage",
            )
        return self.levels[index][1]

    def round_ns(self, active: int, context_sum: int = 0, context_max: int = 0) -> int:
        """Duration of one decode round, in nanoseconds: T^d of Pang eq. (8)."""
        return self.round_fixed_ns

    def rounds_ns(
        self, rounds: int, active: int, context_sum: int = 0, context_max: int = 0
    ) -> int:
        """Duration of a run of rounds, in nanoseconds."""
        return rounds * self.round_fixed_ns

    def floor(self) -> Floor:
        """Return what steps take, exactly."""
        round_floor = RoundFloor(fixed=self.round_fixed_ns)
        return Floor(StageFloor(levels=self.levels), round_floor, mixed="sum", exact=True)

    def scaled(self, factor: int) -> Self:
        """Every time multiplied by ``factor``; the capacities stay."""
        levels = tuple((cap, time * factor) for cap, time in self.levels)
        return type(self)(levels=levels, round_fixed_ns=self.round_fixed_ns * factor)

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""
        return {
            "levels": [[cap, time] for cap, time in self.levels],
            "round_fixed_ns": self.round_fixed_ns,
        }

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Read both parameters."""
        return cls(**read_parameters(parameters, cls.model, ["levels", "round_fixed_ns"]))


@dataclass(frozen=True, init=False)
class AffineCost:
    """Prefill ``a + b * tokens``, decode round ``c + d * active clients`` (Pang, section V-A).

    All four parameters are times of at least 0, given in seconds (``prefill_fixed_s=0.025``) or in
    whole nanoseconds (``prefill_fixed_ns=25_000_000``), not both (else ``InputError``), and stored
    in nanoseconds. The defaults are Pang's measurements of LLaMA-65B on eight Ascend devices: 25 ms
    + 0.13 ms a token, 29 ms + 0.21 ms a client.
    """

    prefill_fixed_ns: int = 25_000_000
    prefill_token_ns: int = 130_000
    round_fixed_ns: int = 29_000_000
    round_client_ns: int = 210_000

    model: ClassVar[str] = "affine"
    context_matters: ClassVar[bool] = False

    def __init__(
        self,
        *,
        prefill_fixed_s: float | None = None,
        prefill_token_s: float | None = None,
        round_fixed_s: float | None = None,
        round_client_s: float | None = None,
        prefill_fixed_ns: int = prefill_fixed_ns,
        prefill_token_ns: int = prefill_token_ns,
        round_fixed_ns: int = round_fixed_ns,
        round_client_ns: int = round_client_ns,
    ) -> None:
        set_times(
            self,
            prefill_fixed=(prefill_fixed_ns, prefill_fixed_s),
            prefill_token=(prefill_token_ns, prefill_token_s),
            round_fixed=(round_fixed_ns, round_fixed_s),
            round_client=(round_client_ns, round_client_s),
        )

    @property
    def prefill_limit(self) -> int | None:
        """No limit by the model."""
        return None

    def prefill_ns(self, prompts: Sequence[int]) -> int:
        """Duration of a prefill stage over these prompts, in nanoseconds."""
        return self.prefill_fixed_ns + self.prefill_token_ns * sum(prompts)

    def round_ns(self, active: int, context_sum: int = 0, context_max: int = 0) -> int:
        """Duration of one decode round, in nanoseconds; contexts play no part."""
        return self.round_fixed_ns + self.round_client_ns * active

    def rounds_ns(
        self, rounds: int, active: int, context_sum: int = 0, context_max: int = 0
    ) -> int:
        """Duration of a run of equal rounds, in nanoseconds."""
        return rounds * (self.round_fixed_ns + self.round_client_ns * active)

    def mixed_ns(
        self, prompts: Sequence[int], active: int, context_sum: int = 0, context_max: int = 0
    ) -> int:
        """Duration of a step that prefills beside a round: the larger fixed part counts, once.

        The fixed parts are mostly the reading of the weights, which such a step does once.
        """
        fixed = max(self.prefill_fixed_ns, self.round_fixed_ns)
        return fixed + self.prefill_token_ns * sum(prompts) + self.round_client_ns * active

    def floor(self) -> Floor:
        """Return what steps take, exactly; one with both has one of the fixed parts less."""
        stage = StageFloor(fixed=self.prefill_fixed_ns, token=self.prefill_token_ns)
        round_floor = RoundFloor(fixed=self.round_fixed_ns, request=self.round_client_ns)
        return Floor(stage, round_floor, mixed="one_fixed", exact=True)

    def as_bilinear(self) -> BilinearCost | None:
        """Return the bilinear model that steps over prompts of equal length follow exactly; None
        where a time has no place in it."""
        used = {"p1_fs": self.prefill_token_ns, "p4_fs": self.prefill_fixed_ns}
        used |= {"d2_fs": self.round_client_ns, "d4_fs": self.round_fixed_ns}
        values = {name: FS_PER_NS * used.get(name, 0) for name in COEFFICIENTS}
        return None if max(values.values()) > MAX_COEFFICIENT_FS else BilinearCost(**values)

    def scaled(self, factor: int) -> Self:
        """Every time multiplied by ``factor``."""
        return type(self)(**{key: value * factor for key, value in asdict(self).items()})

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Read the parameters, all four of them."""
        return cls(**read_parameters(parameters, cls.model, [item.name for item in fields(cls)]))
