"""Whether an object is a cost model, and whether its times are whole nanoseconds."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError, TimeLimitError

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    Models of orsched round themselves. A member that raises is left to the run: a step may lie
    outside of what the model knows.
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
    """Return what orsched assumes of steps that prefill beside a round.

    None where the source of the cost model states a time for them.
    """
    if getattr(cost, "mixed_ns", None) is None:
        return "their prefill and their round, one after the other"
    if cost.model == "affine":  # Pang's model has stages and rounds alone
        return "the larger fixed part, once, and both variable parts"
    return None
