"""One set of behaviours for both back ends: status, bound, warm start, callbacks, interruption."""

import os
import signal
import threading

import pytest

import orsched
import orsched.models.full_mip.solve as module
from orsched import InputError, InvalidScheduleError, OrschedError, TimeLimitError
from orsched.data.workers import Worker
from orsched.instances.catalog import KNOWN_OPTIMA, generate, load_named
from orsched.models.bounds.bounds import makespan_bound
from orsched.models.exact_search.aims import ExactSearch
from orsched.models.exact_search.stage_plan import plan_of, read_problem
from orsched.models.full_mip import solve_full_mip, solve_windows_mip
from tests.decoding import decoding
from tests.in_order import in_order

BACKENDS = module.BACKENDS
pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def hard(requests=12):
    """A case that neither back end can finish."""
    return generate("gsm8k", seed=0, requests=requests, clients=3)


@pytest.mark.parametrize("name", ["gate", "with-arrivals"])
def test_optimal_where_the_first_schedule_is_not_proven(backend, name):
    instance = load_named(name)
    result = solve_full_mip(instance, backend)
    assert (result.status, result.termination) == ("optimal", "finished")
    assert result.makespan_ns == result.bound_ns == KNOWN_OPTIMA[name].makespan_ns
    assert result.gap == 0
    assert result.start_accepted
    assert orsched.check(instance, result.schedule) == []


@pytest.mark.parametrize("name", KNOWN_OPTIMA)
def test_nothing_is_solved_where_the_heuristic_meets_the_bound(backend, name):
    instance = load_named(name)
    if orsched.solve(instance, "hybrid").status != "optimal":
        return
    result = solve_full_mip(instance, backend)
    assert (result.status, result.makespan_ns) == ("optimal", KNOWN_OPTIMA[name].makespan_ns)
    assert "the first schedule meets the bound" in result.notes


def test_an_unproven_number_of_stages_gives_no_bound(backend):
    """Three stages are the least for five requests on two clients, and cost a round more."""
    instance = load_named("packing")
    result = solve_full_mip(instance, backend, stages=3)
    assert result.status == "optimal_for_K"
    assert result.bound_ns is None
    assert result.gap is None
    assert result.makespan_ns == KNOWN_OPTIMA["packing"].makespan_ns + 10_000_000
    assert result.schedule.steps.phase.tolist().count(0) <= 3
    assert "not known to suffice" in result.stages_reason


def test_too_few_stages_are_infeasible(backend):
    result = solve_full_mip(load_named("packing"), backend, stages=2)
    assert (result.status, result.termination) == ("infeasible", "finished")
    assert result.schedule is None
    assert result.bound_ns is None
    assert result.makespan is None


def test_time_ends_with_incumbent_and_bound(backend):
    instance = hard()
    start = orsched.solve(instance, "hybrid", iterations=1).schedule
    result = solve_full_mip(instance, backend, time_limit=1.5, initial_schedule=start)
    assert (result.status, result.termination) == ("feasible", "time_limit")
    assert result.bound_ns >= makespan_bound(instance).value_ns
    assert result.makespan_ns <= start.makespan_ns
    assert result.gap > 0


def test_time_ends_without_a_schedule_but_with_a_bound(backend, monkeypatch):
    def too_slow(*_, **__):
        raise TimeLimitError("too slow")

    monkeypatch.setattr("orsched.solving.solver.solve", too_slow)
    instance = hard()
    result = solve_full_mip(instance, backend, time_limit=0.01)
    assert (result.status, result.termination) == ("unknown", "time_limit")
    assert result.schedule is None
    # The limit holds for the bound too: a slow machine may not come to the last of its parts.
    full = makespan_bound(instance).value_ns
    assert 0.99 * full <= result.bound_ns <= full


def test_a_given_schedule_is_accepted_and_only_improved(backend):
    instance = load_named("levels")
    first = orsched.solve(instance, "fcfs").schedule
    result = solve_full_mip(instance, backend, initial_schedule=first, alone=True)
    assert result.start_accepted
    assert result.makespan_ns < first.makespan_ns
    assert result.status == "optimal"
    bad = first.replace(instance_sha256="0" * 64)
    with pytest.raises(InvalidScheduleError, match="initial schedule is not valid"):
        solve_full_mip(instance, backend, initial_schedule=bad)


def test_progress_never_gets_worse(backend):
    instance = load_named("packing")
    seen = []
    first = orsched.solve(instance, "fcfs").schedule
    result = solve_full_mip(instance, backend, initial_schedule=first, callback=seen.append)
    makespans, bounds = [p.makespan_ns for p in seen], [p.bound_ns for p in seen]
    assert (makespans[0], makespans[-1]) == (first.makespan_ns, result.makespan_ns)
    assert makespans == sorted(makespans, reverse=True)
    assert bounds == sorted(bounds)
    assert [p.elapsed_s for p in seen] == sorted(p.elapsed_s for p in seen)
    assert bounds[-1] <= KNOWN_OPTIMA["packing"].makespan_ns


@pytest.mark.parametrize("after", [1, 2])
def test_a_callback_can_stop_the_search(backend, after):
    calls = []

    def stop(progress):
        calls.append(progress)
        return len(calls) == after

    given = {"initial_schedule": orsched.solve(hard(), "fcfs").schedule, "alone": True}
    result = solve_full_mip(hard(), backend, callback=stop, **given)
    assert (result.status, result.termination) == ("feasible", "stopped")
    assert len(calls) == after
    last = calls[-1].makespan_ns, calls[-1].bound_ns
    assert (result.makespan_ns, result.bound_ns) == last


def test_ctrl_c_returns_incumbent_and_bound(backend):
    def interrupt(progress):
        if progress.elapsed_s > 0 and not timer:
            timer.append(threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)))
            timer[0].start()

    timer: list[threading.Timer] = []
    instance = hard()
    result = solve_full_mip(instance, backend, callback=interrupt)
    timer[0].join()
    assert (result.status, result.termination) == ("feasible", "interrupted")
    assert result.bound_ns >= makespan_bound(instance).value_ns


def test_a_model_too_large_is_answered_by_heuristic_and_bound(backend):
    instance = load_named("gsm8k-llama65b")
    result = solve_full_mip(instance, backend, time_limit=600)
    assert (result.status, result.termination) == ("feasible", "too_large")
    assert result.size.nonzeros > 10**8
    assert result.bound_ns == makespan_bound(instance).value_ns
    assert result.gap < 0.05
    assert orsched.check(instance, result.schedule) == []


def die(payload, send):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_solver_that_dies_leaves_the_incumbent(backend, monkeypatch):
    monkeypatch.setattr("orsched.models.full_mip.solve.solve_here", die)
    instance = hard()
    result = solve_full_mip(instance, backend)
    assert (result.status, result.termination) == ("feasible", "died")
    assert "SIGKILL" in result.notes[0]
    assert makespan_bound(instance).value_ns <= result.bound_ns <= result.schedule.makespan_ns


HUGE = orsched.LevelsCost(levels=((9, 2**54 + 1),), round_fixed_ns=2)


@pytest.mark.parametrize(("workers", "reason"), [
    (Worker(1, in_order(orsched.BilinearCost, *[1] * 8)), "does not map into Pang's MIP"),
    (Worker(1, in_order(orsched.PoolingCost, *[1] * 5)), "does not map into Pang's MIP"),
    ((Worker(1), Worker(1)), "the instance has 2"),
    (Worker(1, HUGE), "too many for a solver"),
])  # fmt: skip
def test_what_does_not_map_is_refused(backend, workers, reason):
    with pytest.raises(InputError, match=reason):
        solve_full_mip(decoding([1, 2], [3, 4], workers), backend)


def test_a_wrong_objective_is_a_bug(backend):
    instance = load_named("packing")
    problem = read_problem(instance)
    schedule = orsched.solve(instance, "fcfs").schedule
    search = ExactSearch(instance, problem, None, 0.0)
    objective = (schedule.makespan_ns - problem.to_ns(0)) // problem.unit_ns
    search.on_message(("solution", (objective, plan_of(instance, schedule), True)))
    assert search.schedule.makespan_ns == problem.to_ns(objective) == schedule.makespan_ns
    with pytest.raises(OrschedError, match="a bug"):
        search.on_message(("solution", (objective - 1, plan_of(instance, schedule), True)))


def test_the_window_mip_has_the_same_interface_and_an_unknown_back_end_is_named(backend):
    result = solve_windows_mip(load_named("gate"), backend)
    assert (result.status, result.makespan_ns) == ("optimal", KNOWN_OPTIMA["gate"].makespan_ns)
    assert result.start_accepted
    with pytest.raises(InputError, match="'gurobi' is unknown"):
        solve_full_mip(load_named("packing"), "gurobi")


@pytest.mark.parametrize(
    ("method", "what"), [("vllm", "mixed steps"), ("static", "invalid tokens")]
)
def test_a_start_that_is_no_solution_is_passed_over_with_a_note(backend, method, what):
    instance = load_named("gate")
    start = orsched.solve(instance, method).schedule
    with pytest.raises(InputError, match=what):
        plan_of(instance, start)
    result = solve_full_mip(instance, backend, initial_schedule=start)
    assert (result.status, result.makespan_ns) == ("optimal", KNOWN_OPTIMA["gate"].makespan_ns)
    assert "does not go on from the given schedule" in result.notes[0]
    assert what in result.notes[0]


def test_a_start_that_pauses_a_request_is_no_solution(backend):
    """Request 0 rests for one round; rows of other requests cannot make up for it."""

    class Pauses(orsched.Policy):
        name = "pauses"

        def decide(self, view):
            if not view.running:
                return orsched.Step(prefill=[0, 1])
            return orsched.Step(decode=[1] if view.rounds == 1 else None)

    cost = in_order(orsched.AffineCost, 5, 1, 2, 1)
    instance = decoding([1, 1], [3, 3], Worker(2, cost))
    start = orsched.solve(instance, Pauses).schedule
    with pytest.raises(InputError, match="with pauses"):
        plan_of(instance, start)
    result = solve_full_mip(instance, backend, initial_schedule=start)
    assert result.status == "optimal"
    assert result.makespan_ns <= start.makespan_ns
