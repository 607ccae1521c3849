"""Requests that arrive when others have ended: turns of conversations and closed loops."""

from __future__ import annotations

import numpy as np
import pytest

import orsched
from orsched import AffineCost, InputError, Instance, Requests, Worker
from orsched.certificates.arrivals import with_arrivals
from orsched.checker.certificates import bound_violations
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.metrics.timeline import as_arrived
from orsched.simulator import simulate_policy
from tests.in_order import in_order
from tests.simulator.closed_loops import closed_instance, finishes, sent_at, starts

COST = in_order(AffineCost, 10, 1, 5, 0)
ONE = Worker(4, COST)  # a prefill of p takes 10 + p, a round 5 ns
POLICIES = ["vllm", "fcfs", "gittins@none"]


def made(policy, instance):
    chosen = orsched.solving.method_choice.choose(policy)
    built, _ = chosen.method.build(instance, chosen.information, chosen.parameters, 0)
    return simulate_policy(instance, built).schedule


def arrived(requests, worker=ONE, concurrency=None, policy="fcfs"):
    case = Instance(requests, (worker,), concurrency=concurrency)
    result = orsched.simulate(case, policy)
    return as_arrived(case, result.schedule).requests.arrival_ns.tolist(), result


def test_one_in_flight_is_one_after_the_other():
    # 10 + 5 for the prompt and its token, two rounds of 5: 25 each.
    times, result = arrived(Requests([5] * 3, [3] * 3), concurrency=1)
    assert times == [0, 25, 50]
    assert result.makespan_ns == 75
    assert result.schedule.results["jct_ns"]["max"] == 25
    assert result.bound_ns == 75  # a chain of least times, as first turns wait for ends
    assert result.status == "optimal"


def test_the_second_conversation_is_sent_when_the_first_of_two_ends():
    # Prefilled together: 10 + 10; request 0 then has one round, request 1 four.
    times, _ = arrived(Requests([5, 5, 5], [2, 5, 1]), concurrency=2)
    assert times == [0, 0, 25]


def test_own_arrival_times_are_kept_where_they_are_later():
    requests = Requests([5, 5, 5], [3, 3, 3], arrival_ns=[0, 7, 90])
    assert arrived(requests, concurrency=1)[0] == [0, 25, 90]


def test_a_turn_arrives_after_its_parents_end_and_the_delay():
    requests = Requests([5, 5, 5], [3, 3, 1], parent=[-1, 0, 1], delay_ns=[-1, 100, 0])
    times, result = arrived(requests)
    assert times == [0, 125, 150]
    assert result.bound_ns == result.makespan_ns == 165


def test_a_turn_without_a_delay_arrives_at_its_own_time():
    case = Instance(Requests([5, 5], [3, 3], parent=[-1, 0], arrival_ns=[0, 3]), (ONE,))
    assert not case.arrivals_follow
    assert orsched.solve(case, "vllm").checked


def test_a_conversation_holds_its_place_while_it_thinks():
    requests = Requests([5, 5, 5], [3, 3, 3], parent=[-1, 0, -1], delay_ns=[-1, 40, -1])
    assert arrived(requests, concurrency=1)[0] == [0, 65, 90]


def test_as_many_in_flight_as_there_are_is_an_open_loop():
    case = Instance(Requests([5] * 3, [3] * 3), (ONE,), concurrency=3)
    assert not case.arrivals_follow
    assert orsched.solve(case, "offline").checked


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(12))
def test_arrivals_are_those_of_a_literal_account(policy, seed):
    case = closed_instance(seed)
    schedule = made(policy, case)
    expected = sent_at(case, schedule)
    assert as_arrived(case, schedule).requests.arrival_ns.tolist() == expected
    begun, ends = starts(case, schedule), finishes(case, schedule)
    assert all(start >= sent for start, sent in zip(begun, expected, strict=True))
    if case.concurrency is not None and case.requests.parent is None:
        for now in expected:
            flying = sum(s <= now < e for s, e in zip(expected, ends, strict=True))
            assert flying <= case.concurrency


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(12))
def test_the_schedule_is_that_of_the_open_loop_with_these_arrivals(policy, seed):
    case = closed_instance(seed, workers=1)
    schedule = made(policy, case)
    times = as_arrived(case, schedule).requests.arrival_ns.copy()
    again = made(policy, with_arrivals(case, times))
    assert again.steps == schedule.steps
    assert again.work == schedule.work


@pytest.mark.parametrize("seed", range(4))
def test_bounds_and_figures_hold_and_are_checked(seed):
    case = closed_instance(seed, turns=seed % 2 == 0, limit=seed % 4 != 0)
    result = orsched.simulate(case, "vllm", bounds=["mean_jct", "mean_ttft"])
    ends, sent = finishes(case, result.schedule), sent_at(case, result.schedule)
    assert result.bound_ns <= result.makespan_ns == max(ends)
    took = sum(end - start for end, start in zip(ends, sent, strict=True)) / len(case)
    assert result.schedule.results["jct_ns"]["mean"] == pytest.approx(took)
    assert result.mean_bounds["mean_jct"]["value_ns"] <= took
    assert orsched.check(case, result) == []
    open_loop = Instance(case.requests.replace(delay_ns=None), case.workers)
    if case.arrivals_follow:
        assert open_loop.sha256 != case.sha256


def test_a_schedule_of_the_open_loop_is_refused():
    """INV-39."""
    requests = Requests([5] * 4, [3] * 4)
    closed = Instance(requests, (ONE,), concurrency=3)  # four start at once: one too many
    schedule = orsched.simulate(Instance(requests, (ONE,)), "fcfs").schedule.bare()
    found = orsched.check(closed, schedule.replace(instance_sha256=closed.sha256))
    assert {each.kind for each in found} == {"arrival"}
    assert [each.request for each in found] == [3]


def test_a_turn_before_its_parents_end_is_refused():
    """INV-38."""
    requests = Requests([5, 5], [3, 3], parent=[-1, 0], delay_ns=[-1, 0])
    turns = Instance(requests, (ONE,))
    schedule = orsched.simulate(
        Instance(requests.replace(delay_ns=None), (ONE,)), "fcfs"
    ).schedule.bare()
    found = orsched.check(turns, schedule.replace(instance_sha256=turns.sha256))
    assert {each.kind for each in found} == {"arrival"}
    assert found[0].request == 1
    assert found[0].expected == 30  # both were prefilled in 20 and decoded in 10


def test_a_bound_on_a_mean_that_needs_arrivals_is_refused():
    case = Instance(Requests([5] * 4, [3] * 4), (ONE,), concurrency=1)
    other = orsched.bound(Instance(case.requests, (ONE,)), "mean_jct")
    assert orsched.bound(case, "mean_jct").name == "alone" != other.name
    assert "known arrivals" in bound_violations(case, other.to_dict(), "mean_jct")[0]


@pytest.mark.parametrize("method", ["exact", "windows", "offline", "hybrid", "fleet"])
def test_methods_that_plan_refuse(method):
    case = Instance(Requests([5] * 4, [3] * 4), (ONE,), concurrency=1)
    with pytest.raises(InputError, match="known arrivals"):
        orsched.solve(case, method)


N3 = {"prompt_tokens": [5] * 3, "output_tokens": [2] * 3}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"parent": [1, 0, -1]}, "circle"),
        ({"parent": [-1, 0, 2]}, "circle"),
        ({"parent": [-1, 3, 0]}, "above"),
        ({"parent": [-2, -1, -1]}, "negative|below|-2"),
        ({"parent": [-1, 0, 0], "delay_ns": [5, 5, 5]}, "without a parent"),
        ({"delay_ns": [5, -1, -1]}, "without a parent"),
        ({"parent": [-1, 0, 0], "delay_ns": [-1, -7, 0]}, "-7"),
        ({"parent": [-1, 0.5, 0]}, "0.5"),
    ],
)
def test_wrong_turns_are_refused(columns, words):
    with pytest.raises(InputError, match=words):
        Requests(**N3, **columns)


@pytest.mark.parametrize("most", [0, -1, 1.5, True, "3", 2**40])
def test_a_wrong_concurrency_is_refused(most):
    with pytest.raises(InputError, match="concurrency"):
        Instance(Requests(**N3), (ONE,), concurrency=most)


def test_rows_that_are_taken_keep_their_parents_and_lose_those_left_out():
    requests = Requests(**N3, parent=[-1, 0, 1], delay_ns=[-1, 4, 5])
    some = requests.take([2, 1])
    assert some.parent.tolist() == [1, -1]
    assert some.delay_ns.tolist() == [5, -1]
    assert requests.take([0]).parent is None


def test_turns_after_a_refused_one_are_refused():
    small = Worker(1, COST, memory=orsched.BlockMemory(4, 2))
    requests = Requests([2, 9, 2, 2], [1] * 4, parent=[-1, 0, 1, -1], delay_ns=[-1, 0, 0, -1])
    found = Instance(requests, (small,)).admitted()
    assert found.requests.ids == ("0", "3")
    assert sum(found.refused) == 2


def test_policies_do_not_see_what_has_not_arrived():
    seen = []

    class Looks(FirstComeFirstServed):
        information = "clairvoyant"

        def decide(self, view):
            seen.append(np.asarray(view.prompt_tokens).tolist())
            return super().decide(view)

    case = Instance(Requests([5, 6, 7], [3, 3, 3]), (ONE,), concurrency=1)
    simulate_policy(case, Looks())
    assert seen[0] == [5, 0, 0]
    assert seen[-1] == [5, 6, 7]
