"""The queues of Algorithm 1 on their own."""

import pytest

import orsched
from tests.refusals import refused


def test_a_client_takes_its_own_longest_first_and_then_steals_from_the_fullest_queue():
    queues = orsched.sort_with_stealing([9, 4, 3, 8, 1], 3, assignment=[0, 1, 1, 0, 1])
    assert queues.remaining == [17, 8, 0]
    assert queues.take(2) == 0  # its own queue is empty: the longest of the fullest
    assert [queues.take(1), queues.take(2), queues.take(2)] == [1, 3, 2]
    assert (queues.remaining, len(queues)) == ([0, 1, 0], 1)
    table = queues.to_pandas()
    assert table["stolen"].tolist() == [True, False, True, True]
    assert table["queue"].tolist() == [0, 1, 0, 1]
    assert repr(queues) == "StealingQueues: 1 of 5 requests wait at 3 clients, 1 tokens"


@pytest.mark.parametrize(("order", "taken"), [
    ("longest", [0, 3, 1, 2]), ("shortest", [2, 1, 3, 0]), ("arrival", [0, 1, 2, 3]),
])  # fmt: skip
def test_orders(order, taken):
    queues = orsched.sort_with_stealing([9, 4, 3, 8], 1, order=order)
    assert [queues.take(0) for _ in range(5)] == [*taken, None]


def test_serving_to_the_end_is_longest_first_on_the_next_idle_client():
    queues = orsched.sort_with_stealing([7, 5, 4, 3], 2)
    assert queues.serve() == [11, 8]
    assert [(t.request, t.client) for t in queues.taken] == [(0, 0), (1, 1), (3, 1), (2, 0)]
    one = orsched.sort_with_stealing([7, 5, 4, 3], 2, assignment=[0] * 4)
    assert one.serve() == [10, 9]


@pytest.mark.parametrize(("words", "call"), [
    ("0 is below 1", lambda: orsched.sort_with_stealing([1], 0)),
    ("above 1", lambda: orsched.sort_with_stealing([1], 2, [2])),
    ("1 values where 2 are expected", lambda: orsched.sort_with_stealing([1, 2], 2, [1])),
    ("'tall'", lambda: orsched.sort_with_stealing([1], 2, order="tall")),
    ("0.5 is not a whole number", lambda: orsched.sort_with_stealing([0.5], 2)),
    ("above 1", lambda: orsched.sort_with_stealing([5], 2).take(2)),
])  # fmt: skip
def test_what_is_refused(words, call):
    refused(words, call, kind=orsched.InputError)
