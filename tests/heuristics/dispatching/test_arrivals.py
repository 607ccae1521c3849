"""Arrivals below a dispatcher: who is interrupted, and when."""

import pytest

from orsched import ARRIVAL, BlockMemory, Information, Instance, Requests, Worker
from orsched.heuristics.dispatching import DISPATCHERS, Dispatched
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.simulator import simulate_policy
from tests.heuristics.building import solved, steps_of
from tests.simulator.scripted import COST


def instance(arrival):
    """Two requests at the start, one a worker, and one that arrives later."""
    return on_two(Requests([5, 5, 3], [20, 20, 4], arrival_ns=[0, 0, arrival]))


def on_two(requests, clients=2):
    workers = tuple(Worker(clients, COST, name=name) for name in "ab")
    return Instance(requests, workers, first_token="decode")


def rows_of(schedule, worker):
    """Start, end and rounds of the steps of a worker."""
    rows = steps_of(schedule, "worker", "start_ns", "end_ns", "rounds")
    return [row for index, *row in rows if index == worker]


def dispatched(given, name, kind=FirstComeFirstServed, **params):
    return solved(given, Dispatched(kind, DISPATCHERS[name](), **params))


@pytest.mark.parametrize("steal", [False, True])
@pytest.mark.parametrize("name", DISPATCHERS)
def test_an_arrival_ends_the_rounds_of_the_worker_that_gets_it(name, steal):
    """Rounds end at 15, 25, 35: what arrives at 26 to 35 joins at 35, and nobody else notices."""
    for arrival in (26, 35):
        schedule = dispatched(instance(arrival), name, steal=steal)
        # After the stages until 5 and from 35 to 38, request 2 decodes until 78.
        assert rows_of(schedule, 0) == [
            [0, 5, 1], [5, 35, 3], [35, 38, 1], [38, 78, 4], [78, 208, 13]
        ]  # fmt: skip
        assert rows_of(schedule, 1) == [[0, 5, 1], [5, 205, 20]]


def test_arrivals_for_two_workers_end_the_rounds_of_both():
    """Each of the two is interrupted by the request that it gets."""
    requests = Requests([5, 5, 3, 3], [20, 20, 4, 4], arrival_ns=[0, 0, 26, 27])
    schedule = dispatched(on_two(requests), "round_robin")
    assert rows_of(schedule, 0)[1] == [5, 35, 3]
    assert rows_of(schedule, 1)[1] == [5, 35, 3]


def test_an_arrival_in_a_single_round_ends_the_step_after_it():
    """Rounds go on past the finish at 20, but not when request 4 has arrived at 13."""
    requests = Requests([5] * 4 + [3], [1, 20, 20, 20, 4], arrival_ns=[0, 0, 0, 0, 13])
    schedule = dispatched(on_two(requests, 3), "round_robin", UntilArrivals)
    assert rows_of(schedule, 0)[:4] == [[0, 10, 1], [10, 20, 1], [20, 23, 1], [23, 63, 4]]


class UntilArrivals(FirstComeFirstServed):
    def decide(self, view):
        step = super().decide(view)
        return step if step is None or step.prefill else step._replace(until=ARRIVAL)


@pytest.mark.parametrize("steal", [False, True])
@pytest.mark.parametrize("name", DISPATCHERS)
def test_requests_go_to_workers_that_can_hold_them(name, steal):
    """The second worker has room for 20 tokens: the long requests go to the first one."""
    requests = Requests([4, 40, 4, 40] * 3, [4, 40, 4, 40] * 3)
    memories = {"small": BlockMemory(20, 1, "whole"), "large": BlockMemory(100, 1, "whole")}
    workers = tuple(Worker(2, COST, None, memory, size) for size, memory in memories.items())
    given = Instance(requests, workers, output_limit_tokens=40, first_token="decode")
    schedule = dispatched(given, name, Knowing, steal=steal)
    work = schedule.work
    where = schedule.steps.worker[work.first_step]
    long = requests.prompt_tokens[work.request] == 40
    assert set(where[long].tolist()) == {1}
    assert 0 in where[~long]


class Knowing(FirstComeFirstServed):
    name, information = "knowing", Information.CLAIRVOYANT


def test_what_the_workers_policies_count_is_added_up():
    class Counting(FirstComeFirstServed):
        finished = 0

        def on_finish(self, view, request, client):
            super().on_finish(view, request, client)
            self.finished += 1

        def counted(self):
            return {"finished": self.finished, "policies": 1}

    policy = Dispatched(Counting, DISPATCHERS["round_robin"]())
    simulate_policy(instance(30), policy)
    assert policy.counted() == {"finished": 3, "policies": 2}
