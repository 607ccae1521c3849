"""The profiled cost model: interpolation by hand, properties, tables with holes, kernels."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import BlockMemory, Information, InputError, Instance, Requests, Worker, check
from orsched.common.registry import resolve
from orsched.costs import ProfiledCost, profiled
from orsched.costs.profiled import GRIDS, PER_SEQUENCE
from orsched.costs.profiled_grid import Grid, completed
from orsched.costs.profiled_kernels import from_kernels
from orsched.models.bounds.bounds import bound, bound_for, makespan_bound
from orsched.simulator import simulate_policy
from tests.refusals import refusal


def plain_ns(cost, prompts, cached, active, context_sum):
    """Duration of a step of chunks behind cached tokens, beside a round: in fractions."""
    tokens = sum(prompts)
    time = cost.fixed_ns + cost.dense.at(tokens + active)
    if cost.per_sequence is not None:
        time += cost.per_sequence.at(len(prompts) + active)
    for chunk, before in zip(prompts, cached, strict=True):
        time += cost.prefill.at(chunk, before)
    if active:
        time += cost.decode.at(tokens, active, Fraction(context_sum, active))
    return (time + Fraction(1, 2)).__floor__() * cost.time_scale


LINE = Grid(("tokens",), ((4, 8, 16),), (100, 300, 500))

COST = ProfiledCost(
    fixed_ns=10,
    dense=Grid(GRIDS["dense"], ((1, 101),), (100, 300)),
    prefill=Grid(GRIDS["prefill"], ((10, 20), (0, 100)), (30, 130, 60, 360)),
    decode=Grid(GRIDS["decode"], ((0, 40), (1, 3), (10, 30)), (4, 8, 12, 24, 104, 108, 112, 124)),
)


@pytest.mark.parametrize(("tokens", "time"), [
    (0, 100),  # below the first point: its time
    (4, 100),
    (5, 150),  # a quarter of the way
    (8, 300),
    (14, 450),
    (16, 500),
    (20, 600),  # on the line through 8, the last at or below half of 16, and 16
    (Fraction(17, 2), Fraction(625, 2)),
])  # fmt: skip
def test_a_line(tokens, time):
    assert LINE.at(tokens) == time


def test_beyond_the_last_point_no_line_falls():
    grid = Grid(("tokens",), ((4, 8, 16),), (100, 900, 500))
    assert grid.at(12) == 700
    assert grid.at(16) == grid.at(10**6) == 500
    assert Grid(("tokens",), ((7,),), (42,)).at(0) == 42
    assert Grid(("tokens",), ((7,),), (42,)).at(70) == 42


def test_a_stage_by_hand():
    # 31 tokens through the dense layers: 100 + 2 x 30; attention of 11 tokens: 33, of 20: 60.
    assert COST.prefill_ns([11, 20]) == 10 + 160 + 33 + 60
    # With 50 of them cached: (80, 210) at the points, a tenth of the way between.
    assert COST.prefill_ns([11], cached=[50]) == 10 + 120 + 93
    assert COST.prefill_ns([]) == 10 + 100


def test_a_round_by_hand():
    # 2 requests, mean context 20: half way between (4, 12) and (8, 24), and between those.
    assert COST.round_ns(2, 40, 25) == 10 + 102 + 12
    # Mean 20.5: 6 + 0.1 and 18 + 0.3, of which the mean is 12.2: rounded once, with the rest.
    assert COST.round_ns(2, 41, 39) == 10 + 102 + 12
    assert COST.round_ns(0, 0, 0) == 110


def test_a_mixed_step_by_hand():
    # 20 tokens beside 1 request of context 10: 22 x 2 + 98; half way between 4 and 104.
    assert COST.mixed_ns([20], 1, 10, 10) == 10 + 140 + 60 + 54
    assert COST.mixed_ns([20], 1, 10, 10, cached=[100]) == 10 + 140 + 360 + 54


def test_halves_go_up_once():
    half = Grid(("tokens",), ((1, 3),), (0, 1))
    cost = replace(COST, fixed_ns=0, dense=half)
    assert cost.prefill_ns([1, 1]) == 61  # 0.5 + 2 x 30
    assert cost.scaled(4).prefill_ns([1, 1]) == 244


@st.composite
def grids(draw, names, *, growing=False):
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
def costs(draw, *, growing=False):
    tables = {name: draw(grids(axes, growing=growing)) for name, axes in GRIDS.items()}
    sequences = draw(st.none() | grids(PER_SEQUENCE, growing=growing))
    scale = draw(st.integers(1, 3))
    return ProfiledCost(
        fixed_ns=draw(st.integers(0, 10**7)), **tables, time_scale=scale, per_sequence=sequences
    )


@st.composite
def contexts(draw):
    values = draw(st.lists(st.integers(0, 400), min_size=1, max_size=6))
    return len(values), sum(values), max(values)


chunks = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 500)), max_size=5)


@settings(max_examples=300)
@given(costs(), contexts(), chunks)
def test_whole_numbers_and_fractions_are_one_formula(cost, load, rows):
    prompts, cached = [row[0] for row in rows], [row[1] for row in rows]
    for _ in range(2):  # the second time what was kept is used
        assert cost.round_ns(*load) == plain_ns(cost, [], [], *load[:2])
        assert cost.prefill_ns(prompts, cached) == plain_ns(cost, prompts, cached, 0, 0)
        assert cost.prefill_ns(prompts) == plain_ns(cost, prompts, [0] * len(rows), 0, 0)
        beside = plain_ns(cost, prompts, cached, *load[:2])
        assert cost.mixed_ns(prompts, *load, cached) == beside
    assert cost.mixed_ns(prompts, 0, 0, 0, cached) == cost.prefill_ns(prompts, cached)


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(profiled, "_MOST_KEPT", 5)
    monkeypatch.setattr(profiled, "_MOST_LINES", 3)
    cost = replace(COST)
    for size in range(1, 40):
        load = size, 3 * size
        assert cost.mixed_ns([size], *load, 9, [size]) == plain_ns(cost, [size], [size], *load)
        assert cost.round_ns(*load, 9) == plain_ns(cost, [], [], *load)
    kept = cost._times
    assert max(map(len, (kept.levels, kept.chunks, kept.beside, kept.batches))) <= 5
    assert len(kept.lines) <= 3


@given(costs(growing=True), contexts(), st.lists(st.integers(1, 500), min_size=1, max_size=4))
def test_where_the_tables_grow_more_work_never_takes_less_time(cost, load, prompts):
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


WRONG_TIMES = ([3], [3, -4], [3, float("nan")], [3, True], [3, 2**63], [[3], [4]])


@pytest.mark.parametrize(("field", "value"), [
    ("fixed_ns", -1), ("fixed_ns", 0.5), ("time_scale", 0),
    *(("dense", wrong) for wrong in (None, [], 7, {}, {"tokens": [1, 2]}, COST.prefill)),
    *(("dense", {"tokens": wrong, "time_ns": [3, 4]}) for wrong in ([2, 1], [1, 1], "12", [-1, 2])),
    *(("dense", {"tokens": [1, 2], "time_ns": wrong}) for wrong in WRONG_TIMES),
    ("dense", {"tokens": [], "time_ns": []}),
    ("dense", {"tokens": [1, 2], "time_ns": [3, 4], "unit": "ns"}),
    ("prefill", {"chunk": [1, 2], "context": [0], "time_ns": [1, 2]}),
    ("prefill", {"chunk": [1, 2], "context": [0], "time_ns": [[1], [2, 3]]}),
    ("decode", {"beside": [0], "batch": [1], "context": [1, 2], "time_ns": [[[1]]]}),
])  # fmt: skip
def test_bad_input_names_its_field(field, value):
    assert refusal(ProfiledCost.from_dict, {**COST.to_dict(), field: value}).field == field


def test_a_grid_of_too_many_points():
    axis = tuple(range(1100))
    with pytest.raises(InputError, match="points"):
        Grid(("a", "b"), (axis, axis), ())


MILLION = ProfiledCost(
    fixed_ns=1_000_001,
    dense=Grid(GRIDS["dense"], ((1, 7, 64),), (9_000_003, 10_000_000, 31_000_000)),
    prefill=Grid(GRIDS["prefill"], ((5, 60), (0,)), (70_000, 2_000_000)),
    decode=Grid(GRIDS["decode"], ((0, 50), (1, 4), (3, 40)), tuple(range(10_007, 80_057, 10_007))),
)


def crowded(count=24):
    """Return an instance whose requests are prefilled in chunks, beside rounds, and preempted."""
    prompts = [5 + 7 * i % 40 for i in range(count)]
    outputs = [1 + 5 * i % 31 for i in range(count)]
    requests = Requests(prompts, outputs, arrival_ns=[i * 20_000_000 for i in range(count)])
    worker = Worker(4, MILLION, None, BlockMemory(20, 4, "paged"))
    return Instance(requests, (worker,), first_token="prefill")


def serve(instance, name, **parameters):
    policy, _ = resolve("methods", name).build(instance, Information.NONE, parameters, seed=0)
    return simulate_policy(instance, policy).schedule


def test_simulator_and_checker_agree_on_every_kind_of_step():
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
def test_bounds_know_nothing_of_it_but_arrivals(name, parameters, objective):
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


def test_a_solved_instance_has_a_bound_below_and_passes(tmp_path):

    path = tmp_path / "profiled.json"
    orsched.save_instance(crowded(), path)
    instance = orsched.load(path)
    assert instance == crowded()
    result = orsched.solve(instance, method="vllm")
    assert orsched.check(instance, result.schedule) == []
    assert result.schedule.bound["value_ns"] <= result.schedule.makespan_ns


@pytest.mark.parametrize(("points", "times", "filled"), [
    ((0, 10, 20), (5, None, 16), (5, 11, 16)),  # 10.5, half up
    ((0, 10, 20), (16, None, 5), (16, 11, 5)),  # 10.5, half up
    ((4, 8, 16, 32), (100, 300, 500, None), (100, 300, 500, 900)),  # through 8 and 16
    ((4, 8, 16, 32), (100, 300, 300, None), (100, 300, 300, 300)),  # through 8 and 16: level
    ((4, 9, 16, 32), (300, 350, 300, None), (300, 350, 300, 350)),  # no less than before
    ((4, 8, 16, 32), (None, 300, 500, 800), (200, 300, 500, 800)),  # through 8 and 16
    ((0, 8, 16), (None, 300, 900), (0, 300, 900)),  # never below 0
    ((0, 8, 16), (None, 300, 200), (200, 300, 200)),  # no more than behind
    ((4, 8, 16), (None, 7, None), (7, 7, 7)),
])  # fmt: skip
def test_a_line_is_filled_by_hand(points, times, filled):
    assert completed([points], times) == (filled, times.count(None))


def test_the_last_axis_comes_first_and_a_line_without_any_from_those_beside_it():
    axes = ((1, 2, 4), (0, 10))
    # Row 4 has nothing: from rows 1 and 2, of which each is full by then.
    found, missing = completed(axes, (10, 30, 20, None, None, None))
    assert (found, missing) == ((10, 30, 20, 30, 40, 40), 3)


def test_a_filled_time_is_brought_between_what_was_measured():
    """Row 1 falls steeply and is filled far above what more tokens took."""
    axes = ((1, 2), (10, 20, 30))
    found, _ = completed(axes, (10, 90, None, 20, 95, 100))
    assert found == (10, 90, 100, 20, 95, 100)  # not 170


def test_nothing_measured_is_refused():
    with pytest.raises(InputError, match="no combination"):
        completed([(1, 2)], (None, None))


@st.composite
def tables(draw):
    axis = st.sets(st.integers(0, 500), min_size=1, max_size=4).map(sorted)
    axes = [draw(axis) for _ in range(draw(st.integers(1, 3)))]
    shape = tuple(map(len, axes))
    size = int(np.prod(shape))
    steps = draw(st.lists(st.integers(0, 10**6), min_size=size, max_size=size))
    full = np.array(steps).reshape(shape)
    for axis in range(full.ndim):
        full = full.cumsum(axis)
    known = draw(st.lists(st.booleans(), min_size=full.size, max_size=full.size))
    known[draw(st.integers(0, full.size - 1))] = True
    return axes, full, known


@settings(max_examples=200, deadline=None)
@given(tables())
def test_what_was_measured_stays_and_what_grows_stays_growing(case):
    axes, full, known = case
    times = [t if k else None for t, k in zip(full.ravel().tolist(), known, strict=True)]
    found, missing = completed(axes, times)
    assert missing == known.count(False)
    assert all(t is None or t == f for t, f in zip(times, found, strict=True))
    table = np.array(found).reshape(full.shape)
    for axis in range(table.ndim):
        assert (np.diff(table, axis=axis) >= 0).all()
    assert completed(axes, found) == (found, 0)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 1000), st.integers(0, 1000), st.data())
def test_a_line_with_holes_stays_that_line(slope, base, data):
    """Attention reads caches: where times are a straight line, so is what is filled."""
    points = [16, 32, 64, 128, 256, 512]
    keep = data.draw(st.sets(st.sampled_from(points), min_size=2))
    times = [slope * x + base if x in keep else None for x in points]
    found, _ = completed([points], times)
    assert found == tuple(slope * x + base for x in points)


def test_a_ragged_table_is_read_from_a_file_and_used():
    parameters = {
        "fixed_ns": 0,
        "dense": {"tokens": [1, 3, 5], "time_ns": [10, None, 30]},
        "prefill": {"chunk": [4, 8], "context": [0, 8], "time_ns": [[5, 9], [7, None]]},
        "decode": {"beside": [0], "batch": [1], "context": [0, 9], "time_ns": [[[1, 10]]]},
    }
    cost = ProfiledCost.from_dict(parameters)
    assert (cost.dense.filled, cost.prefill.filled, cost.decode.filled) == (1, 1, 0)
    assert cost.prefill_ns([3]) == 20 + 5
    assert cost.mixed_ns([8], 1, 9, 9, cached=[8]) == 50 + 9 + 10
    assert ProfiledCost.from_dict(cost.to_dict()) == cost
    places = product((4, 8), (0, 8))
    assert [cost.prefill.at(*place) for place in places] == [5, 9, 7, 9]
    with pytest.raises(InputError, match="no combination is measured") as caught:
        Grid.read({"tokens": [1], "time_ns": [None]}, "dense", GRIDS["dense"])
    assert caught.value.field == "dense"
    assert "null" in caught.value.remedy


DENSE = [("embedding", 1, 1000), ("embedding", 9, 2000), ("mlp", 1, 10_000), ("mlp", 9, 90_400)]
ATTENTION = [
    (4, 0, 0, 0, 5000),
    (4, 8, 0, 0, 7000),
    (0, 0, 1, 16, 3000),
    (0, 0, 2, 16, 4000),
    (4, 0, 1, 16, 8600),
    (4, 0, 2, 16, 4900),
    (4, 8, 1, 16, 99_000),  # beside a cached prefix: in no table
]
TIMES = {"embedding": 1, "mlp": 3}


def build(dense=DENSE, attention=ATTENTION, times=TIMES, **options):
    return from_kernels(dense, attention, times_a_step=times, layers=3, **options)


def test_kernels_of_a_step_add_up():
    cost = build(fixed_ns=500)
    assert cost.fixed_ns == 500
    assert cost.dense.axes == ((1, 9),)
    assert cost.dense.times_ns == (1 + 3 * 10, 273)  # 273.2 ns
    assert cost.prefill.axes == ((4,), (0, 8))
    assert cost.prefill.times_ns == (15, 21)
    assert cost.decode.axes == ((0, 4), (1, 2), (16,))
    # Beside 4 tokens: (8.6 - 5) x 3 = 10.8; the second is faster than the tokens alone, so 0.
    assert cost.decode.times_ns == (9, 12, 11, 0)


def test_order_of_rows_plays_no_part():
    assert build(DENSE[::-1], ATTENTION[::-1]) == build()


def test_what_is_done_once_a_sequence_is_a_table_of_its_own():
    times = {**TIMES, "lm_head": 1, "sampler": 2}
    rows = [("lm_head", 1, 4000), ("lm_head", 8, 11_000), ("sampler", 8, 2000)]
    cost = build(times=times, per_sequence=rows)
    assert cost.per_sequence.axes == ((1, 8),)
    assert cost.per_sequence.times_ns == (4 + 2 * 2, 11 + 2 * 2)
    plain = build()
    # Two chunks beside a round of two requests are four sequences: 8 + 7 x 3 / 7.
    assert cost.mixed_ns([4, 4], 2, 32, 16) == plain.mixed_ns([4, 4], 2, 32, 16) + 11
    assert cost.prefill_ns([4, 4]) == plain.prefill_ns([4, 4]) + 9
    assert cost.rounds_ns(3, 2, 32, 16) == plain.rounds_ns(3, 2, 32, 16) + 3 * 9
    assert type(cost).from_dict(cost.to_dict()) == cost
    assert "per_sequence" not in plain.to_dict()


def test_missing_combinations_are_no_reason_to_refuse():
    rows = [*ATTENTION, (8, 0, 0, 0, 9000), (8, 0, 2, 32, 12_000), (0, 0, 2, 32, 7000)]
    cost = build(attention=rows)
    assert cost.prefill.axes == ((4, 8), (0, 8))
    # Nothing was measured with 8 cached before 8 tokens: as its row has one time, that time,
    # and no less than (4, 8), which is 21.
    assert (cost.prefill.filled, cost.prefill.times_ns) == (1, (15, 21, 27, 27))
    assert cost.decode.axes == ((0, 4, 8), (1, 2), (16, 32))
    assert cost.decode.filled == 12 - 6


def test_a_round_is_what_it_adds_to_the_prompts_measured_beside_it():
    """Where a profile has no round beside prompts with nothing cached, the least cached counts."""
    rows = [row for row in ATTENTION if row[:3] != (4, 0, 1)]
    rows[-1] = (4, 8, 1, 16, 9500)
    cost = build(attention=rows)
    # Beside 4 tokens, of which 8 are cached before: (9.5 - 7) x 3 = 7.5, rounded up.
    assert cost.decode.times_ns == (9, 12, 8, 0)


@pytest.mark.parametrize(("changes", "field"), [
    ({"dense": [*DENSE, ("lm_head", 1, 1)]}, "layer"), ({"dense": [*DENSE, DENSE[0]]}, "layer"),
    ({"dense": DENSE[:2]}, "layer"), ({"dense": []}, "layer"),
    ({"attention": [*ATTENTION, ATTENTION[0]]}, "prefill_chunk"),
    ({"attention": ATTENTION[2:]}, "prefill"), ({"attention": ATTENTION[:2]}, "decode"),
    ({"per_sequence": [("lm_head", 1, 5)]}, "layer"), ({"fixed_ns": -1}, "fixed_ns"),
    ({"dense": [("mlp", 1, -10_000), ("embedding", 1, 5)]}, "time_ns"),
])  # fmt: skip
def test_what_is_refused(changes, field):
    assert refusal(build, **changes).field == field
