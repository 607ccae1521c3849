"""The precedence graph: acyclic, complete, and its longest path accounts for the makespan."""

import json

import networkx as nx
import numpy as np
import pytest
from hypothesis import given

import orsched
from orsched import InputError, Schedule, Steps, Work
from orsched.instances.catalog import KNOWN_OPTIMA, load_named
from orsched.models.bounds.request_slack import (
    client_flow,
    critical_path,
    critical_path_summary,
    precedence_graph,
)
from tests.by_the_book import Book
from tests.decoding import decoding
from tests.in_order import in_order
from tests.metrics.any_schedule import any_schedule
from tests.models.full_mip.small import instances
from tests.seeds import seeds


def durations(schedule):
    return (schedule.steps.end_ns - schedule.steps.start_ns).tolist()


@given(instances(most=6))
def test_the_critical_path_is_the_makespan_without_idle_time(instance):
    """INV: on one worker every step is on the critical path; the rest of the makespan is idle."""
    for method in ("fcfs", "hybrid"):
        schedule = orsched.solve(instance, method, iterations=2).schedule
        graph = precedence_graph(instance, schedule)
        assert nx.is_directed_acyclic_graph(graph)
        path = critical_path(graph)
        assert path == list(range(len(schedule.steps)))
        starts, ends = schedule.steps.start_ns, schedule.steps.end_ns
        idle = int(starts[0]) + int((starts[1:] - ends[:-1]).sum())
        assert sum(durations(schedule)) == schedule.makespan_ns - idle
        summary = critical_path_summary(instance, schedule)
        assert summary["length_ns"] + summary["idle_ns"] == schedule.makespan_ns
        assert summary["idle_ns"] == idle
        assert summary["longest_client"]["busy_ns"] <= summary["length_ns"]
        assert json.loads(json.dumps(summary)) == summary


@given(instances(most=6))
def test_every_request_and_every_change_of_a_client_is_an_arc(instance):
    schedule = orsched.solve(instance, "fcfs").schedule
    graph = precedence_graph(instance, schedule)
    work = schedule.work
    found = {reason: set() for reason in ("worker", "request", "client")}
    for before, after, data in graph.edges(data=True):
        for reason in data["reasons"]:
            found[reason].add((before, after))
    assert len(found["worker"]) == len(schedule.steps) - 1
    expected, taken, last_of_client = set(), set(), {}
    begin = [int(work.first_step[work.request == r][0]) for r in range(len(instance))]
    for request in np.argsort(begin):
        rows = np.flatnonzero(work.request == request)
        client = int(work.client[rows[0]])
        if len(rows) == 2:
            expected.add((int(work.last_step[rows[0]]), int(work.first_step[rows[1]])))
        if client in last_of_client:
            taken.add((last_of_client[client], int(work.first_step[rows[0]])))
        last_of_client[client] = int(work.last_step[rows[-1]])
    assert found["request"] == expected
    assert found["client"] == taken


@pytest.mark.parametrize("name", KNOWN_OPTIMA)
def test_longest_path_agrees_with_networkx(name):
    instance = load_named(name)
    schedule = orsched.solve(instance, "hybrid").schedule
    graph = precedence_graph(instance, schedule)
    for before, after in graph.edges:
        graph[before][after]["weight"] = graph.nodes[before]["duration_ns"]
    tail = graph.nodes[critical_path(graph)[-1]]["duration_ns"]
    length = sum(graph.nodes[step]["duration_ns"] for step in critical_path(graph))
    assert nx.dag_longest_path_length(graph) + tail == length


TWO = (orsched.Worker(1, in_order(orsched.AffineCost, 10, 0, 5, 0)),) * 2
STEPS = {
    # Two workers have the path of the busier one.
    "each on its worker": (
        decoding([1, 1], [1, 2], TWO),
        ([0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 10, 10], [10, 10, 15, 20], [1, 1, 1, 2]),
        ([0, 0, 1, 1], [0] * 4, [0, 1, 0, 1], [0, 2, 1, 3], [0, 2, 1, 3], [1] * 4),
        [1, 3],
        {"worker": 1, "length_ns": 20, "idle_ns": 0},
        {"worker": 1, "client": 0, "busy_ns": 20, "requests": ["1"]},
    ),
    # A request that changes workers takes the path with it.
    "one on both": (
        decoding([1], [3], TWO),
        ([0, 0, 1, 1], [0, 1, 0, 1], [0, 10, 17, 27], [10, 15, 27, 37], [1, 1, 1, 2]),
        ([0] * 4, [0] * 4, [0, 1, 0, 1], range(4), range(4), [1, 1, 2, 1], [0, 0, 1, 1]),
        [0, 1, 2, 3],
        {"worker": 1, "length_ns": 35, "idle_ns": 2, "decode_rounds": 3},
        {"worker": 1, "client": 0, "busy_ns": 20, "requests": ["0"]},
    ),
}


@pytest.mark.parametrize("case", STEPS)
def test_paths_on_two_workers_by_hand(case):
    instance, steps, work, path, totals, longest = STEPS[case]
    schedule = Schedule(instance.sha256, in_order(Steps, *steps), Work(*work), "hand", "none")
    graph = precedence_graph(instance, schedule)
    assert critical_path(graph) == path
    if len(instance) == 1:
        assert graph.edges[1, 2]["reasons"] == ("request",)
    summary = critical_path_summary(instance, schedule)
    assert {name: summary[name] for name in totals} == totals
    assert summary["longest_client"] == longest


@pytest.mark.parametrize("seed", seeds(10, 40))
def test_every_step_follows_the_last_one_of_its_worker_and_of_its_requests(seed):
    instance, schedule = any_schedule(seed)
    book, graph = Book(instance, schedule), precedence_graph(instance, schedule)
    assert nx.is_directed_acyclic_graph(graph)
    last, clients, workers = {}, {}, {}
    for step, worker in enumerate(row.worker for row in book.steps):
        before = {workers.get(worker)}
        for row in book.served(step):
            before |= {last.get(row.request), clients.get((worker, row.client))}
        for earlier in before - {None}:
            assert nx.has_path(graph, earlier, step)
        for row in book.served(step):
            last[row.request] = clients[worker, row.client] = step
        workers[worker] = step
    summary = critical_path_summary(instance, schedule)
    path = critical_path(graph)
    assert summary["length_ns"] == sum(durations(schedule)[step] for step in path)
    parts = summary["prefill_ns"] + summary["mixed_ns"] + summary["decode_ns"]
    assert parts == summary["length_ns"] == summary["makespan_ns"] - summary["idle_ns"]
    if len(instance):
        assert summary["longest_client"]["busy_ns"] <= summary["length_ns"]


def test_an_empty_schedule_has_an_empty_path_and_steps_that_overlap_are_refused():
    instance = decoding([], [], orsched.Worker(1))
    schedule = orsched.solve(instance, "fcfs").schedule
    assert critical_path(precedence_graph(instance, schedule)) == []
    assert critical_path_summary(instance, schedule)["longest_client"] is None
    instance = decoding([1], [1], orsched.Worker(1))
    steps = in_order(Steps, [0, 0], [0, 1], [0, 5], [10, 15], [1, 1])
    work = Work([0, 0], [0, 0], [0, 1], [0, 1], [0, 1], [1, 1])
    with pytest.raises(InputError, match="step 1 starts before step 0 has ended"):
        precedence_graph(instance, Schedule(instance.sha256, steps, work, "hand", "none"))


def test_the_graph_of_a_large_schedule_has_few_arcs():
    instance = load_named("gsm8k-llama65b")
    schedule = orsched.solve(instance, "fcfs").schedule
    graph = precedence_graph(instance, schedule)
    assert graph.number_of_edges() <= len(schedule.steps) + 2 * len(instance)
    assert len(critical_path(graph)) == len(schedule.steps)


@given(instances(most=6))
def test_clients_flow_through_the_stages_and_any_paths_of_the_flow_are_clients(instance):
    """INV: every cut has all clients, no node loses one, and paths give each request one client."""
    for method in ("fcfs", "hybrid"):
        schedule = orsched.solve(instance, method, iterations=2).schedule
        graph, clients = client_flow(instance, schedule), instance.workers[0].clients
        requests = {row for _, _, row in graph.edges(keys=True)} - {"idle"}
        assert requests == set(range(len(instance)))
        assert all(flow >= 0 for *_, flow in graph.edges(data="flow"))
        last = graph.number_of_nodes() - 1
        for node in range(last):
            crossing = [f for a, b, f in graph.edges(data="flow") if a <= node < b]
            assert sum(crossing) == clients
        for node in range(1, last):
            into, out = (
                sum(f for *_, f in e(node, data="flow")) for e in (graph.in_edges, graph.out_edges)
            )
            assert into == out
        begins = [row for row, phase in enumerate(schedule.steps.phase) if phase == 0]
        assert len(begins) == last


def test_a_flow_by_hand_and_what_has_none():
    """Two clients: 0 and 1 in the first stage, 2 on the client of 1 while 0 goes on."""
    instance = decoding([5, 5, 5], [9, 3, 4], orsched.Worker(2))
    graph = client_flow(instance, orsched.solve(instance, "fcfs").schedule)
    assert sorted(graph.edges(keys=True, data="flow"), key=str) == sorted(
        [(0, 2, 0, 1), (0, 1, 1, 1), (1, 2, 2, 1), (0, 1, "idle", 0), (1, 2, "idle", 0)], key=str
    )
    mixed = orsched.solve(instance, "vllm").schedule
    with pytest.raises(InputError, match="one worker with whole prefills"):
        client_flow(instance, mixed)
