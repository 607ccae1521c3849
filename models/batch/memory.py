"""How many requests of a length fit into one batch: the two memory rules of SCLS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import set_whole
from orsched.common.units import MAX_TOKENS

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn

MILLION = 1_000_000
MAX_BYTES = 2**62


@runtime_checkable
class BatchMemory(Protocol):
    """The largest batch as a function of the tokens that each of its requests is padded to."""

    def most(self, tokens: IntColumn) -> IntColumn:
        """Return the most requests in a batch padded to these tokens (longest prompt + slice)."""


@dataclass(frozen=True)
class PaddedMemory:
    """A batch of N holds ``(L + S) N`` tokens of cache (SCLS, eq. 5-9).

    ``N_max = floor(zeta (capacity - model - engine) / (token_bytes (L + S)))``, in integers.

    Attributes:
        capacity_bytes: memory of the device (M_cap).
        token_bytes: cache of one token of one request (Delta).
        model_bytes: parameters of the model (M_model).
        engine_bytes: what the engine keeps for itself (M_engine).
        zeta_ppm: usable share in millionths; SCLS takes 900,000 for transformers.

    Raises:
        InputError: a field is out of range, or nothing is available.
    """

    capacity_bytes: int
    token_bytes: int
    model_bytes: int = 0
    engine_bytes: int = 0
    zeta_ppm: int = MILLION

    def __post_init__(self) -> None:
        limits = {
            "capacity_bytes": (1, MAX_BYTES),
            "token_bytes": (1, MAX_BYTES),
            "model_bytes": (0, MAX_BYTES),
            "engine_bytes": (0, MAX_BYTES),
            "zeta_ppm": (1, MILLION),
        }
        for name, (least, most) in limits.items():
            set_whole(self, name, minimum=least, maximum=most)
        if self.available_bytes <= 0:
            raise InputError(
                f"model and engine leave {self.available_bytes} bytes for the cache",
                field="capacity_bytes",
                remedy="give a capacity above model_bytes + engine_bytes",
            )

    @property
    def available_bytes(self) -> int:
        """M_ava of eq. (6)."""
        return self.capacity_bytes - self.model_bytes - self.engine_bytes

    def most(self, tokens: IntColumn) -> IntColumn:
        """Return ``N_max`` of eq. (8) with zeta of eq. (9).

        The floor of a quotient by a product is the floor of the floor, so the budget is counted
        in whole tokens once.
        """
        budget = self.zeta_ppm * self.available_bytes // (MILLION * self.token_bytes)
        return budget // tokens


@dataclass(frozen=True)
class TableMemory:
    """Profiled largest batches by total length (SCLS, Algorithm 2, for DeepSpeed).

    Attributes:
        limits: pairs of a number of tokens and the most requests that fit when ``L + S`` is at
            most that; tokens strictly growing.
        beyond: the most requests above the last of these; 0: no such request can be served.

    Raises:
        InputError: the pairs are not whole numbers, not in order, or there are none.
    """

    limits: tuple[tuple[int, int], ...]
    beyond: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.limits, (list, tuple)) or not self.limits:
            raise InputError(
                "not a list of pairs (tokens, most requests)",
                field="limits",
                remedy="give a list of pairs",
            )
        pairs: list[tuple[int, int]] = []
        for row, pair in enumerate(self.limits):
            if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                raise InputError(
                    "not a pair (tokens, most requests)",
                    field="limits",
                    row=row,
                    remedy="give two whole numbers",
                )
            tokens = whole_number(pair[0], "limits", minimum=1, maximum=2 * MAX_TOKENS)
            if pairs and tokens <= pairs[-1][0]:
                text = f"{tokens} tokens after {pairs[-1][0]}"
                raise InputError(text, field="limits", row=row, remedy="sort by tokens")
            pairs.append((tokens, whole_number(pair[1], "limits", maximum=MAX_TOKENS)))
        object.__setattr__(self, "limits", tuple(pairs))
        beyond = whole_number(self.beyond, "beyond", maximum=MAX_TOKENS)
        object.__setattr__(self, "beyond", beyond)

    def most(self, tokens: IntColumn) -> IntColumn:
        """Return the entry of the table for each number of tokens."""
        steps = np.array([pair[0] for pair in self.limits], dtype=np.int64)
        sizes = np.array([*(pair[1] for pair in self.limits), self.beyond], dtype=np.int64)
        return sizes[np.searchsorted(steps, tokens, side="left")]


DEEPSPEED = TableMemory(((512, 28), (1024, 22)), beyond=12)
"""The numbers of Algorithm 2; its authors' settings keep ``L + S`` at 2,048 or less."""
