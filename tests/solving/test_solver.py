"""The public functions: arguments, stopping, interruption, determinism, invariances."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import orsched
from orsched import SLO, Information, Status, Termination, load_schedule, save_schedule
from orsched.common.errors import InputError, InvalidScheduleError, TimeLimitError
from orsched.common.stop import FirstOf, MaxIterations, MaxRuntime
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.simulator import simulate_policy
from orsched.solving.methods import Outcome
from tests.in_order import in_order
from tests.refusals import refusal
from tests.result_keys import RESULT_KEYS
from tests.simulator.instances import instances
from tests.stops import TimeUp

PANG = orsched.load("pang-100x20")
METHODS = ("fcfs", "offline", "online", "hybrid", "hybrid@predicted", "online@predicted")


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_bytes_outside_run_and_files_round_trip(method, tmp_path):
    """INV-9: two runs of one seed differ in the ``run`` block only."""
    texts = []
    for k in range(2):
        path = tmp_path / f"{k}.json"
        schedule = orsched.solve(PANG, method, seed=5).schedule
        save_schedule(schedule, path)
        assert load_schedule(path) == schedule
        assert orsched.check(PANG, load_schedule(path)) == []
        save_schedule(schedule.replace(run={}), path)
        texts.append(path.read_bytes())
    assert texts[0] == texts[1]


@pytest.mark.parametrize("method", METHODS)
def test_renaming_requests_changes_nothing(method):
    names = [f"r{k:03}" for k in range(len(PANG))][::-1]
    renamed = PANG.replace(requests=PANG.requests.replace(ids=names))
    first, second = (orsched.solve(i, method).schedule for i in (PANG, renamed))
    assert first.replace(run={}) == second.replace(run={})


@given(instances(), st.sampled_from(METHODS), st.integers(2, 1000))
def test_scaling_all_times_scales_the_makespan(instance, method, factor):
    worker, requests = instance.worker, instance.requests
    slower = replace(worker, cost=worker.cost.scaled(factor))
    requests = requests.replace(arrival_ns=requests.arrival_ns * factor)
    scaled = instance.replace(workers=(slower,), requests=requests)
    makespans = [orsched.solve(i, method, iterations=3).makespan_ns for i in (instance, scaled)]
    assert makespans[1] == factor * makespans[0]


def test_json_row_has_the_promised_keys_in_order():
    row = orsched.solve(orsched.load("two-by-two"), "fcfs").to_row()
    assert list(row) == RESULT_KEYS
    assert json.loads(json.dumps(row)) == row


def test_reaching_the_bound_is_optimal():
    result = orsched.solve(orsched.load("all-fit"), "fcfs")
    assert result.status is Status.OPTIMAL
    assert result.gap == 0
    assert result.notes
    assert orsched.solve(orsched.load("gsm8k-llama65b"), "fcfs").status is Status.FEASIBLE


def test_more_iterations_are_never_worse():
    makespans = [orsched.solve(PANG, iterations=k).makespan_ns for k in (1, 4, 16)]
    assert makespans == sorted(makespans, reverse=True)


def test_callback_sees_every_iteration():
    seen = []
    result = orsched.solve(PANG, iterations=7, callback=seen.append)
    assert [p.iteration for p in seen] == list(range(1, 8))
    assert seen[0].improved
    assert seen[-1].makespan_ns == result.makespan_ns
    assert result.termination is Termination.ITERATIONS


def interrupt(progress):
    if progress.iteration == 3:
        raise KeyboardInterrupt


@pytest.mark.parametrize("ended", ["interrupted", "time_limit"])
def test_the_end_of_a_search_returns_the_incumbent(ended):
    how = {"iterations": 50, "callback": interrupt}
    result = orsched.solve(PANG, **how if ended == "interrupted" else {"stop": TimeUp(3)})
    assert result.termination is Termination(ended)
    assert result.checked
    assert result.makespan_ns == orsched.solve(PANG, iterations=3).makespan_ns


def test_interrupt_before_a_schedule_is_passed_on():
    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        orsched.solve(orsched.load("two-by-two"), "fcfs", callback=interrupt)


@pytest.mark.parametrize("method", ["fcfs", "hybrid"])
def test_time_limit_without_a_schedule_says_so(monkeypatch, method):
    monkeypatch.setattr("orsched.solving.methods.FIRST_S", 0.0)
    with pytest.raises(TimeLimitError, match="before there was a schedule"):
        orsched.solve(orsched.load("gsm8k-llama65b"), method, stop=TimeUp())


def test_stop_criteria_combine():
    stop = FirstOf((MaxIterations(3), MaxRuntime(1000)))
    stop.start()
    assert not stop(2, None)
    assert stop(3, None)
    assert 0 < stop.seconds_left <= 1000
    result = orsched.solve(PANG, stop=MaxIterations(2))
    assert result.termination is Termination.ITERATIONS


def test_initial_schedule_is_kept_where_nothing_better_is_found():
    best = orsched.solve(PANG, iterations=4)
    poor = {"gate": "prefill_first", "assignment": "round_robin", "order": "arrival"}
    again = orsched.solve(PANG, parameters=poor, iterations=1, initial_schedule=best.schedule)
    assert again.makespan_ns == best.makespan_ns
    assert again.checked
    worse = orsched.solve(PANG, "fcfs").schedule
    again = orsched.solve(PANG, iterations=4, initial_schedule=worse)
    assert again.makespan_ns == best.makespan_ns


def test_a_bare_schedule_is_what_was_decided_alone():
    instance = orsched.load("gate")
    schedule = orsched.solve(instance, "fcfs").schedule
    bare = schedule.bare()
    assert (bare.results, bare.bound, bare.run) == ({}, None, {})
    said = {name: getattr(schedule, name) for name in ("results", "bound", "run")}
    assert all(said.values())
    assert bare.replace(**said) == schedule
    assert orsched.check(instance, bare) == []


def test_wrong_initial_schedules_are_refused_before_the_search(monkeypatch):
    """A search of an hour would else end with the refusal."""
    other = orsched.solve(orsched.load("two-by-two"), "fcfs").schedule
    own = orsched.solve(PANG, "fcfs").schedule
    monkeypatch.setattr("orsched.solving.checked_run._bounds_before", None)
    with pytest.raises(InvalidScheduleError, match="not valid"):
        orsched.solve(PANG, initial_schedule=other, time_limit=3600)
    with pytest.raises(InputError, match="true lengths"):
        orsched.solve(PANG, "online", initial_schedule=own)
    with pytest.raises(InputError, match="not a schedule"):
        orsched.solve(PANG, initial_schedule="fcfs")


def test_a_method_that_cheats_is_caught():
    """Nothing leaves the library unchecked: a method's invalid schedule raises."""

    class Cheat:
        name, information, summary = "cheat", (Information.NONE,), ""

        def __call__(self, instance, run):
            done = simulate_policy(instance, FirstComeFirstServed())
            steps = done.schedule.steps
            shorter = replace(steps, start_ns=steps.start_ns // 2, end_ns=steps.end_ns // 2)
            schedule = done.schedule.replace(steps=shorter)
            return Outcome(schedule, Termination.FINISHED, done.decision_ns, {})

    with pytest.raises(InvalidScheduleError) as caught:
        orsched.solve(orsched.load("two-by-two"), Cheat())
    assert caught.value.violations


def test_compare_keeps_the_order_and_shares_the_time():
    results = orsched.compare(PANG, ["hybrid", "fcfs"], time_limit=600, iterations=2)
    assert [r.schedule.method for r in results] == ["hybrid", "fcfs"]
    frame = results.to_pandas()
    assert frame["checked"].all()
    assert (frame["makespan_s"] >= frame["bound_s"]).all()
    assert "<table" in results._repr_html_()


def test_slo_attainment_is_reported_and_checked():
    result = orsched.solve(PANG, "fcfs", slo=SLO(ttft_ns=10**12, tpot_ns=10**12))
    assert result.schedule.results["slo"]["attainment"] == 1.0
    none = orsched.solve(PANG, "fcfs", slo=SLO(ttft_ns=0, tpot_ns=0)).schedule.results["slo"]
    assert none["attained"] == 0


def test_a_method_can_be_specified_in_one_word():
    result = orsched.solve(PANG, "online@predicted+gate=idle_cost+gate_factor=0.5")
    assert result.information == "predicted"
    assert result.schedule.parameters["gate"] == "idle_cost"
    assert result.schedule.parameters["gate_factor"] == 0.5
    assert result.to_row()["method"] == "online@predicted+gate=idle_cost+gate_factor=0.5"
    assert result.schedule.method == "online"
    for wrong in ("online+gate", "online+=1", "online+gate=a+gate=b"):
        assert refusal(orsched.solve, PANG, wrong).field == "method"


def test_an_initial_schedule_of_mixed_steps_beats_the_proof_and_takes_it_back():
    """Mixed steps need fewer rounds: no bound on stages and rounds may stand beside them."""
    cost = in_order(orsched.AffineCost, 32_000_000, 1_000_000, 20_000_000, 1_000_000)
    requests = orsched.Requests([24, 2, 1], [1, 1, 4])
    instance = orsched.Instance(requests, [orsched.Worker(2, cost)], first_token="decode")
    start = orsched.solve(instance, "gittins").schedule
    alone = orsched.solve(instance, "exact")
    found = orsched.solve(instance, "exact", initial_schedule=start)
    assert alone.status == "optimal"
    assert found.makespan_ns == start.makespan_ns < alone.makespan_ns
    assert found.status == "feasible"
    assert "not proven optimal" in found.notes[-1]
    assert found.bound_ns <= found.makespan_ns
    assert all(point.bound <= found.bound_ns for point in found.history)
