"""Bounds follow what a cost model states of its own class, whoever wrote it."""

import random
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import AffineCost, Floor, LevelsCost, LinearCost, RooflineCost, RoundFloor, StageFloor
from orsched.checker.certificates import bound_violations
from orsched.common.registry import resolve
from orsched.models.bounds.bounds import bound_for, no_floor
from tests.costs.test_floor import METHODS, SHIPPED, overriding
from tests.in_order import in_order
from tests.models.cases import proven, small, values_of

OBJECTIVES = ("makespan", "mean_jct", "mean_ttft")
ALLOWANCES = ((), ("chunks",), ("mixed",), ("chunks", "mixed", "restarts"))
POLICIES = (
    "fcfs", "offline", "online", "hybrid", "vllm", "vtc", "static", "one_at_a_time", "sls", "ils",
    "scls", "scls_continuous", "ssjf", "gittins", "robust",
)  # fmt: skip


class TwiceHalved(AffineCost):
    """The counterexample: certified at 69.0 s, where a schedule of 19.3 s is valid."""

    def prefill_ns(self, prompts):
        return super().prefill_ns(prompts) // 4

    def round_ns(self, active, context_sum=0, context_max=0):
        return super().round_ns(active) // 4

    def rounds_ns(self, rounds, active, context_sum=0, context_max=0):
        return rounds * self.round_ns(active)


def with_cost(cost, name="three-jobs-two-clients"):
    instance = orsched.load(name)
    return instance.replace(workers=replace(instance.worker, cost=cost))


def test_no_bound_is_above_a_valid_schedule_of_a_faster_class():
    instance = with_cost(TwiceHalved(), "pang-100x20")
    result = orsched.solve(instance, "fcfs")
    assert orsched.check(instance, result.schedule) == []
    assert result.makespan < 20
    found = orsched.bound(instance)
    assert found.name == "last_arrival"
    assert found.value_ns == 0
    assert any("TwiceHalved states no floor" in note for note in result.notes)
    claimed = orsched.bound(orsched.load("pang-100x20"))
    assert claimed.value_s > 69
    assert bound_violations(instance, claimed.to_dict()) != []


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cost", SHIPPED, ids=lambda cost: cost.model)
def test_a_class_that_overrides_one_method_has_no_bound_and_certifies_none(cost, method, objective):
    instance, other = with_cost(cost), with_cost(overriding(cost, method, 0.1))
    claimed = proven(instance, orsched.bound(instance, objective), objective)
    assert claimed.value_ns > 0
    assert bound_violations(other, claimed.to_dict(), objective) != []
    assert orsched.bound(other, objective).value_ns == 0
    assert no_floor(instance) is None
    assert "states no floor" in no_floor(other)


def test_without_a_floor_exact_refuses_windows_searches_beside_and_auto_takes_a_policy():
    instance = with_cost(TwiceHalved())
    with pytest.raises(orsched.InputError, match="exact floor"):
        orsched.solve(instance, "exact")
    found = orsched.solve(instance, "windows", iterations=2)
    assert found.checked
    assert found.makespan_ns <= orsched.solve(instance, "hybrid").makespan_ns
    assert orsched.solve(instance, "auto").schedule.method == "hybrid"


@dataclass(frozen=True)
class Own:
    """Times at and above a floor, by as much as the contents of a step say."""

    floor_: Floor
    limit: int | None
    noise_ns: int

    model: ClassVar[str] = "own"
    context_matters: ClassVar[bool] = True

    @property
    def prefill_limit(self):
        return self.limit

    def _more(self, *what):
        return random.Random(repr(what)).randint(0, self.noise_ns)

    def prefill_ns(self, prompts):
        return self.floor_.prefill_ns(prompts) + self._more(sum(prompts), len(prompts))

    def round_ns(self, *load):
        return self.floor_.round_ns(*load) + self._more(*load)

    def rounds_ns(self, rounds, active, context_sum, context_max):
        return sum(
            self.round_ns(active, context_sum + i * active, context_max + i) for i in range(rounds)
        )

    def mixed_ns(self, prompts, active, context_sum, context_max):
        least = self.floor_.mixed_ns(prompts, active, context_sum, context_max)
        return least + self._more(sum(prompts), active, context_sum)

    def floor(self):
        return self.floor_

    def to_dict(self):
        return {"floor": repr(self.floor_), "noise_ns": self.noise_ns}

    @classmethod
    def from_dict(cls, parameters):
        raise NotImplementedError

    scaled = from_dict


class OwnTold(Own):
    """The same, and more behind cached tokens: chunks and what is behind a hit take longer."""

    cached_matters: ClassVar[bool] = True

    def prefill_ns(self, prompts, cached=()):
        return super().prefill_ns(prompts) + self._behind(prompts, cached)

    def mixed_ns(self, prompts, active, context_sum, context_max, cached=()):
        alone = super().mixed_ns(prompts, active, context_sum, context_max)
        return alone + self._behind(prompts, cached)

    def _behind(self, prompts, cached):
        return 5 * sum(p * k for p, k in zip(prompts, cached, strict=False))

    def floor(self):
        return self.floor_


@st.composite
def own_costs(draw):
    part = st.sampled_from((0, 0, 1, 3, 17, 400))
    unit = draw(st.sampled_from((1, 1, 2, 7, 1000)))
    a_round = in_order(
        RoundFloor, *(draw(part) for _ in range(4)), draw(st.one_of(st.none(), part))
    )
    limit, mixed = None, draw(st.sampled_from(("sum", "larger", None)))
    kind = draw(st.sampled_from(("parts", "parts", "curved", "levels", "counts")))
    if kind == "levels":
        unit, limit = 1, 90
        stage = StageFloor(levels=((20, draw(part)), (60, 500), (90, 800)))
    elif kind == "curved":
        stage = in_order(StageFloor, *(draw(part) for _ in range(5)), draw(part))
    elif kind == "counts":
        unit, mixed = 1, draw(st.sampled_from(("sum", "one_fixed", "larger", None)))
        stage = StageFloor(fixed=draw(part), token=draw(part))
        a_round = RoundFloor(fixed=draw(part), request=draw(part))
    else:
        stage = in_order(StageFloor, *(draw(part) for _ in range(4)))
    times = 1 if kind == "levels" else draw(st.sampled_from((1, 1, 3)))
    floor = Floor(stage, a_round, unit, times, mixed, draw(st.booleans()))
    kind = draw(st.sampled_from((Own, OwnTold)))
    return kind(floor, limit, draw(st.sampled_from((0, 0, 50))))


@st.composite
def own_instances(draw):
    plain = draw(small(7, late=(0, 500, 3_000), caps=(None, 40), longest=(30, 9), clients=4))
    memory = draw(st.one_of(st.none(), st.just(orsched.BlockMemory(8, 16, "whole"))))
    requests = plain.requests.replace(predicted_tokens=plain.requests.output_tokens)
    worker = replace(plain.worker, cost=draw(own_costs()), memory=memory)
    return plain.replace(requests=requests, workers=worker)


def assert_bounded(instance, policies):
    """Assert that every bound holds of every policy's schedule, and that all are certified."""
    lowest = {
        (objective, allows): proven(
            instance, orsched.bound(instance, objective, allows=allows), objective
        )
        for allows, objective in product(ALLOWANCES, OBJECTIVES)
    }
    for name in policies:
        try:
            result = orsched.solve(instance, name, seed=1)
        except orsched.InputError:  # a policy that does not serve such instances
            continue
        assert orsched.check(instance, result.schedule) == []
        assert result.makespan_ns >= result.bound_ns
        for objective, value in values_of(result.schedule).items():
            plain = lowest[objective, ()]
            holds = bound_for(instance, result.schedule, plain, objective=objective)
            assert holds.value_ns <= value, (name, objective, holds)


@settings(max_examples=25, deadline=None)
@given(own_instances(), st.sampled_from(POLICIES))
def test_bounds_by_a_stated_floor_hold_of_every_policy(instance, policy):
    assert_bounded(instance, ["fcfs", policy])


@pytest.mark.full
@settings(max_examples=200, deadline=None)
@given(own_instances())
def test_bounds_by_a_stated_floor_hold_of_every_policy_at_length(instance):
    assert_bounded(instance, POLICIES)


TOLD = (
    in_order(RooflineCost, 2 * 10**6, 30 * 10**6, 4 * 10**6, 10**6, 10**6),
    in_order(RooflineCost, 0, 0, 0, 0, 10**6),
    in_order(RooflineCost, 10**6, 0, 0, 10**5, 7 * 10**6),
    in_order(
        LinearCost, 30 * 10**6, 10**6, 2 * 10**6, 20 * 10**6, 3 * 10**6, 10**6, 4 * 10**6, 10**6
    ),
    in_order(LinearCost, 0, 0, 10**6, 0, 0, 0, 0, 0),
)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(TOLD),
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 6)), min_size=1, max_size=7),
    st.integers(2, 40),
    st.sampled_from(("decode", "prefill")),
    st.booleans(),
)
def test_bounds_hold_of_chunks_that_pay_for_what_is_cached(cost, pairs, budget, rule, paged):
    prompts, outputs = map(list, zip(*pairs, strict=True))
    memory = orsched.BlockMemory(20, 4, "paged") if paged else None
    worker = orsched.Worker(2, cost, memory=memory)
    instance = orsched.Instance(orsched.Requests(prompts, outputs), worker, first_token=rule)
    result = orsched.solve(instance, "vllm", parameters={"max_num_batched_tokens": budget})
    assert orsched.check(instance, result.schedule) == []
    for allows in (("chunks",), ("chunks", "mixed"), ("chunks", "mixed", "restarts")):
        for objective, value in values_of(result.schedule).items():
            found = orsched.bound(instance, objective, allows=allows)
            assert proven(instance, found, objective).value_ns <= value or "restarts" not in allows


def test_a_copy_of_affine_with_its_floor_is_bounded_and_solved_as_affine_is():
    class Copy(AffineCost):
        def prefill_ns(self, prompts):
            return self.prefill_fixed_ns + sum(self.prefill_token_ns * p for p in prompts)

        def floor(self):
            return super().floor()

    instance, own = orsched.load("pang-100x20"), with_cost(Copy(), "pang-100x20")
    assert orsched.bound(own).to_dict() == orsched.bound(instance).to_dict()
    result, other = (orsched.solve(with_cost(cost), "exact") for cost in (Copy(), AffineCost()))
    assert result.certified or result.bound_ns <= result.makespan_ns
    assert result.makespan_ns == other.makespan_ns


def test_every_policy_above_is_one():
    assert all(resolve("methods", name) for name in POLICIES)
    assert isinstance(SHIPPED[1], LevelsCost)
