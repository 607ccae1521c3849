"""A worker count of 1 is no special case for parameters of a dispatcher."""

from __future__ import annotations

import pytest

import orsched
from orsched.errors import InputError


@pytest.mark.parametrize("method", ["fcfs", "vllm", "fcfs_batched"])
def test_a_dispatcher_of_one_worker_changes_nothing(method):
    instance = orsched.load("two-by-two")
    given = {"dispatch": "fewest_requests", "steal": False}
    alone = orsched.solve(instance, method)
    told = orsched.solve(instance, method, parameters=given)
    assert told.schedule.replace(run={}) == alone.schedule.replace(run={})


@pytest.mark.parametrize("wrong", [{"dispatch": "random"}, {"dispatch": [1]}, {"steal": 1}])
def test_what_no_dispatcher_is_stays_wrong(wrong):
    with pytest.raises(InputError) as caught:
        orsched.solve(orsched.load("two-by-two"), "fcfs", parameters=wrong)
    assert caught.value.field in wrong


def test_a_policy_that_chooses_workers_itself_takes_no_dispatcher():
    with pytest.raises(InputError, match="chooses workers itself"):
        orsched.solve(orsched.load("two-by-two"), "mico", parameters={"dispatch": "round_robin"})
