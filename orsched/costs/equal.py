"""Which of many cost models are equal, by one number for all that are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.costs.protocol import CostModel


def numbers_of_equal(costs: Sequence[CostModel]) -> list[int]:
    """Return a number for each cost model, in order of first appearance, that equal ones share.

    A model that has no hash is equal to itself alone.
    """
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
