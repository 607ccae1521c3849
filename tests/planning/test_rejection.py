"""Queues that reject: who is taken follows from the schedule of the others, counted literally."""

import numpy as np
import pytest

import orsched
from orsched import AffineCost, Requests, Worker
from orsched.data.service_classes import SLO
from orsched.metrics.token_times import request_times
from orsched.simulator import rejected_requests
from tests.heuristics.building import built
from tests.in_order import in_order
from tests.refusals import refused
from tests.simulator.losses import losing

COST = in_order(AffineCost, 1000, 10, 1000, 10)


def count_again(whole, result, most):
    """Assert of each request that it was taken if and only if fewer waited or ran."""
    taken = result.instance
    ends = dict(
        zip(
            map(taken.requests.id_of, range(len(taken))),
            request_times(taken, result.schedule)["finish_ns"].tolist(),
            strict=True,
        )
    )
    arrival, there = whole.requests.arrival_ns, []
    for row in np.argsort(arrival, kind="stable").tolist():
        there = [end for end in there if end >= arrival[row]]
        name = whole.requests.id_of(row)
        assert (name in ends) == (len(there) < most), name
        there += [ends[name]] if name in ends else []


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("order", ["fcfs", "priority"])
def test_who_is_rejected_follows_from_the_schedule_of_the_others(workers, order):
    rejected = 0
    for seed in range(4):
        whole = losing(seed, workers).admitted()
        for most in (1, 4, 15):
            named = {"policy": order, "max_num_queued_reqs": most}
            result = orsched.simulate(whole, "vllm", parameters=named, slo=SLO(ttft_s=100))
            count_again(whole, result, most)
            many = sum(result.instance.refused) - sum(whole.refused)
            rejected += many
            asked = len(whole) + sum(whole.refused)
            assert len(result.instance) + many == len(whole)
            assert result.figures["slo_attainment"] == pytest.approx(len(result.instance) / asked)
            said = any("max_num_queued_reqs" in note for note in result.notes)
            assert said == (most < len(whole))
    assert rejected > 20


def test_by_hand():
    """Two at once are taken; the third finds both, the fourth comes when one has ended."""
    requests = Requests([10] * 4, [2, 50, 5, 5], arrival_ns=[0, 0, 1500, 9000])
    instance = orsched.Instance(requests, Worker(1, COST))
    assert rejected_requests(instance, built(instance, "vllm"), 2) == [2]
    result = orsched.simulate(instance, "vllm", parameters={"max_num_queued_reqs": 2})
    assert [result.instance.requests.id_of(row) for row in range(3)] == ["0", "1", "3"]
    assert result.to_row()["refused"] == 1
    assert result.notes[0].startswith("1 of 4 requests are rejected, for 2 waited or ran")
    none = orsched.simulate(instance, "vllm", parameters={"max_num_queued_reqs": 3})
    assert none.instance.refused == ()
    assert none.notes[0].startswith("no request is rejected")


def test_what_a_queue_cannot_do_is_refused():
    requests = Requests([10] * 4, [5] * 4)
    instance = orsched.Instance(requests, Worker(1, COST), concurrency=2)
    named = {"max_num_queued_reqs": 1}
    refused("needs known arrivals", orsched.simulate, instance, "vllm", parameters=named)
    open_loop = instance.replace(concurrency=None)
    several = orsched.compare(open_loop, ["vllm+max_num_queued_reqs=1", "vllm"])
    assert [result.schedule.method for result in several.results] == ["vllm"]
    assert "orsched simulate" in several.failed[0].reason
    refused("max_num_queued_reqs", orsched.simulate, open_loop, "vllm",
            parameters={"max_num_queued_reqs": 0})  # fmt: skip


def test_priorities_are_served_the_smallest_first_and_ties_by_arrival():
    """As vLLM: no class of its own has to be declared, negative numbers come before others."""
    rows = {
        "arrival_s": [0, 0.001, 0.002, 0.003, 0.004], "prompt_tokens": [9] * 5,
        "output_tokens": [5] * 5, "priority": [3, 7, -2, 7, 0],
    }  # fmt: skip
    instance = orsched.load(rows, clients=1, cost=in_order(AffineCost, 10**6, 10, 10**6, 10))
    result = orsched.simulate(instance, "vllm", parameters={"policy": "priority"})
    ends = request_times(instance, result.schedule)["finish_ns"]
    assert np.argsort(ends).tolist() == [0, 2, 4, 1, 3]
