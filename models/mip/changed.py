"""A program as its MathOpt model is now: the linear model that files of a changed one are of."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError
from orsched.models.full_mip.linear import BINARY, CONTINUOUS, INTEGER, LinearModel

if TYPE_CHECKING:
    from collections.abc import Iterable

_ELSEWHERE = (
    "quadratic_constraints", "second_order_cone_constraints", "sos1_constraints",
    "sos2_constraints", "indicator_constraints", "auxiliary_objectives",
)  # fmt: skip


_OTHERWISE_READ = re.compile(
    "([0-9].*|e[0-9]+|constant|objective|min(imi[sz]e|imum)?|max(imi[sz]e|imum)?|st|subject|such|to|"
    "that|bounds?|free|inf(inity)?|nan|gen(erals?)?|int(egers?)?|bin(ar(y|ies))?|semis?|sos[12]?|"
    "end|name|rows|columns|rhs|ranges?|marker|endata)",
    re.IGNORECASE,
)
"""Names that a reader of files takes for a number, a keyword, or a name that each file has."""


class Changed(NamedTuple):
    """A changed model.

    Attributes:
        model: columns, rows and objective; what is not whole is a float.
        constant: what the objective has beside its terms.
        negated: whether the model maximises, and ``model`` minimises the negative.
    """

    model: LinearModel
    constant: float
    negated: bool


def changed_model(model: Any) -> Changed:
    """Return a MathOpt model as a linear model.

    A variable or row without a name, or with one that files cannot have, gets one that they can.
    Raises ``InputError`` for what is not linear.
    """
    proto = model.export_model()
    curved = len(proto.objective.quadratic_coefficients.coefficients) > 0
    if curved or any(len(getattr(proto, name, ())) for name in _ELSEWHERE):
        raise InputError(
            "the model has more than linear rows and one linear objective",
            field="model",
            remedy="write it with mip.model.export_model(), or take those parts out",
        )
    found, columns = LinearModel(), proto.variables
    names = _usable(columns.names, columns.ids, "variable")
    for place, name in enumerate(names):
        low, high = columns.lower_bounds[place], columns.upper_bounds[place]
        kind = CONTINUOUS if not columns.integers[place] else INTEGER
        kind = BINARY if kind == INTEGER and (low, high) == (0, 1) else kind
        found.add(name, kind, _number(high), _number(low))
    place_of = {column: place for place, column in enumerate(columns.ids)}
    rows, matrix = proto.linear_constraints, proto.linear_constraint_matrix
    terms: dict[int, list[tuple[int, int]]] = {row: [] for row in rows.ids}
    entries = zip(matrix.row_ids, matrix.column_ids, matrix.coefficients, strict=True)
    for row, column, value in entries:
        terms[row].append((place_of[column], _number(value)))
    names = _usable(rows.names, rows.ids, "row")
    for name, row, low, high in zip(
        names, rows.ids, rows.lower_bounds, rows.upper_bounds, strict=True
    ):
        sides = [None if math.isinf(side) else _number(side) for side in (low, high)]
        found.row(name, terms[row], *sides)
    aim = proto.objective
    sign = -1 if aim.maximize else 1
    pairs = zip(aim.linear_coefficients.ids, aim.linear_coefficients.values, strict=True)
    found.minimise((place_of[column], _number(sign * value)) for column, value in pairs)
    return Changed(found, _number(sign * aim.offset), aim.maximize)


def _number(value: float) -> Any:
    """Return a number as an int if it is whole, so that files print it as one."""
    if math.isnan(value):
        raise InputError(
            "a bound or coefficient of the model is not a number",
            field="model",
            remedy="find the variable or row that holds nan, and give it a number",
        )
    return int(value) if value.is_integer() else value


def _usable(names: Iterable[str], ids: Iterable[int], what: str) -> list[str]:
    """Return names as files can have them, all different."""
    found: dict[str, None] = {}
    for name, number in zip(list(names) or [""] * len(list(ids)), ids, strict=True):
        plain = "".join(c if c.isalnum() and c.isascii() else "_" for c in name)[:200]
        if not plain or _OTHERWISE_READ.fullmatch(plain):
            plain = f"{what}_{plain or number}"
        while plain in found:
            plain = f"{plain}_{number}"
        found[plain] = None
    return list(found)
