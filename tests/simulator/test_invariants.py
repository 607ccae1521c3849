"""The numbered invariants of the documentation, on random instances and every policy.

Everything is recomputed here from the rows of the schedule, without checker and metrics.
"""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orsched.checker import check
from orsched.data.instance import Instance
from orsched.data.schedule import Work
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.metrics.summary import summarise
from orsched.models.bounds.bounds import makespan_bound
from orsched.simulator import simulate_policy
from tests.simulator.instances import instances
from tests.simulator.policies import POLICIES

every_policy = pytest.mark.parametrize("name", POLICIES)
few = settings(max_examples=15)


def run(instance, name):
    return simulate_policy(instance, POLICIES[name]()).schedule


def step_rows(schedule):
    names = [f.name for f in fields(schedule.steps)]
    columns = zip(*(getattr(schedule.steps, n).tolist() for n in names), strict=True)
    return [dict(zip(names, row, strict=True)) for row in columns]


def work_rows(schedule):
    names = [f.name for f in fields(Work)]
    columns = zip(*(getattr(schedule.work, n).tolist() for n in names), strict=True)
    return [dict(zip(names, row, strict=True)) for row in columns]


def serving(schedule):
    """For each step: the requests that it serves."""
    steps, served = step_rows(schedule), []
    for index, step in enumerate(steps):
        served.append(
            {
                row["request"]
                for row in work_rows(schedule)
                if row["phase"] == step["phase"] and row["first_step"] <= index <= row["last_step"]
            }
        )
    return served


def stays(schedule):
    """Request -> client, first and last step of its stay on the client."""
    result = {}
    for row in work_rows(schedule):
        _, first, last = result.get(row["request"], (0, 10**9, -1))
        result[row["request"]] = (
            row["client"],
            min(first, row["first_step"]),
            max(last, row["last_step"]),
        )
    return result


@every_policy
@few
@given(instance=instances())
def test_requests_are_conserved(name, instance):
    """INV-1: each request is prefilled in one stage and decoded in one run; none is invented."""
    schedule = run(instance, name)
    prefilled = [r["request"] for r in work_rows(schedule) if r["phase"] == 0]
    assert sorted(prefilled) == list(range(len(instance)))
    decoded = [r["request"] for r in work_rows(schedule) if r["phase"] == 1]
    first_by_prefill = instance.first_token == "prefill"
    outputs = instance.requests.output_tokens.tolist()
    assert sorted(decoded) == [r for r, d in enumerate(outputs) if d > first_by_prefill]


@every_policy
@few
@given(instance=instances())
def test_tokens_are_conserved(name, instance):
    """INV-2: prompts are processed and outputs yielded to the token."""
    schedule = run(instance, name)
    steps, served = step_rows(schedule), serving(schedule)
    n = len(instance)
    yielded = [int(instance.first_token == "prefill")] * n
    for step, requests in zip(steps, served, strict=True):
        for request in requests:
            yielded[request] += step["rounds"] if step["phase"] == 1 else 0
    assert yielded == instance.requests.output_tokens.tolist()
    prompts = [r["tokens"] for r in work_rows(schedule) if r["phase"] == 0]
    assert prompts == instance.requests.prompt_tokens.tolist()
    # Every round of every decode step gives each client on it one token.
    total = sum(s["rounds"] * len(r) for s, r in zip(steps, served, strict=True) if s["phase"])
    assert total == sum(yielded) - n * (instance.first_token == "prefill")


@every_policy
@few
@given(instance=instances())
def test_blocks_are_conserved(name, instance):
    """INV-3: blocks are held from prefill to finish, never more than there are."""
    memory = instance.worker.memory
    schedule = run(instance, name)
    requests = instance.requests
    for index in range(len(schedule.steps)):
        held = 0
        for request, (_, first, last) in stays(schedule).items():
            if first <= index <= last and memory is not None:
                tokens = int(requests.prompt_tokens[request] + requests.output_tokens[request])
                held += -(-tokens // memory.block_tokens)
        assert memory is None or held <= memory.blocks

    class Watching(FirstComeFirstServed):
        def on_finish(self, view, request, client):
            self.left = view.blocks_free

    policy = Watching()
    if len(instance):
        simulate_policy(instance, policy)
        assert policy.left == (None if memory is None else memory.blocks)


@every_policy
@few
@given(instance=instances())
def test_the_clock_never_runs_backwards(name, instance):
    """INV-4 and INV-7: one stage at a time, each after the other, prefill or decode."""
    schedule = run(instance, name)
    now = 0
    for step, requests in zip(step_rows(schedule), serving(schedule), strict=True):
        assert now <= step["start_ns"] <= step["end_ns"]
        assert step["rounds"] >= 1
        assert requests
        now = step["end_ns"]
    for row in work_rows(schedule):
        ends = {step_rows(schedule)[row[column]]["phase"] for column in ("first_step", "last_step")}
        assert ends == {row["phase"]}


@every_policy
@few
@given(instance=instances())
def test_times_of_a_request_are_in_order(name, instance):
    """INV-5: arrival <= start of prefill <= its end <= first token <= finish."""
    schedule = run(instance, name)
    times = schedule.request_times(instance)
    columns = ("prefill_start_ns", "prefill_end_ns", "first_token_ns", "finish_ns")
    earlier = instance.requests.arrival_ns
    for column in columns:
        assert (earlier <= times[column]).all()
        earlier = times[column]
    steps = step_rows(schedule)
    ends = [steps[last]["end_ns"] for _, (_, _, last) in sorted(stays(schedule).items())]
    assert ends == times["finish_ns"].tolist()


@every_policy
@few
@given(instance=instances())
def test_a_client_serves_one_request_at_a_time(name, instance):
    """INV-6: stays on a client do not share a step."""
    schedule = run(instance, name)
    for index in range(len(schedule.steps)):
        there = [c for c, first, last in stays(schedule).values() if first <= index <= last]
        assert len(there) == len(set(there)) <= instance.worker.clients
        assert set(there) <= set(range(instance.worker.clients))


@every_policy
@few
@given(instance=instances())
def test_bounds_hold(name, instance):
    """INV-10: no schedule of any policy is shorter than the bound, which is certified."""
    schedule = run(instance, name)
    bound = makespan_bound(instance)
    assert 0 <= bound.value_ns <= schedule.makespan_ns
    assert check(instance, schedule.replace(bound=bound.to_dict())) == []


@every_policy
@few
@given(instance=instances(), data=st.data())
def test_clients_are_interchangeable(name, instance, data):
    """INV-11: renaming the clients of a valid schedule makes another with the same numbers."""
    schedule = run(instance, name)
    names = data.draw(st.permutations(range(instance.worker.clients)))
    columns = {f.name: getattr(schedule.work, f.name) for f in fields(Work)}
    columns["client"] = np.array(names)[schedule.work.client]
    renamed = schedule.replace(work=Work(**columns))
    results = summarise(instance, schedule)
    assert summarise(instance, renamed) == results
    assert check(instance, renamed.replace(results=results)) == []


@few
@given(instance=instances())
def test_fcfs_is_work_conserving(instance):
    """INV-12: fcfs idles only when no request is there, and decodes only when none can start."""
    schedule = simulate_policy(instance, FirstComeFirstServed()).schedule
    requests, worker = instance.requests, instance.worker
    begin = {r: first for r, (_, first, _) in stays(schedule).items()}
    finish = {r: last for r, (_, _, last) in stays(schedule).items()}
    queue = sorted(begin, key=lambda r: (requests.arrival_ns[r], r))
    assert [begin[r] for r in queue] == sorted(begin.values())  # nobody overtakes
    before = 0
    for index, step in enumerate(step_rows(schedule)):
        running = [r for r in begin if begin[r] < index <= finish[r]]
        if step["start_ns"] > before:
            assert not running
            assert not [r for r in begin if begin[r] >= index and requests.arrival_ns[r] <= before]
        before = step["end_ns"]
        waiting = [
            r for r in queue if begin[r] > index and requests.arrival_ns[r] <= step["start_ns"]
        ]
        if step["phase"] == 0 or not waiting or len(running) == worker.clients:
            continue
        # A client is free and somebody waits: the first in the queue does not fit into memory.
        memory = worker.memory
        assert memory is not None
        reserved = [
            -(-(int(requests.prompt_tokens[r]) + instance.output_limit_tokens) // block)
            for block in [memory.block_tokens]
            for r in [*running, waiting[0]]
        ]
        assert sum(reserved) > memory.blocks


@every_policy
@few
@given(instance=instances())
def test_client_time_adds_up(name, instance):
    """INV-15: busy time and bubbles make up clients times makespan exactly."""
    schedule = run(instance, name)
    results = summarise(instance, schedule)
    bubbles = results["bubble_ns"]
    assert min(bubbles.values()) >= 0
    total = results["busy_client_ns"] + sum(bubbles.values())
    assert total == instance.worker.clients * schedule.makespan_ns
    json.dumps(results, allow_nan=False)


SCALABLE = [n for n in POLICIES if n.startswith(("fcfs", "erratic", "static", "patient", "three"))]


@pytest.mark.parametrize("name", SCALABLE)
@few
@given(instance=instances(), factor=st.integers(2, 7))
def test_time_has_no_unit_of_its_own(name, instance, factor):
    """INV-16: all times multiplied by a whole number make the same schedule, stretched."""
    requests = instance.requests.replace(arrival_ns=instance.requests.arrival_ns * factor)
    worker = instance.worker
    scaled = type(worker)(
        worker.clients, worker.cost.scaled(factor), worker.prefill_cap_tokens, worker.memory
    )
    stretched = Instance(
        requests, scaled, instance.first_token, output_limit_tokens=instance.output_limit_tokens
    )
    one, two = run(instance, name), run(stretched, name)
    assert (one.steps.end_ns * factor).tolist() == two.steps.end_ns.tolist()
    assert work_rows(one) == work_rows(two)
