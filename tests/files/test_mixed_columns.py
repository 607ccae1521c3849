"""Columns of several types are read item by item: exactly, and without copies of what is long."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from orsched.common.columns import int_column
from orsched.common.errors import InputError


@pytest.mark.parametrize("other", [0.0, np.float64(0), np.int64(0), np.uint8(0)])
def test_whole_numbers_do_not_go_through_floats(other):
    assert int_column([9007199254740993, other], "x").tolist() == [9007199254740993, 0]


def test_a_float_that_cannot_be_exact_is_refused():
    with pytest.raises(InputError, match=r"9007199254740994\.0 is not a whole number"):
        int_column([1, 9007199254740994.0], "x")


def test_a_long_text_among_numbers_costs_its_own_length():
    values = [1] * 3_000
    values[1_700] = "x" * 200_000
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="is not a whole number") as caught:
            int_column(values, "x")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.row == 1_700
    assert most < 10_000_000
