"""Costs in whole numbers: exact arithmetic, models that are equal, and what a model answered."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError, TimeLimitError
from orsched.common.scalars import printed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.costs.protocol import CostModel


MEMBERS = (
    "model", "context_matters", "prefill_limit", "prefill_ns", "round_ns", "rounds_ns", "scaled",
    "to_dict", "from_dict",
)  # fmt: skip
"""What a cost model has at least (``CostModel``)."""

_ASKED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("prefill_ns", ([1],)),
    ("prefill_ns", ([7, 3],)),
    ("round_ns", (1, 1, 1)),
    ("round_ns", (2, 9, 6)),
    ("rounds_ns", (1, 2, 9, 6)),
    ("rounds_ns", (3, 2, 9, 6)),
    ("mixed_ns", ([3], 2, 9, 6)),
)


def require_members(cost: object) -> None:
    """Refuse what is not a cost model; the error lists the members that are missing."""
    if isinstance(cost, type):
        raise InputError(
            f"{cost.__name__} is a class, not a cost model",
            field="cost",
            remedy=f"give an object: {cost.__name__}(...)",
        )
    missing = [name for name in MEMBERS if not hasattr(cost, name)]
    if missing:
        raise InputError(
            f"an object of {type(cost).__name__} is not a cost model: it lacks "
            f"{', '.join(missing)}",
            field="cost",
            remedy="orsched/costs/affine.py is a short example of each member",
        )


def require_whole_times(cost: object) -> None:
    """Ask a user's cost model for some steps; refuse a time that is not whole nanoseconds from 0.

    A member that raises is left to the run: a step may lie outside of what the model knows.
    """
    if type(cost).__module__.partition(".")[0] == "orsched":
        return
    for member, arguments in _ASKED:
        asked = getattr(cost, member, None)
        if asked is None:
            continue
        try:
            time = asked(*arguments)
        except TimeLimitError:  # the command's deadline, which may ring anywhere
            raise
        except Exception:
            continue
        _require_whole(cost, member, arguments, time)


def whole_time(cost: object, member: str, *arguments: Any) -> int:
    """Return the time of a step, and refuse one that is not whole nanoseconds from 0."""
    return _require_whole(cost, member, arguments, getattr(cost, member)(*arguments))


def _require_whole(cost: object, member: str, arguments: Sequence[Any], time: Any) -> int:
    try:
        whole = operator.index(time)
    except TypeError:
        raise not_whole(cost, member, arguments, time) from None
    if whole < 0:
        raise not_whole(cost, member, arguments, time)
    return whole


def not_whole(cost: object, member: str, arguments: Sequence[Any], time: object) -> InputError:
    """Return what to raise for a time that is not whole nanoseconds from 0."""
    called = f"{type(cost).__name__}.{member}({', '.join(map(repr, arguments))})"
    kind = "which is below 0" if isinstance(time, int) else f"a {type(time).__name__}"
    return InputError(
        f"{called} returned {time!r:.40}, {kind}",
        field=f"cost.{member}",
        remedy="return whole nanoseconds from 0 as int: round the sum once",
    )


def assumed_of_mixed_steps(cost: Any) -> str | None:
    """Return what is assumed of mixed steps; None where the model's source gives their time."""
    if getattr(cost, "mixed_ns", None) is None:
        return "their prefill and their round, one after the other"
    if cost.model == "affine":  # Pang's model has stages and rounds alone
        return "the larger fixed part, once, and both variable parts"
    return None


def numbers_of_equal(costs: Sequence[CostModel]) -> list[int]:
    """Number cost models in order of first appearance; equal ones with a hash share a number."""
    by_identity: dict[int, int] = {}  # tables take long to hash: each object once
    by_value: dict[object, int] = {}
    found = []
    for cost in costs:
        number = by_identity.get(id(cost))
        if number is None:
            number = by_identity[id(cost)] = by_value.setdefault(_value(cost), len(by_value))
        found.append(number)
    return found


def _value(cost: CostModel) -> object:
    """Return what equal cost models have in common."""
    try:
        hash(cost)
    except TypeError:
        return id(cost)
    return type(cost), cost


FS_PER_NS = 1_000_000
"""Femtoseconds in a nanosecond: the unit of the coefficients is 1e-15 s."""

FS_PER_MS = 10**12

MAX_COEFFICIENT_FS = 2**62
"""Largest size of a coefficient, 4,611 s: every one fits into 64 bits in a file."""


def floor_sum(count: int, divisor: int, slope: int, start: int) -> int:
    """Sum of ``(slope * i + start) // divisor`` over i = 0..count-1, in O(log) steps.

    Counts the lattice points below a line by Euclid's algorithm on (divisor, slope): the whole
    parts are summed in closed form, and what is left is the same sum with the axes exchanged.
    ``divisor`` is positive, ``count`` at least 0; slope and start may be negative.
    """
    total = 0
    while True:
        whole, slope = divmod(slope, divisor)
        total += whole * (count * (count - 1) // 2)
        whole, start = divmod(start, divisor)
        total += whole * count
        end = slope * count + start
        if end < divisor:
            return total
        count, start = divmod(end, divisor)
        divisor, slope = slope, divisor


def round_half_up(numerator: int, denominator: int) -> int:
    """Nearest whole number to the fraction; halves go up."""
    return (2 * numerator + denominator) // (2 * denominator)


def round_half_up_sum(count: int, denominator: int, slope: int, start: int) -> int:
    """Sum of ``round_half_up(start + slope * i, denominator)`` over i = 0..count-1."""
    return floor_sum(count, 2 * denominator, 2 * slope, 2 * start + denominator)


def to_whole_units(value: float | Fraction, units: int, field: str) -> int:
    """Return a number as whole fractions 1/units of one, the nearest, up to 2**62."""
    wrong_type = isinstance(value, bool) or not isinstance(value, (int, float, Fraction))
    if wrong_type or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(
            f"{printed(value)} is not a finite number", field=field, remedy="give a finite number"
        )
    whole = round(Fraction(value) * units)
    if abs(whole) > MAX_COEFFICIENT_FS:
        raise InputError(
            f"{printed(value)} is too large",
            field=field,
            remedy="give a smaller number, or another unit",
        )
    return whole
