"""Equal cost models have one number."""

from __future__ import annotations

from orsched.costs import AffineCost
from orsched.costs.exact import numbers_of_equal


class Unhashable(AffineCost):
    """Equal to itself alone."""

    __hash__ = None


class Renamed(AffineCost):
    """Has the values of another class, and perhaps other times."""


def test_equal_values_of_one_class_share_a_number():
    shared = Unhashable()
    costs = [AffineCost(), Renamed(), AffineCost(), shared, shared, Unhashable()]
    assert numbers_of_equal(costs) == [0, 1, 0, 2, 2, 3]


def test_other_values_have_other_numbers():
    assert numbers_of_equal([AffineCost(prefill_fixed_ns=7), AffineCost()]) == [0, 1]
