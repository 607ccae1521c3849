"""What holds for every cost model."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orsched.common.errors import InputError
from orsched.common.registry import cost_model, names
from orsched.costs import (
    AffineCost,
    BilinearCost,
    CostModel,
    LevelsCost,
    LinearCost,
    PoolingCost,
    ProfiledCost,
    RooflineCost,
)
from orsched.costs.profiled import GRIDS
from orsched.costs.profiled_grid import Grid
from tests.in_order import in_order

COEFFICIENT = st.integers(0, 10**16)
affine = st.builds(in_order, st.just(AffineCost), *[st.integers(0, 10**12)] * 4)
bilinear = st.builds(in_order, st.just(BilinearCost), *[COEFFICIENT] * 8, st.integers(1, 5))
pooling = st.builds(
    in_order, st.just(PoolingCost), *[COEFFICIENT] * 5, st.integers(0, 3 * 10**6), st.integers(1, 5)
)

roofline = st.builds(in_order, st.just(RooflineCost), *[COEFFICIENT] * 5, st.integers(1, 5))
linear = st.builds(in_order, st.just(LinearCost), *[COEFFICIENT] * 8, st.integers(1, 5))


@st.composite
def levels(draw: st.DrawFn) -> LevelsCost:
    caps = sorted(draw(st.sets(st.integers(1, 10**4), min_size=1, max_size=5)))
    times = sorted(draw(st.lists(st.integers(0, 10**12), min_size=len(caps), max_size=len(caps))))
    # The last level holds whatever the tests below put into a stage.
    pairs = [*zip(caps, times, strict=True), (10**9, times[-1])]
    return LevelsCost(levels=tuple(pairs), round_fixed_ns=draw(st.integers(0, 10**12)))


any_cost = st.one_of(affine, levels(), bilinear, pooling, roofline, linear)


@st.composite
def contexts(draw: st.DrawFn) -> tuple[int, int, int]:
    """Number of active requests, sum and maximum of their contexts."""
    values = draw(st.lists(st.integers(1, 10**6), min_size=1, max_size=6))
    times = draw(st.integers(1, 10**4))
    return len(values) * times, sum(values) * times, max(values)


CONTEXT_MATTERS = ("bilinear", "pooling", "profiled", "roofline", "linear")
EXAMPLES: list[Any] = [
    AffineCost(),
    LevelsCost(levels=((512, 91_560_000), (2048, 291_240_000)), round_fixed_ns=71_000_000),
    BilinearCost.from_ms((0.05, 1.0, 0.02, 20.0), (0.00003, 0.08, 0.001, 25.0)),
    PoolingCost.from_ms(alpha=2e-6, beta=0.11, c=18.5, gamma=0.003, delta=0.011, lambda_=1.15),
    ProfiledCost(
        fixed_ns=500_000,
        dense=Grid(GRIDS["dense"], ((1, 64, 2048),), (15_000_000, 17_000_000, 181_000_000)),
        prefill=Grid(GRIDS["prefill"], ((16, 2048), (0,)), (300_000, 11_000_000)),
        decode=Grid(
            GRIDS["decode"], ((0,), (1, 64), (16, 4096)), (300_000, 800_000, 1_000_000, 38_000_000)
        ),
    ),
    RooflineCost.from_s(
        fixed=4e-4, weights=5.3e-3, token=26.4e-6, context=53.1e-9, attended=0.6e-9
    ),
    in_order(
        LinearCost,
        9 * 10**12,
        21 * 10**9,
        10**6,
        7 * 10**12,
        14 * 10**9,
        52 * 10**6,
        5 * 10**12,
        10**8,
    ),
]


@settings(max_examples=200)
@given(any_cost, st.integers(0, 50), contexts())
def test_a_run_of_rounds_is_the_sum_of_its_rounds(
    cost: CostModel, rounds: int, load: tuple[int, int, int]
) -> None:
    active, context_sum, context_max = load
    single = sum(
        cost.round_ns(active, context_sum + i * active, context_max + i) for i in range(rounds)
    )
    assert cost.rounds_ns(rounds, active, context_sum, context_max) == single


@given(any_cost, st.integers(0, 10**9), st.integers(0, 10**9), contexts())
def test_a_long_run_splits_anywhere(
    cost: CostModel, left: int, right: int, load: tuple[int, int, int]
) -> None:
    active, context_sum, context_max = load
    whole = cost.rounds_ns(left + right, active, context_sum, context_max)
    rest = cost.rounds_ns(right, active, context_sum + left * active, context_max + left)
    assert whole == cost.rounds_ns(left, active, context_sum, context_max) + rest


@given(any_cost, contexts(), st.lists(st.integers(1, 10**4), min_size=1, max_size=5))
def test_more_work_never_takes_less_time(
    cost: CostModel, load: tuple[int, int, int], prompts: list[int]
) -> None:
    active, context_sum, context_max = load
    base = cost.round_ns(active, context_sum, context_max)
    assert cost.round_ns(active, context_sum + active, context_max + 1) >= base
    # One more request with the longest context raises neither pool below what it was.
    assert cost.round_ns(active + 1, context_sum + context_max, context_max) >= base
    stage = cost.prefill_ns(prompts)
    assert cost.prefill_ns([*prompts, 1]) >= stage
    assert cost.prefill_ns([prompts[0] + 1, *prompts[1:]]) >= stage
    assert cost.prefill_ns(prompts[::-1]) == stage


@given(any_cost, st.integers(1, 1000), st.integers(0, 10**6), contexts())
def test_scaling_multiplies_every_time(
    cost: CostModel, factor: int, rounds: int, load: tuple[int, int, int]
) -> None:
    twice = cost.scaled(factor)
    assert twice.round_ns(*load) == factor * cost.round_ns(*load)
    assert twice.rounds_ns(rounds, *load) == factor * cost.rounds_ns(rounds, *load)
    assert twice.prefill_ns([7, 500]) == factor * cost.prefill_ns([7, 500])
    assert twice.prefill_limit == cost.prefill_limit
    assert cost.scaled(1) == cost


@given(any_cost)
def test_the_round_trip_through_json_is_exact(cost: CostModel) -> None:
    again = type(cost).from_dict(json.loads(json.dumps(cost.to_dict())))
    assert again == cost
    assert hash(again) == hash(cost)


@pytest.mark.parametrize("cost", EXAMPLES, ids=lambda cost: cost.model)
def test_every_model_follows_the_protocol(cost: Any) -> None:
    assert isinstance(cost, CostModel)
    assert cost_model(cost.model) is type(cost)
    assert cost.context_matters is (cost.model in CONTEXT_MATTERS)
    if not cost.context_matters:
        assert cost.round_ns(5, 0, 0) == cost.round_ns(5, 100, 90)
    with pytest.raises(FrozenInstanceError):
        cost.model_name = "other"


def test_the_examples_cover_the_registry() -> None:
    assert {cost.model for cost in EXAMPLES} == set(names("cost_models"))


WRONG = [None, True, "7", 1.5, float("nan"), float("inf"), 2**63, [], {}]


def _numbers(cost: Any) -> list[str]:
    return [name for name, value in cost.to_dict().items() if isinstance(value, int)]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@pytest.mark.parametrize("cost", EXAMPLES, ids=lambda cost: cost.model)
def test_a_wrong_value_names_its_field(cost: Any, wrong: object) -> None:
    for name in _numbers(cost):
        with pytest.raises(InputError) as caught:
            type(cost).from_dict({**cost.to_dict(), name: wrong})
        assert caught.value.field == name


@pytest.mark.parametrize("cost", EXAMPLES, ids=lambda cost: cost.model)
def test_unknown_and_missing_fields_are_named(cost: Any) -> None:
    values = cost.to_dict()
    with pytest.raises(InputError) as caught:
        type(cost).from_dict({**values, "round_ms": 3})
    assert caught.value.field == "round_ms"
    for name in values:
        rest = {key: value for key, value in values.items() if key != name}
        if name == "time_scale":
            assert type(cost).from_dict(rest) == cost
            continue
        with pytest.raises(InputError) as caught:
            type(cost).from_dict(rest)
        assert caught.value.field == name
    for wrong in (None, [], "x", 3):
        with pytest.raises(InputError):
            type(cost).from_dict(wrong)


@pytest.mark.parametrize(
    ("model", "field", "value"),
    [
        ("affine", "prefill_fixed_ns", -1),
        ("affine", "round_client_ns", -1),
        ("levels", "round_fixed_ns", -1),
        ("bilinear", "time_scale", 0),
        ("pooling", "time_scale", 0),
        ("pooling", "c_fs", -1),
        ("bilinear", "p1_fs", 2**62 + 1),
        ("roofline", "attended_fs", -1),
        ("roofline", "token_fs", 2**62 + 1),
        ("roofline", "time_scale", 0),
        ("linear", "mixed_context_fs", -1),
        ("pooling", "alpha_fs", -(2**62) - 1),
    ],
)
def test_out_of_range(model: str, field: str, value: int) -> None:
    cost = next(cost for cost in EXAMPLES if cost.model == model)
    with pytest.raises(InputError) as caught:
        type(cost).from_dict({**cost.to_dict(), field: value})
    assert caught.value.field == field


def test_pangs_figures() -> None:
    cost = AffineCost()
    assert cost.round_ns(200) == 71_000_000  # "200 x 0.21 + 29, approximately 71 ms"
    assert cost.prefill_ns([5000]) == cost.prefill_ns([2000, 3000]) == 675_000_000
    assert cost.rounds_ns(100, 200) == 7_100_000_000
