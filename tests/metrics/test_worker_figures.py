"""What each worker did: by hand, and as sums of what the whole says."""

import pytest

import orsched
from orsched import AffineCost, Instance, Requests, Worker
from orsched.metrics.class_metrics import extremes, imbalance, worker_figures
from orsched.metrics.token_times import request_times
from tests.heuristics.dispatching.test_dispatchers import two_workers
from tests.in_order import in_order


def test_load_and_queue_by_hand():
    """A request takes 50 ns of prefill and two rounds of 1,000; the third waits for the first."""
    cost = in_order(AffineCost, 0, 10, 1000, 0)
    two = tuple(Worker(1, cost, name=name) for name in ("a", "b"))
    instance = Instance(Requests([5] * 3, [2] * 3), two, first_token="decode")
    done = orsched.simulate(instance, "fcfs", parameters={"dispatch": "round_robin"})
    rows = worker_figures(instance, done.schedule)
    assert [list(row.values()) for row in rows] == [
        ["a", 2, 1.0, 10, None, 0.5, 1],
        ["b", 1, 0.5, 5, None, 0.0, 0],
    ]
    assert imbalance(rows) == pytest.approx(4 / 3)
    assert imbalance([{"busy": 0.0}, {"busy": None}]) is None


@pytest.mark.parametrize("dispatch", ["prefix", "round_robin", "soonest"])
def test_sums_over_workers_are_those_of_the_whole(dispatch):
    instance = two_workers([0, 1, 0, 1, 2, 0] * 4, [3_000 * k for k in range(24)])
    done = orsched.simulate(instance, "vllm", parameters={"dispatch": dispatch})
    rows, whole = worker_figures(instance, done.schedule), done.schedule.results
    found = {name: [row[name] for row in rows] for name in rows[0]}
    assert sum(found["requests"]) == 24
    hits = sum(
        n * r / (1 - r) for n, r in zip(found["prefilled_tokens"], found["hit_rate"], strict=True)
    )
    assert hits == pytest.approx(whole["hit_tokens"])
    times = request_times(instance, done.schedule)
    waits = times["prefill_start_ns"] - instance.requests.arrival_ns
    assert sum(found["queue_mean"]) == pytest.approx(waits.sum() / whole["makespan_ns"])
    assert all(
        (low == 0) == (high == 0)
        for low, high in zip(found["queue_mean"], found["queue_max"], strict=True)
    )
    assert max(found["busy"]) <= 1


def test_of_many_workers_the_extremes_are_shown():
    rows = [{"worker": k, "busy": k / 20} for k in range(20)]
    assert [row["worker"] for row in extremes(rows, 4)] == [19, 18, 1, 0]
    assert extremes(rows[:4], 4) == rows[:4]
