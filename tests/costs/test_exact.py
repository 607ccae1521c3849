from fractions import Fraction
from math import floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orsched import AffineCost, InputError
from orsched.costs import exact
from orsched.costs.exact import floor_sum, numbers_of_equal, round_half_up, to_whole_units

SMALL = st.integers(-300, 300)
BIG = st.integers(-(10**25), 10**25)


@settings(max_examples=300)
@given(st.integers(0, 60), st.integers(1, 90), SMALL, SMALL)
def test_floor_sum_is_the_sum(count, divisor, slope, start):
    brute = sum((slope * i + start) // divisor for i in range(count))
    assert floor_sum(count, divisor, slope, start) == brute


@settings(max_examples=100)
@given(st.integers(0, 200), st.integers(1, 10**25), BIG, BIG)
def test_floor_sum_on_big_numbers(count, divisor, slope, start):
    brute = sum((slope * i + start) // divisor for i in range(count))
    assert floor_sum(count, divisor, slope, start) == brute


@given(st.integers(1, 10**12), st.integers(1, 10**12), st.integers(1, 10**30), BIG, BIG)
def test_floor_sum_splits_anywhere(left, right, divisor, slope, start):
    whole = floor_sum(left + right, divisor, slope, start)
    rest = floor_sum(right, divisor, slope, start + slope * left)
    assert whole == floor_sum(left, divisor, slope, start) + rest


@given(BIG, st.integers(1, 10**20))
def test_round_half_up(numerator, denominator):
    expected = floor(Fraction(numerator, denominator) + Fraction(1, 2))
    assert round_half_up(numerator, denominator) == expected


def test_halves_go_up():
    assert [round_half_up(n, 2) for n in (-3, -1, 1, 3)] == [-1, 0, 1, 2]
    assert exact.round_half_up_sum(4, 2, 2, -3) == -1 + 0 + 1 + 2


@pytest.mark.parametrize("value", [
    10**400, -(10**5000), float("nan"), float("inf"), True, "1", None, 1e30,
], ids=list("abcdefgh"))  # fmt: skip
def test_what_is_no_whole_number_of_units(value):
    with pytest.raises(InputError) as caught:
        to_whole_units(value, 10**12, "p1")
    assert caught.value.field == "p1"
    assert len(caught.value.problem) < 200


def test_to_whole_units():
    assert to_whole_units(0.13, 10**12, "p1") == 130_000_000_000
    assert to_whole_units(Fraction(1, 3), 3, "p1") == 1
    assert to_whole_units(-2, 1000, "p1") == -2000


class Unhashable(AffineCost):
    """Equal to itself alone."""

    __hash__ = None


class Renamed(AffineCost):
    """Has the values of another class, and perhaps other times."""


def test_equal_values_of_one_class_share_a_number():
    shared = Unhashable()
    costs = [AffineCost(), Renamed(), AffineCost(), shared, shared, Unhashable()]
    assert numbers_of_equal(costs) == [0, 1, 0, 2, 2, 3]
    assert numbers_of_equal([AffineCost(prefill_fixed_ns=7), AffineCost()]) == [0, 1]
