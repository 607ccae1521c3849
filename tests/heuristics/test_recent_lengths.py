"""The table of the newest lengths against the lengths in order, and both against a plain count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.heuristics.forecast import LengthTable, SortedLengths, recent_lengths

LIMIT = 12


@pytest.mark.parametrize("kept", [1, 4, 50])
@given(lengths=st.lists(st.integers(0, LIMIT), max_size=40))
def test_table_and_order_count_the_newest_alike(kept, lengths):
    table, order = LengthTable(LIMIT, kept), SortedLengths(kept)
    for number, length in enumerate(lengths, 1):
        table.add(length)
        order.add(length)
        newest = lengths[max(0, number - kept) : number]
        assert table.size == order.size == len(newest)
        for border in range(LIMIT + 1):
            count = sum(each <= border for each in newest)
            assert table.at_most[border] == order.at_most[border] == count


def test_what_is_longer_than_the_limit_is_counted_nowhere_but_in_the_size():
    table, order = LengthTable(3, 2), SortedLengths(2)
    for length in (9, 2, 7, 1):
        table.add(length)
        order.add(length)
        assert [table.at_most[x] for x in range(4)] == [order.at_most[x] for x in range(4)]
    assert table.size == order.size == 2


def test_long_limits_take_no_table():
    assert isinstance(recent_lengths(2048), LengthTable)
    assert isinstance(recent_lengths(2**31 - 1), SortedLengths)
