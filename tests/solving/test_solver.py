"""The public functions: arguments, stopping, interruption, determinism, invariances."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import orsched
from orsched.common.errors import InputError, InvalidScheduleError, TimeLimitError
from orsched.common.stop import FirstOf, MaxIterations, MaxRuntime
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.files import load_schedule, save_schedule
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.metrics.summary import SLO
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information
from orsched.solving.methods import Outcome
from orsched.solving.result import Status, Termination
from tests.in_order import in_order
from tests.result_keys import RESULT_KEYS
from tests.simulator.instances import instances
from tests.stops import TimeUp

METHODS = ("fcfs", "offline", "online", "hybrid", "hybrid@predicted", "online@predicted")


def _without_run(schedule):
    return schedule.replace(run={})


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_bytes_outside_run(method, tmp_path):
    """INV-9: two runs of one seed differ in the ``run`` block only."""
    instance = orsched.load("pang-100x20")
    texts = []
    for k in range(2):
        path = tmp_path / f"{k}.json"
        save_schedule(_without_run(orsched.solve(instance, method, seed=5).schedule), path)
        texts.append(path.read_bytes())
    assert texts[0] == texts[1]


@pytest.mark.parametrize("method", METHODS)
def test_renaming_requests_changes_nothing(method):
    instance = orsched.load("pang-100x20")
    names = [f"r{k:03}" for k in range(len(instance))][::-1]
    renamed = instance.replace(requests=instance.requests.replace(ids=names))
    results = [orsched.solve(i, method).schedule for i in (instance, renamed)]
    assert _without_run(results[0]) == _without_run(results[1])


@given(instances(), st.sampled_from(METHODS), st.integers(2, 1000))
def test_scaling_all_times_scales_the_makespan(instance, method, factor):
    worker = instance.worker
    scaled = instance.replace(
        workers=(
            Worker(
                worker.clients, worker.cost.scaled(factor), worker.prefill_cap_tokens, worker.memory
            ),
        ),
        requests=instance.requests.replace(arrival_ns=instance.requests.arrival_ns * factor),
    )
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
    instance = orsched.load("pang-100x20")
    makespans = [orsched.solve(instance, iterations=k).makespan_ns for k in (1, 4, 16, 40)]
    assert makespans == sorted(makespans, reverse=True)


def test_callback_sees_every_iteration():
    seen = []
    result = orsched.solve(orsched.load("pang-100x20"), iterations=7, callback=seen.append)
    assert [p.iteration for p in seen] == list(range(1, 8))
    assert seen[0].improved
    assert seen[-1].makespan_ns == result.makespan_ns
    assert result.termination is Termination.ITERATIONS


def test_interrupt_returns_the_incumbent():
    def interrupt(progress):
        if progress.iteration == 3:
            raise KeyboardInterrupt

    instance = orsched.load("pang-100x20")
    result = orsched.solve(instance, iterations=50, callback=interrupt)
    assert result.termination is Termination.INTERRUPTED
    assert result.checked
    assert result.makespan_ns == orsched.solve(instance, iterations=3).makespan_ns


def test_interrupt_before_a_schedule_is_passed_on():
    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        orsched.solve(orsched.load("two-by-two"), "fcfs", callback=interrupt)


def test_time_limit_ends_a_search_with_its_incumbent():
    instance = orsched.load("pang-100x20")
    result = orsched.solve(instance, stop=TimeUp(3))
    assert result.termination is Termination.TIME_LIMIT
    assert result.checked
    assert result.makespan_ns == orsched.solve(instance, iterations=3).makespan_ns


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
    result = orsched.solve(orsched.load("pang-100x20"), stop=MaxIterations(2))
    assert result.termination is Termination.ITERATIONS


def test_initial_schedule_is_kept_where_nothing_better_is_found():
    instance = orsched.load("pang-100x20")
    best = orsched.solve(instance, iterations=16)
    again = orsched.solve(
        instance,
        parameters={"gate": "prefill_first", "assignment": "round_robin", "order": "arrival"},
        iterations=1,
        initial_schedule=best.schedule,
    )
    assert again.makespan_ns == best.makespan_ns
    assert again.checked
    worse = orsched.solve(instance, "fcfs").schedule
    assert orsched.solve(instance, initial_schedule=worse).makespan_ns == best.makespan_ns


def test_a_bare_schedule_is_what_was_decided_alone():
    instance = orsched.load("gate")
    schedule = orsched.solve(instance, "fcfs").schedule
    bare = schedule.bare()
    assert (bare.results, bare.bound, bare.run) == ({}, None, {})
    assert all((schedule.results, schedule.bound, schedule.run))
    assert (
        bare.replace(results=schedule.results, bound=schedule.bound, run=schedule.run) == schedule
    )
    assert orsched.check(instance, bare) == []


def test_wrong_initial_schedules_are_refused():
    instance = orsched.load("pang-100x20")
    other = orsched.solve(orsched.load("two-by-two"), "fcfs").schedule
    with pytest.raises(InvalidScheduleError, match="not valid"):
        orsched.solve(instance, initial_schedule=other)
    with pytest.raises(InputError, match="true lengths"):
        orsched.solve(instance, "online", initial_schedule=orsched.solve(instance, "fcfs").schedule)
    with pytest.raises(InputError, match="not a schedule"):
        orsched.solve(instance, initial_schedule="fcfs")


def test_a_wrong_initial_schedule_is_refused_before_the_search(monkeypatch):
    """A search of an hour would else end with the refusal."""
    other = orsched.solve(orsched.load("two-by-two"), "fcfs").schedule
    monkeypatch.setattr("orsched.solving.checked_run._bound_before", None)
    with pytest.raises(InvalidScheduleError, match="not valid"):
        orsched.solve(orsched.load("pang-100x20"), initial_schedule=other, time_limit=3600)


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


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"method": "best"}, "method"),
        ({"method": "fcfs@clairvoyant"}, "information"),
        ({"method": "hybrid", "information": "none"}, "information"),
        ({"objective": "latency"}, "objective"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"time_limit": 0}, "time_limit"),
        ({"time_limit": -1.0}, "time_limit"),
        ({"time_limit": float("nan")}, "time_limit"),
        ({"iterations": 0}, "iterations"),
        ({"method": "fcfs", "parameters": {"x": 1}}, "parameters"),
    ],
)
def test_wrong_arguments_are_refused(arguments, field):
    with pytest.raises(InputError) as caught:
        orsched.solve(orsched.load("two-by-two"), **arguments)
    assert caught.value.field == field


def test_predictions_are_needed_where_they_are_used():
    instance = Instance(Requests([1, 2], [3, 4]), Worker(1), first_token="decode")
    for method in ("hybrid@predicted", "online@predicted", "offline@predicted"):
        with pytest.raises(InputError) as caught:
            orsched.solve(instance, method)
        assert caught.value.field == "predicted_tokens"


def test_simulate_takes_objects_and_paths():
    instance = orsched.load("pang-100x20")
    by_object = orsched.simulate(instance, FirstComeFirstServed())
    by_path = orsched.simulate(instance, "orsched.heuristics.pang:FirstComeFirstServed")
    assert by_object.makespan_ns == by_path.makespan_ns
    assert by_object.makespan_ns == orsched.solve(instance, "fcfs").makespan_ns
    seen = []
    orsched.simulate(instance, FirstComeFirstServed(), observer=lambda v, s: seen.append(s))
    assert len(seen) > 0
    for wrong in ("json:loads", "no_such_module:X", "orsched.data.step:Step", "nonsense"):
        with pytest.raises(InputError):
            orsched.simulate(instance, wrong)


def test_compare_keeps_the_order_and_shares_the_time():
    instance = orsched.load("pang-100x20")
    results = orsched.compare(instance, ["hybrid", "fcfs"], time_limit=600, iterations=2)
    assert [r.schedule.method for r in results] == ["hybrid", "fcfs"]
    frame = results.to_pandas()
    assert frame["checked"].all()
    assert (frame["makespan_s"] >= frame["bound_s"]).all()
    assert "<table" in results._repr_html_()


def test_slo_attainment_is_reported_and_checked():
    instance = orsched.load("pang-100x20")
    result = orsched.solve(instance, "fcfs", slo=SLO(ttft_ns=10**12, tpot_ns=10**12))
    assert result.schedule.results["slo"]["attainment"] == 1.0
    none = orsched.solve(instance, "fcfs", slo=SLO(ttft_ns=0, tpot_ns=0)).schedule.results["slo"]
    assert none["attained"] == 0


def test_schedule_file_of_every_method_round_trips(tmp_path):
    instance = orsched.load("pang-100x20")
    for method in METHODS:
        schedule = orsched.solve(instance, method).schedule
        save_schedule(schedule, tmp_path / "s.json")
        assert load_schedule(tmp_path / "s.json") == schedule
        assert orsched.check(instance, load_schedule(tmp_path / "s.json")) == []


def test_public_names_resolve():
    for name in orsched.__all__:
        assert getattr(orsched, name) is not None
    with pytest.raises(AttributeError):
        orsched.no_such_name  # noqa: B018


def test_a_method_can_be_specified_in_one_word():
    instance = orsched.load("pang-100x20")
    result = orsched.solve(instance, "online@predicted+gate=idle_cost+gate_factor=0.5")
    assert result.information == "predicted"
    assert result.schedule.parameters["gate"] == "idle_cost"
    assert result.schedule.parameters["gate_factor"] == 0.5
    assert result.to_row()["method"] == "online@predicted+gate=idle_cost+gate_factor=0.5"
    assert result.schedule.method == "online"
    for wrong in ("online+gate", "online+=1", "online+gate=a+gate=b"):
        with pytest.raises(InputError) as caught:
            orsched.solve(instance, wrong)
        assert caught.value.field == "method"


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
