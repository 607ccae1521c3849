"""What is refused as a cost model, and times that are not whole nanoseconds: both located."""

import pytest

import orsched
from orsched.common.errors import InputError
from orsched.costs.exact import MEMBERS
from tests.costs.test_floor import METHODS


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
