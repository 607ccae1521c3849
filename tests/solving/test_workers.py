"""Methods on workers that they do not know: several, padding ones, paged memory."""

from __future__ import annotations

import pytest

import orsched
from orsched.common.errors import InputError
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.workers import Worker

REQUESTS = Requests([3, 5, 2, 4], [4, 2, 6, 3], arrival_ns=[0, 0, 0, 0])
PANG = ("offline", "online", "hybrid", "windows", "exact")


def on(*workers):
    return Instance(REQUESTS, workers, first_token="decode")


@pytest.mark.parametrize("method", PANG)
def test_pangs_methods_refuse_several_workers_and_padding(method):
    for instance in (on(Worker(2), Worker(1, name="b")), on(Worker(2, padding=True))):
        with pytest.raises(InputError) as caught:
            orsched.solve(instance, method, iterations=2)
        assert caught.value.field in ("workers", "padding")
        assert caught.value.remedy


def test_paged_memory_has_no_full_mip():
    instance = on(Worker(2, memory=BlockMemory(3, 4, "paged")))
    with pytest.raises(InputError, match="paged"):
        orsched.solve(instance, "exact")
    assert orsched.solve(instance, "windows", iterations=2).checked


@pytest.mark.parametrize(
    "workers",
    [
        (Worker(2), Worker(1, name="b")),
        (Worker(2, padding=True),),
        (Worker(2, memory=BlockMemory(3, 4, "paged")),),
    ],
    ids=["two", "padding", "paged"],
)
def test_auto_and_fcfs_take_any_worker(workers):
    instance = on(*workers)
    for method in ("auto", "fcfs"):
        result = orsched.solve(instance, method, iterations=2)
        assert result.checked
        assert result.schedule.bound["value_ns"] <= result.makespan_ns


def test_padded_stages_stay_under_cap_and_pages():
    memory = BlockMemory(9, 2, "paged")
    instance = on(Worker(4, prefill_cap_tokens=10, memory=memory, padding=True))
    result = orsched.solve(instance, "fcfs")
    assert result.checked
    assert result.schedule.results["kv_blocks"]["peak"] <= 9
