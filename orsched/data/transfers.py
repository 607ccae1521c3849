"""Transfers: the caches that went over links in a schedule."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from orsched.common.columns import IntColumn, int_column
from orsched.common.units import MAX_TOKENS, NEVER


@dataclass(frozen=True, eq=False, kw_only=True)
class Transfers:
    """One row for each cache that went over a link, in order of start, then source, then request.

    Attributes:
        request: row of the request in the instance.
        stay: number of the stay that the cache begins; the one before it sends the cache.
        source, target: the workers that send and receive it.
        start_ns, end_ns: when the link is busy with it.
        tokens: tokens in the cache.
    """

    request: IntColumn
    stay: IntColumn
    source: IntColumn
    target: IntColumn
    start_ns: IntColumn
    end_ns: IntColumn
    tokens: IntColumn

    def __post_init__(self) -> None:
        n = len(int_column(self.request, "transfers.request"))
        limits = {
            "request": (0, 2**31),
            "stay": (1, 2**31),
            "source": (0, 2**31),
            "target": (0, 2**31),
            "start_ns": (0, NEVER - 1),
            "end_ns": (0, NEVER - 1),
            "tokens": (1, MAX_TOKENS),
        }
        for name, (low, high) in limits.items():
            column = int_column(
                getattr(self, name), f"transfers.{name}", minimum=low, maximum=high, length=n
            )
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.request)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transfers):
            return NotImplemented
        return all(np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in COLUMNS)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def none(cls) -> Transfers:
        """Return no transfers."""
        return cls(**{item.name: np.zeros(0, np.int64) for item in COLUMNS})


COLUMNS = fields(Transfers)
NAMES = tuple(each.name for each in COLUMNS)
"""The columns by name, in the order of files."""
