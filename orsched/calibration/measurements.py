"""Measured durations of steps: what a cost model is fitted to."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from orsched.common.columns import IntColumn, int_column
from orsched.common.errors import InputError, known_names
from orsched.common.units import MAX_TIME_NS, MAX_TOKENS
from orsched.costs.protocol import mixed_ns, prefill_ns, read_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from orsched.costs.protocol import CostModel

PREFILL, DECODE, MIXED = PHASES = ("prefill", "decode", "mixed")
_WORK = ("tokens", "longest", "context_sum", "context_max", "run", "cached")
_MOST = {"duration_ns": MAX_TIME_NS, "count": 2**20, "tokens": 2**51, "context_sum": 2**51}


@dataclass(frozen=True, eq=False)
class Measurements:
    """One row a measured step; columns of equal length, counts in tokens, times in nanoseconds.

    A ``prefill`` row is a stage over ``count`` prompts with ``tokens`` prompt tokens in all, the
    longest prompt having ``longest``. A ``decode`` row is one round of ``count`` active requests,
    whose contexts sum to ``context_sum`` with ``context_max`` as the longest. A ``mixed`` row is
    ``tokens`` prompt tokens prefilled beside such a round, of as few prompts as the ``longest``
    allows: of one where both are equal. What a phase does not use is 0, which a column left out
    stands for; contexts may stay 0 for models that do not look at them. ``cached`` are the tokens
    of its request in the cache before each prompt of the row, a mean over the prompt tokens where
    they differ: the row is of chunks behind others, or behind a prefix. ``run`` is 0 for a step
    measured alone, again and again, and k for one of the k-th run, in which others came before it:
    a device is warmer there. Raises ``InputError``: columns of unequal length, or a row that no
    step can have; names both.
    """

    phase: Sequence[str]
    count: ArrayLike
    duration_ns: ArrayLike
    tokens: ArrayLike | None = None
    longest: ArrayLike | None = None
    context_sum: ArrayLike | None = None
    context_max: ArrayLike | None = None
    run: ArrayLike | None = None
    cached: ArrayLike | None = None

    def __post_init__(self) -> None:
        if isinstance(self.phase, str):
            raise InputError(
                "expected one phase a row, not a text",
                field="phase",
                remedy="give a list with a phase for each row",
            )
        phase = tuple(self.phase)
        for row, name in enumerate(phase):
            if name not in PHASES:
                remedy = known_names(name, PHASES)
                raise InputError(f"unknown phase {name!r}", row=row, field="phase", remedy=remedy)
        object.__setattr__(self, "phase", phase)
        for item in fields(self)[1:]:
            value = getattr(self, item.name)
            minimum = 0 if item.name in _WORK else 1
            maximum = _MOST.get(item.name, MAX_TOKENS)
            column = int_column(
                np.zeros(len(phase), np.int64) if value is None else value,
                item.name,
                minimum=minimum,
                maximum=maximum,
                length=len(phase),
            )
            object.__setattr__(self, item.name, column)
        _check_rows(self)

    def __len__(self) -> int:
        return len(self.phase)

    def rows(self, phase: str) -> IntColumn:
        """Return the row numbers of a phase."""
        return np.array([i for i, name in enumerate(self.phase) if name == phase], np.int64)

    def column(self, name: str) -> IntColumn:
        """Return a column other than ``phase``."""
        values: IntColumn = getattr(self, name)
        return values

    def prompts(self, row: int) -> list[int]:
        """Return prompts with the number, sum and maximum of a row; none for a round."""
        if self.phase[row] == DECODE:
            return []
        tokens, longest = int(self.column("tokens")[row]), int(self.column("longest")[row])
        count = int(self.column("count")[row])
        if self.phase[row] == MIXED:
            count = -(-tokens // longest)
        return prompts_of(count, tokens, longest)

    def before(self, row: int) -> list[int]:
        """Return the tokens cached before each of the ``prompts`` of a row; none for 0."""
        cached = int(self.column("cached")[row])
        return [cached] * len(self.prompts(row)) if cached else []

    def predicted_ns(self, cost: CostModel, row: int) -> int:
        """Return the duration that a cost model gives to a measured step, in nanoseconds."""
        count, context_sum, context_max = (
            int(self.column(name)[row]) for name in ("count", "context_sum", "context_max")
        )
        if self.phase[row] == PREFILL:
            return prefill_ns(cost, self.prompts(row), self.before(row))
        if self.phase[row] == DECODE:
            return cost.round_ns(count, context_sum, context_max)
        if getattr(cost, "mixed_ns", None) is None:
            raise _no_mixed(cost.model, row)
        load = (count, context_sum, context_max)
        return mixed_ns(cost, self.prompts(row), *load, self.before(row))

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns as JSON values."""
        columns = {item.name: self.column(item.name).tolist() for item in fields(self)[1:]}
        return {"phase": list(self.phase), **columns}

    @classmethod
    def from_dict(cls, columns: dict[str, Any]) -> Self:
        """Read the columns; those that are not needed may be left out."""
        return cls(
            **read_parameters(columns, "measurements", ["phase", "count", "duration_ns"], _WORK)
        )


def refuse_mixed(measurements: Measurements, model: str) -> None:
    """Raise ``InputError`` when there is a mixed row, for models without mixed steps."""
    rows = measurements.rows(MIXED)
    if len(rows):
        raise _no_mixed(model, int(rows[0]))


def _no_mixed(model: str, row: int) -> InputError:
    return InputError(
        f"the cost model {model} has no mixed steps",
        row=row,
        field="phase",
        remedy="leave the mixed rows out or fit pooling, profiled, linear or roofline",
    )


def prompts_of(count: int, tokens: int, longest: int) -> list[int]:
    """Return prompts with this number, sum and maximum."""
    if count == 1:
        return [longest]
    each, more = divmod(tokens - longest, count - 1)
    return [longest] + [each + 1] * more + [each] * (count - 1 - more)


def _check_rows(data: Measurements) -> None:
    phase = np.array(data.phase, dtype="U7")
    count, tokens, longest = (data.column(name) for name in ("count", "tokens", "longest"))
    total, most = data.column("context_sum"), data.column("context_max")
    prefill, decode, mixed = (phase == name for name in PHASES)
    over = tokens > count * longest
    under = tokens - longest < count - 1
    _refuse(prefill & (longest < 1), "longest", "a prefill stage needs a prompt")
    _refuse(prefill & over, "tokens", "more tokens than 'count' prompts of the longest length")
    _refuse(prefill & under, "tokens", "fewer tokens than the longest prompt and one a prompt")
    _refuse(prefill & ((total > 0) | (most > 0)), "context_sum", "a prefill stage has no contexts")
    _refuse(decode & ((tokens > 0) | (longest > 0)), "tokens", "a decode round has no prompts")
    _refuse(decode & (data.column("cached") > 0), "cached", "a decode round has no prompts")
    _refuse(mixed & (tokens < 1), "tokens", "a mixed step needs a prompt")
    _refuse(mixed & (longest < 1), "longest", "a mixed step needs the tokens of its longest prompt")
    _refuse(mixed & (longest > tokens), "longest", "longer than all prompts of the step together")
    _refuse(total > count * most, "context_sum", "more than 'count' times context_max")
    _refuse(total < most, "context_max", "longer than the sum of the contexts")


def _refuse(bad: NDArray[np.bool_], field: str, problem: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(problem, row=row, field=field, remedy="correct the row, or leave it out")
