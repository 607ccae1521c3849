"""The profiled cost model: interpolation by hand, properties, bad input at the door."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched.checker import check
from orsched.common.errors import InputError
from orsched.common.registry import resolve
from orsched.costs import ProfiledCost, profiled_times
from orsched.costs.profiled import GRIDS, PER_SEQUENCE
from orsched.costs.profiled_grid import Grid
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.models.bounds.bounds import bound, bound_for, makespan_bound
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information
from tests.costs.plain_profiled import plain_ns

LINE = Grid(("tokens",), ((4, 8, 16),), (100, 300, 500))

COST = ProfiledCost(
    fixed_ns=10,
    dense=Grid(GRIDS["dense"], ((1, 101),), (100, 300)),
    prefill=Grid(GRIDS["prefill"], ((10, 20), (0, 100)), (30, 130, 60, 360)),
    decode=Grid(GRIDS["decode"], ((0, 40), (1, 3), (10, 30)), (4, 8, 12, 24, 104, 108, 112, 124)),
)


@pytest.mark.parametrize(
    ("tokens", "time"),
    [
        (0, 100),  # below the first point: its time
        (4, 100),
        (5, 150),  # a quarter of the way
        (8, 300),
        (14, 450),
        (16, 500),
        (20, 600),  # on the line through 8, the last at or below half of 16, and 16
        (Fraction(17, 2), Fraction(625, 2)),
    ],
)
def test_a_line(tokens: int | Fraction, time: int | Fraction) -> None:
    assert LINE.at(tokens) == time


def test_beyond_the_last_point_no_line_falls() -> None:
    grid = Grid(("tokens",), ((4, 8, 16),), (100, 900, 500))
    assert grid.at(12) == 700
    assert grid.at(16) == grid.at(10**6) == 500
    assert Grid(("tokens",), ((7,),), (42,)).at(0) == 42
    assert Grid(("tokens",), ((7,),), (42,)).at(70) == 42


def test_a_stage_by_hand() -> None:
    # 31 tokens through the dense layers: 100 + 2 x 30; attention of 11 tokens: 33, of 20: 60.
    assert COST.prefill_ns([11, 20]) == 10 + 160 + 33 + 60
    # With 50 of them cached: (80, 210) at the points, a tenth of the way between.
    assert COST.prefill_ns([11], cached=[50]) == 10 + 120 + 93
    assert COST.prefill_ns([]) == 10 + 100


def test_a_round_by_hand() -> None:
    # 2 requests, mean context 20: half way between (4, 12) and (8, 24), and between those.
    assert COST.round_ns(2, 40, 25) == 10 + 102 + 12
    # Mean 20.5: 6 + 0.1 and 18 + 0.3, of which the mean is 12.2: rounded once, with the rest.
    assert COST.round_ns(2, 41, 39) == 10 + 102 + 12
    assert COST.round_ns(0, 0, 0) == 110


def test_a_mixed_step_by_hand() -> None:
    # 20 tokens beside 1 request of context 10: 22 x 2 + 98; half way between 4 and 104.
    assert COST.mixed_ns([20], 1, 10, 10) == 10 + 140 + 60 + 54
    assert COST.mixed_ns([20], 1, 10, 10, cached=[100]) == 10 + 140 + 360 + 54


def test_halves_go_up_once() -> None:
    half = Grid(("tokens",), ((1, 3),), (0, 1))
    cost = replace(COST, fixed_ns=0, dense=half)
    assert cost.prefill_ns([1, 1]) == 61  # 0.5 + 2 x 30
    assert cost.scaled(4).prefill_ns([1, 1]) == 244


@st.composite
def grids(draw: st.DrawFn, names: tuple[str, ...], *, growing: bool = False) -> Grid:
    """Draw a grid; ``growing``: along no axis do times fall."""
    point = st.integers(0, 300)
    axes = [sorted(draw(st.sets(point, min_size=1, max_size=4))) for _ in names]
    size = 1
    for axis in axes:
        size *= len(axis)
    times = draw(st.lists(st.integers(0, 10**7), min_size=size, max_size=size))
    if growing:
        width = 1
        for axis in reversed(axes):
            for i in range(size):
                if i // width % len(axis):
                    times[i] += times[i - width]
            width *= len(axis)
    return Grid(names, tuple(map(tuple, axes)), tuple(times))


@st.composite
def costs(draw: st.DrawFn, *, growing: bool = False) -> ProfiledCost:
    tables = {name: draw(grids(axes, growing=growing)) for name, axes in GRIDS.items()}
    sequences = draw(st.none() | grids(PER_SEQUENCE, growing=growing))
    scale = draw(st.integers(1, 3))
    return ProfiledCost(
        fixed_ns=draw(st.integers(0, 10**7)), **tables, time_scale=scale, per_sequence=sequences
    )


@st.composite
def contexts(draw: st.DrawFn) -> tuple[int, int, int]:
    values = draw(st.lists(st.integers(0, 400), min_size=1, max_size=6))
    return len(values), sum(values), max(values)


chunks = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 500)), max_size=5)


@settings(max_examples=300)
@given(costs(), contexts(), chunks)
def test_whole_numbers_and_fractions_are_one_formula(
    cost: ProfiledCost, load: tuple[int, int, int], rows: list[tuple[int, int]]
) -> None:
    prompts, cached = [row[0] for row in rows], [row[1] for row in rows]
    for _ in range(2):  # the second time what was kept is used
        assert cost.round_ns(*load) == plain_ns(cost, [], [], *load[:2])
        assert cost.prefill_ns(prompts, cached) == plain_ns(cost, prompts, cached, 0, 0)
        assert cost.prefill_ns(prompts) == plain_ns(cost, prompts, [0] * len(rows), 0, 0)
        beside = plain_ns(cost, prompts, cached, *load[:2])
        assert cost.mixed_ns(prompts, *load, cached) == beside
    assert cost.mixed_ns(prompts, 0, 0, 0, cached) == cost.prefill_ns(prompts, cached)


@given(costs(), st.integers(1, 60), contexts())
def test_the_longest_round_is_that_of_all(
    cost: ProfiledCost, rounds: int, load: tuple[int, int, int]
) -> None:
    active, total, most = load
    every = [plain_ns(cost, [], [], active, total + i * active) for i in range(rounds)]
    assert cost.longest_round_ns(rounds, active, total, most) == max(every)


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiled_times, "_MOST_KEPT", 5)
    monkeypatch.setattr(profiled_times, "_MOST_LINES", 3)
    cost = replace(COST)
    for size in range(1, 40):
        load = size, 3 * size
        assert cost.mixed_ns([size], *load, 9, [size]) == plain_ns(cost, [size], [size], *load)
        assert cost.round_ns(*load, 9) == plain_ns(cost, [], [], *load)
    kept = cost._times
    assert max(map(len, (kept.levels, kept.chunks, kept.beside, kept.batches))) <= 5
    assert len(kept.lines) <= 3


@settings(max_examples=150)
@given(costs(), st.integers(0, 60), contexts())
def test_a_run_of_rounds_is_the_sum_of_its_rounds(
    cost: ProfiledCost, rounds: int, load: tuple[int, int, int]
) -> None:
    active, total, most = load
    single = sum(cost.round_ns(active, total + i * active, most + i) for i in range(rounds))
    assert cost.rounds_ns(rounds, active, total, most) == single


@given(costs(), st.integers(0, 10**8), st.integers(0, 10**8), contexts())
def test_a_long_run_splits_anywhere(
    cost: ProfiledCost, left: int, right: int, load: tuple[int, int, int]
) -> None:
    active, total, most = load
    whole = cost.rounds_ns(left + right, active, total, most)
    rest = cost.rounds_ns(right, active, total + left * active, most + left)
    assert whole == cost.rounds_ns(left, active, total, most) + rest


@given(costs(growing=True), contexts(), st.lists(st.integers(1, 500), min_size=1, max_size=4))
def test_where_the_tables_grow_more_work_never_takes_less_time(
    cost: ProfiledCost, load: tuple[int, int, int], prompts: list[int]
) -> None:
    active, total, most = load
    longer, extended = [prompts[0] + 1, *prompts[1:]], [*prompts, 1]
    base = cost.round_ns(active, total, most)
    assert cost.round_ns(active, total + 1, most + 1) >= base
    assert cost.prefill_ns(longer) >= cost.prefill_ns(prompts)
    assert cost.prefill_ns(extended) >= cost.prefill_ns(prompts)
    assert cost.prefill_ns(prompts[::-1]) == cost.prefill_ns(prompts)
    mixed = cost.mixed_ns(prompts, active, total, most)
    assert cost.mixed_ns(longer, active, total, most) >= mixed >= cost.prefill_ns(prompts)
    assert cost.mixed_ns(prompts, active, total + 1, most + 1) >= mixed >= base


@given(costs(), st.integers(1, 100), contexts())
def test_scaling_multiplies_every_time(
    cost: ProfiledCost, factor: int, load: tuple[int, int, int]
) -> None:
    more = cost.scaled(factor)
    assert more.round_ns(*load) == factor * cost.round_ns(*load)
    assert more.rounds_ns(30, *load) == factor * cost.rounds_ns(30, *load)
    assert more.prefill_ns([7, 80]) == factor * cost.prefill_ns([7, 80])
    assert more.mixed_ns([7, 80], *load) == factor * cost.mixed_ns([7, 80], *load)


@given(costs())
def test_the_round_trip_is_exact(cost: ProfiledCost) -> None:
    again = ProfiledCost.from_dict(cost.to_dict())
    assert again == cost
    assert hash(again) == hash(cost)


def changed(**changes: Any) -> dict[str, Any]:
    return {**COST.to_dict(), **changes}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fixed_ns", -1),
        ("fixed_ns", 0.5),
        ("time_scale", 0),
        ("dense", None),
        ("dense", []),
        ("dense", 7),
        ("dense", {}),
        ("dense", {"tokens": [1, 2]}),
        ("dense", {"tokens": [1, 2], "time_ns": [3]}),
        ("dense", {"tokens": [2, 1], "time_ns": [3, 4]}),
        ("dense", {"tokens": [1, 1], "time_ns": [3, 4]}),
        ("dense", {"tokens": [], "time_ns": []}),
        ("dense", {"tokens": "12", "time_ns": [3, 4]}),
        ("dense", {"tokens": [-1, 2], "time_ns": [3, 4]}),
        ("dense", {"tokens": [1, 2], "time_ns": [3, -4]}),
        ("dense", {"tokens": [1, 2], "time_ns": [3, float("nan")]}),
        ("dense", {"tokens": [1, 2], "time_ns": [3, True]}),
        ("dense", {"tokens": [1, 2], "time_ns": [3, 2**63]}),
        ("dense", {"tokens": [1, 2], "time_ns": [[3], [4]]}),
        ("dense", {"tokens": [1, 2], "time_ns": [3, 4], "unit": "ns"}),
        ("dense", COST.prefill),
        ("prefill", {"chunk": [1, 2], "context": [0], "time_ns": [1, 2]}),
        ("prefill", {"chunk": [1, 2], "context": [0], "time_ns": [[1], [2, 3]]}),
        ("decode", {"beside": [0], "batch": [1], "context": [1, 2], "time_ns": [[[1]]]}),
    ],
)
def test_bad_input_names_its_field(field: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        ProfiledCost.from_dict(changed(**{field: value}))
    assert caught.value.field == field


def test_a_grid_of_too_many_points() -> None:
    axis = tuple(range(1100))
    with pytest.raises(InputError, match="points"):
        Grid(("a", "b"), (axis, axis), ())


def test_cached_tokens_are_one_a_prompt() -> None:
    with pytest.raises(InputError) as caught:
        COST.prefill_ns([3, 4], cached=[1])
    assert caught.value.field == "cached"


MILLION = ProfiledCost(
    fixed_ns=1_000_001,
    dense=Grid(GRIDS["dense"], ((1, 7, 64),), (9_000_003, 10_000_000, 31_000_000)),
    prefill=Grid(GRIDS["prefill"], ((5, 60), (0,)), (70_000, 2_000_000)),
    decode=Grid(
        GRIDS["decode"], ((0, 50), (1, 4), (3, 40)), tuple(10_007 * i for i in range(1, 9))
    ),
)


def crowded(count: int = 24) -> Instance:
    """Return an instance whose requests are prefilled in chunks, beside rounds, and preempted."""
    requests = Requests(
        prompt_tokens=[5 + 7 * i % 40 for i in range(count)],
        output_tokens=[1 + 5 * i % 31 for i in range(count)],
        arrival_ns=[i * 20_000_000 for i in range(count)],
    )
    worker = Worker(4, MILLION, None, BlockMemory(20, 4, "paged"))
    return Instance(requests, (worker,), first_token="prefill")


def serve(instance: Instance, name: str, **parameters: Any) -> Any:
    policy, _ = resolve("methods", name).build(instance, Information.NONE, parameters, seed=0)
    return simulate_policy(instance, policy).schedule


def test_simulator_and_checker_agree_on_every_kind_of_step() -> None:
    instance = crowded()
    schedule = serve(instance, "vllm", max_num_batched_tokens=32)
    assert {0, 1, 2} == set(schedule.steps.phase.tolist())
    assert (schedule.work.stay > 0).any()
    assert check(instance, schedule) == []
    slower = replace(instance.workers[0], cost=replace(MILLION, fixed_ns=1_000_002))
    other = instance.replace(workers=(slower,))
    assert check(other, replace(schedule, instance_sha256=other.sha256)) != []


@pytest.mark.parametrize(
    ("name", "parameters"), [("vllm", {"max_num_batched_tokens": 32}), ("fcfs", {})]
)
@pytest.mark.parametrize("objective", ["makespan", "mean_jct", "mean_ttft"])
def test_bounds_know_nothing_of_it_but_arrivals(
    name: str, parameters: dict[str, Any], objective: str
) -> None:
    instance = crowded()
    schedule = serve(instance, name, **parameters)
    lower = bound_for(instance, schedule, bound(instance, objective))
    arrivals = instance.requests.arrival_ns
    if objective == "makespan":
        assert makespan_bound(instance).name == lower.name == "last_arrival"
        assert lower.value_ns == arrivals.max() <= schedule.makespan_ns
    else:
        assert lower.name == "arrivals"
        assert lower.value_ns == 0


def test_a_solved_instance_has_a_bound_below_and_passes(tmp_path: Any) -> None:

    path = tmp_path / "profiled.json"
    orsched.save_instance(crowded(), path)
    instance = orsched.load(path)
    assert instance == crowded()
    result = orsched.solve(instance, method="vllm")
    assert orsched.check(instance, result.schedule) == []
    assert result.schedule.bound["value_ns"] <= result.schedule.makespan_ns
