"""Times of cost models in whole nanoseconds, however large; what is refused as a cost model."""

from fractions import Fraction
from math import floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import AffineCost, InputError
from orsched.costs import exact
from orsched.costs.exact import MEMBERS, floor_sum, numbers_of_equal, round_half_up, to_whole_units
from tests.costs.test_floor import METHODS

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


class Own:
    """Whole milliseconds, but for the members that are told to return a float beyond a load."""

    model, context_matters, prefill_limit = "own", True, None

    def __init__(self, wrong="", above=0):
        self.wrong, self.above = wrong, above

    def _time(self, member, whole, load):
        return whole * 1.5 if member == self.wrong and load > self.above else whole

    def prefill_ns(self, prompts):
        return self._time("prefill_ns", 10**6 * sum(prompts), sum(prompts))

    def round_ns(self, active, context_sum, context_max):
        return self._time("round_ns", 10**7 * active, context_sum)

    def rounds_ns(self, rounds, active, context_sum, context_max):
        return self._time("rounds_ns", 10**7 * active * rounds, context_sum)

    def mixed_ns(self, prompts, active, context_sum, context_max):
        return self._time("mixed_ns", 10**6 * sum(prompts) + 10**7 * active, sum(prompts))

    def scaled(self, factor):
        return self

    def to_dict(self):
        return {}

    @classmethod
    def from_dict(cls, parameters):
        return cls()


def instance(cost):
    return orsched.Instance(orsched.Requests([50, 70, 90], [3, 2, 4]), orsched.Worker(2, cost))


@pytest.mark.parametrize("missing", MEMBERS)
def test_members_that_are_missing_are_named(missing):
    parts = {name: vars(Own).get(name, 1) for name in MEMBERS if name != missing}
    with pytest.raises(InputError, match=f"it lacks {missing} ") as caught:
        orsched.Worker(2, type("Lacking", (), parts)())
    assert caught.value.field == "cost"
    with pytest.raises(InputError, match="it lacks model, context_matters, prefill_limit"):
        orsched.Worker(2, 3)
    with pytest.raises(InputError, match="Own is a class, not a cost model") as caught:
        orsched.Worker(2, Own)
    assert "give an object: Own(" in caught.value.remedy


SEEN = [(member, 0) for member in METHODS]
IN_THE_RUN = [(member, 30) for member in METHODS if member != "round_ns"]


@pytest.mark.parametrize(("member", "above"), [*SEEN, *IN_THE_RUN])
def test_floats_are_located_by_member_and_arguments(member, above):
    with pytest.raises(InputError, match=rf"Own\.{member}\([^)]+\) returned [0-9.]+, a float") as e:
        orsched.solve(instance(Own(member, above)), "vllm")
    assert e.value.field == f"cost.{member}"
    assert orsched.solve(instance(Own()), "vllm").checked


def test_the_arguments_are_those_of_the_call():
    said = r"Own\.prefill_ns\(\[90\]\) returned 135000000.0, a float"
    with pytest.raises(InputError, match=said):
        orsched.compare(instance(Own("prefill_ns")), ["fcfs"])


@pytest.mark.parametrize("member", METHODS)
@pytest.mark.parametrize(("time", "said"), [
    (-5, "-5, which is below 0"), ("x", "'x', a str"), (None, "None, a NoneType"),
])  # fmt: skip
def test_what_is_no_time_is_located_as_floats_are(member, time, said):
    own = type("Own", (Own,), {member: lambda self, *load: time})()
    with pytest.raises(InputError, match=rf"Own\.{member}\([^)]+\) returned {said} ") as caught:
        orsched.solve(instance(own), "vllm")
    assert caught.value.field == f"cost.{member}"
