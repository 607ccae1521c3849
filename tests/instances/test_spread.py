"""Arrivals spread inside the steps of a coarse clock."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.data.requests import Requests
from orsched.instances.readers import spread_arrivals


def _requests(times):
    return Requests([1] * len(times), range(1, len(times) + 1), arrival_ns=times)


def test_requests_of_a_step_are_spread_evenly_in_the_order_of_rows():
    spread = spread_arrivals(_requests([0, 3000, 0, 0, 9000, 9000]))
    assert spread.arrival_ns.tolist() == [0, 3000, 1000, 2000, 9000, 12_000]


@pytest.mark.parametrize("times", [[], [5], [7, 7, 7]])
def test_one_time_stays(times):
    assert spread_arrivals(_requests(times)) == _requests(times)


@given(
    st.lists(st.integers(0, 50).map(lambda t: t * 1000), min_size=2, max_size=60),
    st.sampled_from([None, 0, 1]),
)
def test_spreading_stays_inside_the_step_and_keeps_the_order(times, seed):
    requests = _requests(times)
    spread = spread_arrivals(requests, seed)
    before, after = requests.arrival_ns, spread.arrival_ns
    assert (after >= before).all()
    distinct = np.unique(before)
    if len(distinct) > 1:
        following = np.append(distinct[1:], distinct[-1] + np.diff(distinct).max())
        assert (after < following[np.searchsorted(distinct, before)]).all()
    order = np.argsort(before, kind="stable")
    assert (np.diff(after[order]) >= 0).all()
    assert spread.output_tokens.tolist() == requests.output_tokens.tolist()
    assert spread_arrivals(requests, seed) == spread
