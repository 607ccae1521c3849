"""Arrivals in seconds: rounded exactly, in place of nanoseconds."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched import InputError, Requests
from orsched.common.units import MAX_TIME_NS, seconds_column


def _requests(seconds, **more):
    n = len(seconds)
    return Requests([1] * n, [1] * n, arrival_s=seconds, **more)


def test_seconds_are_read_as_nanoseconds():
    found = _requests([0, 0.5, 1.25, 3])
    assert found.arrival_ns.tolist() == [0, 500_000_000, 1_250_000_000, 3_000_000_000]
    assert found.arrival_s.tolist() == [0, 0.5, 1.25, 3]
    assert found == Requests([1] * 4, [1] * 4, arrival_ns=found.arrival_ns)
    assert found.service_class.tolist() == [0] * 4  # as with nanoseconds
    assert len(_requests([])) == 0


@given(
    st.lists(
        st.floats(0, MAX_TIME_NS / 1e9, allow_nan=False)
        | st.integers(0, 2**61).map(lambda ns: ns / 1e9).filter(lambda s: s * 1e9 <= MAX_TIME_NS)
        | st.integers(0, 10**12).map(lambda half: (2 * half + 1) / 2e9)  # close to a half
        | st.integers(0, 4_000_000_000),
        max_size=8,
    )
)
def test_every_number_is_rounded_as_its_fraction_is(seconds):
    wanted = [round(Fraction(s) * 10**9) for s in seconds]
    if max(wanted, default=0) > MAX_TIME_NS:
        return
    assert seconds_column(seconds, "x").tolist() == wanted
    assert seconds_column(np.array(seconds, dtype=float), "x").tolist() == wanted


def test_a_plain_product_would_be_wrong_where_this_is_right():
    close = [(2 * half + 1) / 2e9 for half in range(100_000, 200_000)]
    exact = [round(Fraction(s) * 10**9) for s in close]
    assert seconds_column(close, "x").tolist() == exact
    assert np.rint(np.array(close) * 1e9).astype(int).tolist() != exact


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.uint8, np.float64])
def test_arrays_of_any_numbers_and_series(kind):
    column = np.array([0, 1, 2], dtype=kind)
    wanted = [0, 10**9, 2 * 10**9]
    assert _requests(column).arrival_ns.tolist() == wanted
    assert _requests(pd.Series(column, index=[5, 6, 7])).arrival_ns.tolist() == wanted
    assert _requests(list(column)).arrival_ns.tolist() == wanted


@pytest.mark.parametrize(
    ("values", "row", "text"),
    [
        ([0, math.nan], 1, "nan is not a finite time"),
        ([math.inf, 0], 0, "inf is not a finite time"),
        ([0, -1.5], 1, "is negative"),
        ([0, 5e9], 1, "is too large"),
        ([0, "1.5"], 1, "'1.5' is not a number of seconds"),
        ([0.5, None], 1, "None is not a number of seconds"),
        ([0.5, True], 1, "True is not a number of seconds"),
        (["a", "b"], 0, "'a' is not a number of seconds"),
    ],
)
def test_what_is_no_time_is_named_with_its_row(values, row, text):
    with pytest.raises(InputError, match=text) as caught:
        _requests(values)
    assert (caught.value.field, caught.value.row) == ("arrival_s", row)


def test_shape_and_length_are_checked():
    with pytest.raises(InputError, match="3 values where 2 are expected"):
        Requests([1, 1], [1, 1], arrival_s=[0, 1, 2])
    with pytest.raises(InputError, match="expected one dimension"):
        Requests([1, 1], [1, 1], arrival_s=[[0], [1]])


def test_either_seconds_or_nanoseconds():
    with pytest.raises(InputError, match="arrivals are given twice") as caught:
        _requests([0, 1], arrival_ns=[0, 5])
    assert caught.value.field == "arrival_s"


def test_replacing_either_and_neither():
    found = _requests([0.25, 1])
    assert found.replace(ids=("a", "b")).arrival_ns.tolist() == [250_000_000, 10**9]
    assert found.replace(arrival_s=[1, 2]).arrival_ns.tolist() == [10**9, 2 * 10**9]
    assert found.replace(arrival_ns=[3, 4]).arrival_ns.tolist() == [3, 4]
    assert dataclasses.replace(found, ids=("a", "b")).arrival_s.tolist() == [0.25, 1]
    assert dataclasses.replace(found, arrival_ns=[7, 8]).arrival_ns.tolist() == [7, 8]
    assert _requests(found.arrival_s).arrival_ns.tolist() == [250_000_000, 10**9]
    assert found.take([1]).arrival_s.tolist() == [1]


def test_requests_of_a_data_frame():
    frame = pd.DataFrame(
        {"id": ["x", "y"], "prompt_tokens": [3, 4], "output_tokens": [5, 6], "arrival_s": [0, 0.1]}
    )
    found = Requests.from_pandas(frame)
    assert found == Requests([3, 4], [5, 6], arrival_s=[0, 0.1], ids=("x", "y"))
    assert Requests.from_pandas(frame.rename(columns={"arrival_s": "arrivals"})) == found
