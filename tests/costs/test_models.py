"""What holds for every cost model."""

import json
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orsched import AffineCost, BilinearCost, LevelsCost, LinearCost, PoolingCost, RooflineCost
from orsched.common.registry import cost_model, names
from orsched.costs import CostModel, ProfiledCost, mixed_ns
from orsched.costs.profiled import GRIDS
from orsched.costs.profiled_grid import Grid
from tests.costs.test_profiled import contexts as loads_of_tables
from tests.costs.test_profiled import costs as tables
from tests.in_order import in_order
from tests.refusals import refusal


def coefficients(model, count, *others):
    """Draw a model whose first fields are femtoseconds."""
    return st.builds(in_order, st.just(model), *[st.integers(0, 10**16)] * count, *others)


SCALE = st.integers(1, 5)


@st.composite
def levels(draw):
    caps = sorted(draw(st.sets(st.integers(1, 10**4), min_size=1, max_size=5)))
    times = sorted(draw(st.lists(st.integers(0, 10**12), min_size=len(caps), max_size=len(caps))))
    # The last level holds whatever the tests below put into a stage.
    pairs = [*zip(caps, times, strict=True), (10**9, times[-1])]
    return LevelsCost(levels=tuple(pairs), round_fixed_ns=draw(st.integers(0, 10**12)))


any_cost = st.one_of(
    st.builds(in_order, st.just(AffineCost), *[st.integers(0, 10**12)] * 4),
    levels(),
    coefficients(BilinearCost, 8, SCALE),
    coefficients(PoolingCost, 5, st.integers(0, 3 * 10**6), SCALE),
    coefficients(RooflineCost, 5, SCALE),
    coefficients(LinearCost, 8, SCALE),
)


@st.composite
def contexts(draw):
    """Number of active requests, sum and maximum of their contexts."""
    values = draw(st.lists(st.integers(1, 10**6), min_size=1, max_size=6))
    times = draw(st.integers(1, 10**4))
    return len(values) * times, sum(values) * times, max(values)


CONTEXT_MATTERS = ("bilinear", "pooling", "profiled", "roofline", "linear")
MS = 10**12  # femtoseconds
LEVELS = LevelsCost(levels=((512, 91_560_000), (2048, 291_240_000)), round_fixed_ns=71_000_000)
BILINEAR = BilinearCost.from_ms((0.05, 1.0, 0.02, 20.0), (0.00003, 0.08, 0.001, 25.0))
POOLING = PoolingCost.from_ms(alpha=2e-6, beta=0.11, c=18.5, gamma=0.003, delta=0.011, lambda_=1.15)
H100 = RooflineCost.from_s(
    fixed=4e-4, weights=5.3e-3, token=26.4e-6, context=53.1e-9, attended=0.6e-9
)
LINEAR = in_order(
    LinearCost, 9 * MS, 21 * 10**9, 10**6, 7 * MS, 14 * 10**9, 52 * 10**6, 5 * MS, 10**8
)
DECODE = ((0,), (1, 64), (16, 4096)), (300_000, 800_000, 1_000_000, 38_000_000)
PROFILED = ProfiledCost(
    fixed_ns=500_000,
    dense=Grid(GRIDS["dense"], ((1, 64, 2048),), (15_000_000, 17_000_000, 181_000_000)),
    prefill=Grid(GRIDS["prefill"], ((16, 2048), (0,)), (300_000, 11_000_000)),
    decode=Grid(GRIDS["decode"], *DECODE),
)
EXAMPLES = [AffineCost(), LEVELS, BILINEAR, POOLING, PROFILED, H100, LINEAR]
each_model = pytest.mark.parametrize("cost", EXAMPLES, ids=lambda cost: cost.model)
BOTH = [(any_cost, contexts()), (tables(), loads_of_tables())]
drawn = pytest.mark.parametrize(("costs", "loads"), BOTH, ids=["formulas", "tables"])


@drawn
@settings(max_examples=200)
@given(st.data(), st.integers(0, 60))
def test_a_run_of_rounds_is_the_sum_of_its_rounds(costs, loads, data, rounds):
    cost, (active, total, most) = data.draw(costs), data.draw(loads)
    single = sum(cost.round_ns(active, total + i * active, most + i) for i in range(rounds))
    assert cost.rounds_ns(rounds, active, total, most) == single


@drawn
@given(st.data(), st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_long_run_splits_anywhere(costs, loads, data, left, right):
    cost, (active, total, most) = data.draw(costs), data.draw(loads)
    whole = cost.rounds_ns(left + right, active, total, most)
    rest = cost.rounds_ns(right, active, total + left * active, most + left)
    assert whole == cost.rounds_ns(left, active, total, most) + rest


@given(any_cost, contexts(), st.lists(st.integers(1, 10**4), min_size=1, max_size=5))
def test_more_work_never_takes_less_time(cost, load, prompts):
    active, context_sum, context_max = load
    base = cost.round_ns(active, context_sum, context_max)
    assert cost.round_ns(active, context_sum + active, context_max + 1) >= base
    # One more request with the longest context raises neither pool below what it was.
    assert cost.round_ns(active + 1, context_sum + context_max, context_max) >= base
    stage = cost.prefill_ns(prompts)
    assert cost.prefill_ns([*prompts, 1]) >= stage
    assert cost.prefill_ns([prompts[0] + 1, *prompts[1:]]) >= stage
    assert cost.prefill_ns(prompts[::-1]) == stage


@drawn
@given(st.data(), st.integers(1, 1000), st.integers(0, 10**6))
def test_scaling_multiplies_every_time(costs, loads, data, factor, rounds):
    cost, load = data.draw(costs), data.draw(loads)
    more = cost.scaled(factor)
    assert more.round_ns(*load) == factor * cost.round_ns(*load)
    assert more.rounds_ns(rounds, *load) == factor * cost.rounds_ns(rounds, *load)
    for prompts in ([7, 500], [7, 80]):
        assert more.prefill_ns(prompts) == factor * cost.prefill_ns(prompts)
        assert mixed_ns(more, prompts, *load) == factor * mixed_ns(cost, prompts, *load)
    assert more.prefill_limit == cost.prefill_limit
    assert cost.scaled(1) == cost


@drawn
@given(st.data())
def test_the_round_trip_through_json_is_exact(costs, loads, data):
    cost = data.draw(costs)
    again = type(cost).from_dict(json.loads(json.dumps(cost.to_dict())))
    assert again == cost
    assert hash(again) == hash(cost)


@each_model
def test_every_model_follows_the_protocol(cost):
    assert isinstance(cost, CostModel)
    assert cost_model(cost.model) is type(cost)
    assert cost.context_matters is (cost.model in CONTEXT_MATTERS)
    if not cost.context_matters:
        assert cost.round_ns(5, 0, 0) == cost.round_ns(5, 100, 90)
    with pytest.raises(FrozenInstanceError):
        cost.model_name = "other"


def test_the_examples_cover_the_registry():
    assert {cost.model for cost in EXAMPLES} == set(names("cost_models"))


@pytest.mark.parametrize(
    "wrong", [None, True, "7", 1.5, float("nan"), float("inf"), 2**63, [], {}], ids=repr
)
@each_model
def test_a_wrong_value_names_its_field(cost, wrong):
    values = cost.to_dict()
    for name in (name for name, value in values.items() if isinstance(value, int)):
        assert refusal(type(cost).from_dict, {**values, name: wrong}).field == name


@each_model
def test_unknown_and_missing_fields_are_named(cost):
    read, values = type(cost).from_dict, cost.to_dict()
    assert refusal(read, {**values, "round_ms": 3}).field == "round_ms"
    for name in values:
        rest = {key: value for key, value in values.items() if key != name}
        if name == "time_scale":
            assert read(rest) == cost
        else:
            assert refusal(read, rest).field == name
    for wrong in (None, [], "x", 3):
        assert refusal(read, wrong)


@pytest.mark.parametrize(("model", "field", "value"), [
    ("affine", "prefill_fixed_ns", -1), ("affine", "round_client_ns", -1),
    ("levels", "round_fixed_ns", -1), ("bilinear", "time_scale", 0),
    ("bilinear", "p1_fs", 2**62 + 1), ("pooling", "time_scale", 0), ("pooling", "c_fs", -1),
    ("pooling", "alpha_fs", -(2**62) - 1), ("roofline", "attended_fs", -1),
    ("roofline", "token_fs", 2**62 + 1), ("roofline", "time_scale", 0),
    ("linear", "mixed_context_fs", -1),
])  # fmt: skip
def test_out_of_range(model, field, value):
    cost = next(cost for cost in EXAMPLES if cost.model == model)
    assert refusal(type(cost).from_dict, {**cost.to_dict(), field: value}).field == field


def test_pangs_figures():
    cost = AffineCost()
    assert cost.round_ns(200) == 71_000_000  # "200 x 0.21 + 29, approximately 71 ms"
    assert cost.prefill_ns([5000]) == cost.prefill_ns([2000, 3000]) == 675_000_000
    assert cost.rounds_ns(100, 200) == 7_100_000_000
