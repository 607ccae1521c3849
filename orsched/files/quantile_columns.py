"""Quantiles of predicted lengths in tables: a column a level, ``predicted_p50`` for the median."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import int_column
from orsched.common.errors import InputError
from orsched.common.units import MAX_TOKENS
from orsched.data.length_quantiles import LEVELS, MAX_LEVELS, QUANTILES, require_order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.data.requests import Requests

EXAMPLE = "predicted_p50 (or another percentile)"
_NAME = re.compile(r"predicted_p([0-9]{1,2}(?:\.[0-9]{1,400})?)", re.ASCII)


def level_of(name: object) -> float | None:
    """Return the level that a column's name says: 0.025 for ``predicted_p2.5``; None for others."""
    found = _NAME.fullmatch(name) if isinstance(name, str) else None
    level = 0.0 if found is None else float(Decimal(found[1]) / 100)
    return level if 0 < level < 1 else None


def name_of(level: float) -> str:
    """Return the column's name of a level; ``level_of`` gives the level back."""
    percent = format(Decimal(repr(level)) * 100, "f")
    return f"predicted_p{percent.rstrip('0').rstrip('.') if '.' in percent else percent}"


def names_by_level(names: Iterable[object]) -> dict[float, str]:
    """Return the columns of quantiles in order of their levels.

    Raises ``InputError`` for two of one level, and for too many.
    """
    found: dict[float, str] = {}
    for name in names:
        level = level_of(name)
        if level is None:
            continue
        if level in found:
            problem = f"{found[level]} is of the same level"
            raise InputError(problem, field=str(name), remedy="keep one of them")
        found[level] = str(name)
        if len(found) > MAX_LEVELS:
            raise InputError(f"more than {MAX_LEVELS} quantiles", field=str(name), remedy="fewer")
    return dict(sorted(found.items()))


def gather(columns: dict[str, Any]) -> dict[str, Any]:
    """Return columns with those of quantiles as the two that ``Requests`` takes.

    Raises ``InputError`` that names the column and, where a value is wrong, the row.
    """
    names = names_by_level(columns)
    if not names:
        return columns
    found = np.column_stack([_tokens(columns[name], name) for name in names.values()])
    require_order(found, list(names), list(names.values()))
    rest = {name: column for name, column in columns.items() if level_of(name) is None}
    return {**rest, QUANTILES: found, LEVELS: tuple(names)}


def _tokens(column: Any, name: str) -> Any:
    remedy = f"whole tokens from 1 to {MAX_TOKENS}"
    return int_column(column, name, minimum=1, maximum=MAX_TOKENS, remedy=remedy)


def quantile_columns(requests: Requests) -> dict[str, Any]:
    """Return the quantiles of requests as columns by name; {} without any."""
    quantiles = requests.predicted_quantiles
    if quantiles is None:
        return {}
    return {
        name_of(level): quantiles[:, place].copy()
        for place, level in enumerate(requests.quantile_levels or ())
    }
