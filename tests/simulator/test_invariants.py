"""The numbered invariants of the documentation, on random instances and every policy."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orsched import check, summarise
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.models.bounds.bounds import makespan_bound
from orsched.simulator import simulate_policy
from tests.by_the_book import PREFILL, Book
from tests.heuristics.building import same
from tests.simulator.instances import instances
from tests.simulator.policies import POLICIES

every_policy = pytest.mark.parametrize("name", POLICIES)
few = settings(max_examples=15)


def run(instance, name):
    return simulate_policy(instance, POLICIES[name]()).schedule


@every_policy
@settings(max_examples=40)
@given(instance=instances())
def test_the_laws_hold_and_the_bound(name, instance):
    """From the rows: INV-1, INV-2, INV-3, INV-4, INV-5, INV-6, INV-7, INV-9, INV-10, INV-15."""
    schedule = run(instance, name)
    assert same(run(instance, name), schedule)
    book = Book(instance, schedule)
    times, earlier = schedule.request_times(instance), instance.requests.arrival_ns
    for column in ("prefill_start_ns", "prefill_end_ns", "first_token_ns", "finish_ns"):
        assert (earlier <= times[column]).all()
        earlier = times[column]
    assert times["finish_ns"].tolist() == [book.finish[r] for r in range(len(instance))]
    prefills = [row.tokens for row in book.work if row.phase == PREFILL]
    assert prefills == instance.requests.prompt_tokens.tolist()  # whole, each in one stage
    assert len(book.work) == len({(row.request, row.phase) for row in book.work})
    bound = makespan_bound(instance)
    assert 0 <= bound.value_ns <= schedule.makespan_ns
    results = summarise(instance, schedule)
    for reported in ({"bound": bound.to_dict()}, {"results": results}):
        assert check(instance, schedule.replace(**reported)) == []
    bubbles = results["bubble_ns"]
    assert min(bubbles.values()) >= 0
    total = results["busy_client_ns"] + sum(bubbles.values())
    assert total == instance.worker.clients * schedule.makespan_ns
    json.dumps(results, allow_nan=False)


@every_policy
@few
@given(instance=instances(), data=st.data())
def test_clients_are_interchangeable(name, instance, data):
    """INV-11: renaming the clients of a valid schedule makes another with the same numbers."""
    schedule = run(instance, name)
    names = data.draw(st.permutations(range(instance.worker.clients)))
    work = replace(schedule.work, client=np.array(names)[schedule.work.client])
    renamed = schedule.replace(work=work)
    results = summarise(instance, schedule)
    assert summarise(instance, renamed) == results
    assert check(instance, renamed.replace(results=results)) == []


@few
@given(instance=instances())
def test_fcfs_is_work_conserving(instance):
    """INV-12: fcfs idles only when no request is there, and decodes only when none can start."""
    schedule = simulate_policy(instance, FirstComeFirstServed()).schedule
    requests, worker = instance.requests, instance.worker
    book = Book(instance, schedule)
    begin = {stay.request: stay.first for stay in book.stays}
    finish = {stay.request: stay.last for stay in book.stays}
    queue = sorted(begin, key=lambda r: (requests.arrival_ns[r], r))
    assert [begin[r] for r in queue] == sorted(begin.values())  # nobody overtakes
    before = 0
    for index, step in enumerate(book.steps):
        running = [r for r in begin if begin[r] < index <= finish[r]]
        if step.start_ns > before:
            assert not running
            assert not [r for r in begin if begin[r] >= index and requests.arrival_ns[r] <= before]
        before = step.end_ns
        waiting = [r for r in queue if begin[r] > index and requests.arrival_ns[r] <= step.start_ns]
        if step.phase == 0 or not waiting or len(running) == worker.clients:
            continue
        # A client is free and somebody waits: the first in the queue does not fit into memory.
        memory = worker.memory
        most = requests.prompt_tokens[[*running, waiting[0]]] + instance.output_limit_tokens
        assert (-(-most // memory.block_tokens)).sum() > memory.blocks


SCALABLE = [n for n in POLICIES if n.startswith(("fcfs", "erratic", "static", "patient", "three"))]


@pytest.mark.parametrize("name", SCALABLE)
@few
@given(instance=instances(), factor=st.integers(2, 7))
def test_time_has_no_unit_of_its_own(name, instance, factor):
    """INV-16: all times multiplied by a whole number make the same schedule, stretched."""
    requests = instance.requests.replace(arrival_ns=instance.requests.arrival_ns * factor)
    worker = replace(instance.worker, cost=instance.worker.cost.scaled(factor))
    stretched = instance.replace(requests=requests, workers=(worker,))
    one, two = run(instance, name), run(stretched, name)
    assert (one.steps.end_ns * factor).tolist() == two.steps.end_ns.tolist()
    assert one.work == two.work
