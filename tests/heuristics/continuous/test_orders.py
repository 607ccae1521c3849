"""``order``: which waiting request is next, of fcfs, vllm and static batches."""

from itertools import pairwise

import pytest

from orsched import (
    AffineCost,
    BlockMemory,
    InputError,
    Instance,
    Requests,
    RooflineCost,
    Worker,
    solve,
)
from orsched.heuristics.continuous import Ordering
from orsched.heuristics.continuous.params import ORDERS
from tests.heuristics.building import same, solved
from tests.in_order import in_order

COST = in_order(AffineCost, 10, 1, 10, 1)
PROMPTS, OUTPUTS = (40, 3, 8, 5), (2, 9, 6, 4)
PREDICTED = (5, 1, 3, 9)


def instance_of(memory=None, clients=1, cost=COST):
    requests = Requests(PROMPTS, OUTPUTS, predicted_tokens=PREDICTED)
    return Instance(requests, Worker(clients, cost, None, memory), first_token="decode")


def order_of(name, known, **params):
    """Requests in the order of their first prefill, on a worker with one client."""
    memory = params.pop("memory", None)
    work = solved(instance_of(memory), name, known, **params).work
    return work.request[work.phase == 0][work.first_step[work.phase == 0].argsort()].tolist()


@pytest.mark.parametrize("name", ["fcfs", "vllm", "static", "one_at_a_time"])
@pytest.mark.parametrize(
    ("known", "order", "rows"),
    [
        ("none", "arrival", [0, 1, 2, 3]),
        ("none", "service_class", [0, 1, 2, 3]),
        ("clairvoyant", "shortest", [0, 3, 2, 1]),
        ("clairvoyant", "longest", [1, 2, 3, 0]),
        ("predicted", "longest", [3, 0, 2, 1]),
        ("predicted", "shortest", [1, 2, 0, 3]),
    ],
)
def test_requests_are_served_in_this_order(name, known, order, rows):
    assert order_of(name, known, order=order) == rows


@pytest.mark.parametrize(
    ("memory", "volumes"),
    [
        # The contexts of all rounds: 41 + 42; 4 + 5 + ... + 12; 9 + ... + 14; 6 + ... + 9.
        (None, [83, 72, 69, 30]),
        # Blocks of 8 in each round: 6 + 6; 5 x 1 + 4 x 2; 6 x 2; 3 x 1 + 1 x 2.
        (BlockMemory(9, 8), [12, 13, 12, 5]),
        # All blocks of 8 in each round: 6 x 2; 2 x 9; 2 x 6; 2 x 4.
        (BlockMemory(9, 8, "whole"), [12, 18, 12, 8]),
    ],
)
def test_the_largest_volume_is_first(memory, volumes):
    rows = sorted(range(4), key=lambda row: (-volumes[row], row))
    assert order_of("vllm", "clairvoyant", order="volume", memory=memory) == rows
    assert order_of("fcfs", "clairvoyant", order="volume", memory=memory) == rows


@pytest.mark.parametrize("memory", [None, BlockMemory(9, 8)])
@pytest.mark.parametrize(("priority", "order"), [("length", "shortest"), ("service_class",) * 2])
def test_the_words_of_vllm_say_the_same(memory, priority, order):
    given = instance_of(memory, clients=3)
    words = {"policy": "priority", "priority": priority}
    assert same(
        solved(given, "vllm", "clairvoyant", order=order, max_num_batched_tokens=9),
        solved(given, "vllm", "clairvoyant", **words, max_num_batched_tokens=9),
    )


def test_each_order_is_the_order_of_one_parameter():
    assert [Ordering(order).by for order in ORDERS] == list(ORDERS)
    assert Ordering(policy="priority", priority="length").by == "shortest"
    assert Ordering().first_come
    assert not Ordering(policy="priority", priority="arrival").first_come


def test_a_wait_makes_up_for_length():
    """Of 3 and 9 tokens that come 12 ns apart the longer goes first; with 1 ns a token, which makes
    6 ns of difference, it does not."""
    requests = Requests((1, 1, 1), (1, 3, 9), arrival_ns=(0, 2, 14))
    given = Instance(requests, Worker(1, COST), first_token="decode")
    seconds = []
    for aging in ({}, {"aging_s": 4e-9}, {"aging_s": 1e-9}):
        work = solved(given, "vllm", "clairvoyant", order="longest", **aging).work
        begun = work.first_step[work.phase == 0].argsort()
        seconds.append(int(work.request[work.phase == 0][begun][1]))
    assert seconds == [2, 2, 1]


def test_two_words_for_an_order_are_one_too_many():
    with pytest.raises(InputError, match="order=longest and policy=priority") as caught:
        Ordering("longest", policy="priority")
    assert caught.value.field == "order"


@pytest.mark.parametrize("name", ["fcfs", "vllm", "static"])
@pytest.mark.parametrize("order", ["shortest", "longest", "volume"])
def test_an_order_by_length_needs_lengths(name, order):
    with pytest.raises(InputError, match="lengths are not known") as caught:
        solve(instance_of(), name, parameters={"order": order})
    assert caught.value.field == "order"


RIDGE = {"max_num_batched_tokens": "ridge"}
ROOFS = [
    RooflineCost.from_s(fixed=0, weights=weights, token=1e-4, context=0, attended=0)
    for weights in (0.002, 0.003)
]


@pytest.mark.parametrize("name", ["vllm", "gittins", "vtc"])
def test_the_ridge_is_told_and_the_same_as_its_number(name):
    given = instance_of(clients=2, cost=ROOFS[0])
    by_word = solve(given, name, parameters=RIDGE)
    by_number = solve(given, name, parameters={"max_num_batched_tokens": 20})
    assert same(by_word.schedule, by_number.schedule)
    assert by_word.schedule.parameters == by_number.schedule.parameters
    assert by_word.schedule.parameters["max_num_batched_tokens"] == 20
    told = "max_num_batched_tokens=ridge: 20 tokens, derived from the cost model"
    assert told in by_word.notes
    assert told not in by_number.notes


def test_of_several_workers_the_least_ridge_counts():
    workers = tuple(Worker(2, cost) for cost in ROOFS)
    found = solve(Instance(Requests(PROMPTS, OUTPUTS), workers), "vllm", parameters=RIDGE)
    assert found.schedule.parameters["max_num_batched_tokens"] == 20


def test_a_machine_without_a_ridge_takes_a_number():
    with pytest.raises(InputError, match="has no ridge") as caught:
        solve(instance_of(), "vllm", parameters=RIDGE)
    assert caught.value.field == "max_num_batched_tokens"


def test_another_word_is_not_a_budget():
    with pytest.raises(InputError) as caught:
        solve(instance_of(), "vllm", parameters={"max_num_batched_tokens": "bridge"})
    assert caught.value.field == "max_num_batched_tokens"


def test_an_explicit_rank_orders_a_queue():
    """The planner's way: any level of a request, the smallest first."""
    from orsched.heuristics.continuous.queues import PriorityQueue

    class Now:
        arrival_ns = (0, 0, 0, 0)

    ranks, queue = [3, 1, 2, 0], PriorityQueue(lambda view, request: ranks[request], None)
    for request in range(4):
        queue.put(Now(), request)
    found = [queue.pop() for _ in range(4)]
    assert all(ranks[a] < ranks[b] for a, b in pairwise(found))
