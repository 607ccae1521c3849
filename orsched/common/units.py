"""Conversions between the integer nanoseconds inside and the seconds at the edge of the API."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.common.scalars import is_number, printed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

    from orsched.common.columns import IntColumn

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
NS_PER_US = 1_000

MAX_TIME_NS = 2**61
"""Largest time that input may state (73 years): the sum of two is no more than ``NEVER``."""

NEVER = 2**62
"""Stands for a moment that does not come. All times of schedules are less."""

MAX_TIME = "2**61 ns (73 years)"
"""The largest time in words, for messages."""

MAX_TOKENS = 2**31 - 1
"""Largest token count of one request."""


def seconds_to_ns(seconds: float, field: str = "time") -> int:
    """Round seconds from 0 to ``MAX_TIME_NS`` to integer nanoseconds, exactly (no float)."""
    if not is_number(seconds):
        raise InputError(
            f"{printed(seconds)} is not a number of seconds",
            field=field,
            remedy="give a number of seconds, such as 0.5",
        )
    if isinstance(seconds, float) and not math.isfinite(seconds):
        raise InputError(f"{seconds} is not a finite time", field=field, remedy="give seconds")
    ns = round(Fraction(seconds) * NS_PER_S)
    if ns < 0:
        problem = f"{printed(seconds)} s is negative"
        raise InputError(problem, field=field, remedy="times start at 0")
    if ns > MAX_TIME_NS:
        problem = f"{printed(seconds)} s is too large"
        raise InputError(problem, field=field, remedy=f"the limit is {MAX_TIME}")
    return ns


def time_ns(ns: int | None, seconds: float | None, name: str) -> int | None:
    """Return a time that is given in nanoseconds or in seconds, or None where it is not given.

    Raises ``InputError`` at ``name`` with its unit for what is not a time, and for both at once.
    """
    if seconds is None:
        from orsched.common.columns import whole_number  # needs numpy, which help texts do without

        return None if ns is None else whole_number(ns, f"{name}_ns", maximum=MAX_TIME_NS)
    if ns is not None:
        raise InputError(
            "is given in seconds and in nanoseconds",
            field=f"{name}_s",
            remedy=f"leave {name.rpartition('.')[2]}_ns out",
        )
    return seconds_to_ns(seconds, f"{name}_s")


def set_times(target: object, **given: tuple[int | None, float | None]) -> None:
    """Set the fields ``..._ns`` of a frozen dataclass from times in nanoseconds or in seconds.

    Either, not both, is required; seconds also stand in for the default of the field.
    """
    for name, (ns, seconds) in given.items():
        default = getattr(type(target), f"{name}_ns", None)
        value = time_ns(None if seconds is not None and ns == default else ns, seconds, name)
        if value is None:
            raise InputError(
                "is missing", field=f"{name}_ns", remedy=f"give it, or {name}_s in seconds"
            )
        object.__setattr__(target, f"{name}_ns", value)


def ns_to_seconds(ns: int) -> float:
    """Return nanoseconds as seconds, correctly rounded."""
    return ns / NS_PER_S


def seconds_text(seconds: float, decimals: int = 3) -> str:
    """Return seconds with so many decimals, and with three digits where these would show none.

    >>> seconds_text(77.0601), seconds_text(12e-9), seconds_text(0.0)
    ('77.060', '0.000000012', '0.000')
    """
    if seconds and abs(seconds) < 10**-decimals:
        decimals = 2 - math.floor(math.log10(abs(seconds)))
        return f"{seconds:.{decimals}f}".rstrip("0")
    return f"{seconds:,.{decimals}f}"


def seconds_column(values: ArrayLike, field: str, length: int | None = None) -> IntColumn:
    """Return a column of seconds from 0 as nanoseconds, each rounded exactly, half to even."""
    import numpy as np  # which help texts do without

    from orsched.common.columns import int_column

    raw = _floats(values, field)
    whole = np.floor(raw)
    parts = (raw - whole) * NS_PER_S  # the difference is exact, the product all but
    near = np.rint(parts)
    # The product may be off by less than a millionth: only close to a half that could matter.
    unsure = (
        (raw < 0) | (np.abs(np.abs(parts - near) - 0.5) < 1e-6) | (raw > MAX_TIME_NS / NS_PER_S)
    )
    ns = np.where(unsure, 0, whole).astype(np.int64) * NS_PER_S + np.where(unsure, 0, near).astype(
        np.int64
    )
    for row in np.flatnonzero(unsure).tolist():
        ns[row] = _located_ns(float(raw[row]), row, field)
    return int_column(ns, field, maximum=MAX_TIME_NS, length=length)


def _located_ns(value: object, row: int, field: str) -> int:
    try:
        return seconds_to_ns(value, field)  # type: ignore[arg-type]
    except InputError as error:
        raise error.located(row=row) from None


def _floats(values: ArrayLike, field: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a one-dimensional column of finite numbers."""
    import numpy as np

    listed = isinstance(values, (list, tuple))
    raw = np.empty(0) if listed and not len(values) else np.asarray(values)  # type: ignore[arg-type]
    if raw.ndim != 1:
        raise InputError(
            f"expected one dimension, got {raw.ndim}", field=field, remedy="give a list of numbers"
        )
    mixed = listed and any(type(value) is bool for value in values)  # type: ignore[union-attr]
    if mixed or raw.dtype.kind not in "iuf":
        for row, value in enumerate(values):  # type: ignore[arg-type]
            if not isinstance(value, (np.integer, np.floating)):
                _located_ns(value, row, field)
        raw = np.array([float(value) for value in values], dtype=np.float64)  # type: ignore[union-attr,arg-type]
    raw = raw.astype(np.float64)
    if not np.isfinite(raw).all():
        row = int(np.argmin(np.isfinite(raw)))
        _located_ns(float(raw[row]), row, field)
    return raw
