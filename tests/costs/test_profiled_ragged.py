"""Tables with missing combinations: what was measured stays, the rest is filled as stated."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orsched.common.errors import InputError
from orsched.costs.profiled import GRIDS, ProfiledCost
from orsched.costs.profiled_grid import Grid, completed


@pytest.mark.parametrize(
    ("points", "times", "filled"),
    [
        ((0, 10, 20), (5, None, 16), (5, 11, 16)),  # 10.5, half up
        ((0, 10, 20), (16, None, 5), (16, 11, 5)),  # 10.5, half up
        ((4, 8, 16, 32), (100, 300, 500, None), (100, 300, 500, 900)),  # through 8 and 16
        ((4, 8, 16, 32), (100, 300, 300, None), (100, 300, 300, 300)),  # through 8 and 16: level
        ((4, 9, 16, 32), (300, 350, 300, None), (300, 350, 300, 350)),  # no less than before
        ((4, 8, 16, 32), (None, 300, 500, 800), (200, 300, 500, 800)),  # through 8 and 16
        ((0, 8, 16), (None, 300, 900), (0, 300, 900)),  # never below 0
        ((0, 8, 16), (None, 300, 200), (200, 300, 200)),  # no more than behind
        ((4, 8, 16), (None, 7, None), (7, 7, 7)),
    ],
)
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
    axes = [
        sorted(draw(st.sets(st.integers(0, 500), min_size=1, max_size=4)))
        for _ in range(draw(st.integers(1, 3)))
    ]
    shape = tuple(map(len, axes))
    steps = draw(st.lists(st.integers(0, 10**6), min_size=int(np.prod(shape)),
                          max_size=int(np.prod(shape))))  # fmt: skip
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
