"""The cost model of Pang's MIP: prefill levels and a constant decode round."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from orsched.columns import whole_number
from orsched.costs.parameters import read_parameters
from orsched.errors import InputError
from orsched.units import MAX_TIME_NS

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class LevelsCost:
    """A prefill stage takes the time of the smallest level that holds it, a round T^d (Pang).

    ``levels`` are the pairs (N^cap_l in tokens, T^p_l in nanoseconds) of Pang's MIP, eq. (5)-(7):
    capacities of at least 1 grow strictly, times never fall. ``round_fixed_ns`` is T^d in
    eq. (8), the time of one round whoever takes part. (Table III of the paper gives T^d as
    0.21 ms a token; eq. (8) needs the time of a round.)

    Raises:
        InputError: no level, a level out of order, or a value that is not a whole number.
    """

    levels: tuple[tuple[int, int], ...]
    round_fixed_ns: int

    model: ClassVar[str] = "levels"
    context_matters: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _read_levels(self.levels))
        time = whole_number(self.round_fixed_ns, "round_fixed_ns", maximum=MAX_TIME_NS)
        object.__setattr__(self, "round_fixed_ns", time)

    @property
    def prefill_limit(self) -> int:
        """Capacity of the largest level, in tokens."""
        return self.levels[-1][0]

    def prefill_ns(self, prompts: Sequence[int]) -> int:
        """Duration of a prefill stage over these prompts, in nanoseconds (Pang eq. 5-7).

        Raises ``InputError`` when no level holds the tokens.
        """
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

    def scaled(self, factor: int) -> Self:
        """Every time multiplied by ``factor``; the capacities stay."""
        levels = tuple((cap, time * factor) for cap, time in self.levels)
        return type(self)(levels, self.round_fixed_ns * factor)

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


def _read_levels(values: object) -> tuple[tuple[int, int], ...]:
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
            )
        try:
            cap = whole_number(pair[0], "levels", minimum=1)
            time = whole_number(pair[1], "levels", maximum=MAX_TIME_NS)
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
