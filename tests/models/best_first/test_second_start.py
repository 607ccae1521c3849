"""The while of ``windows`` behind many states: a shorter schedule, and the same optimum."""

from __future__ import annotations

import pytest

import orsched
from orsched.common.errors import InputError
from orsched.instances.synthetic import gsm8k
from orsched.models.best_first import solve_best_first
from orsched.models.best_first.packed import Packed
from orsched.models.best_first.solve import AFTER_STATES, SecondStart
from orsched.models.best_first.states import BestFirst, States
from orsched.models.exact_search.aims import ExactSearch
from orsched.models.exact_search.stage_plan import read_problem, schedule_of

PLACE = "orsched.models.best_first.solve.AFTER_STATES"
"""Changed here, so that small instances come to it."""
NONE = 2**62
FIFTEEN = gsm8k(2, requests=15, clients=3)
NOW = 10.0**7
"""What the clock says where it stands still."""


@pytest.fixture
def asked(monkeypatch):
    """Whether each second start found a shorter schedule."""
    pytest.importorskip("numba")
    answers, better = [], SecondStart.better

    def noted(self):
        answers.append(better(self))
        return answers[-1]

    monkeypatch.setattr(SecondStart, "better", noted)
    return answers


@pytest.mark.full
def test_out_of_time_the_schedule_is_shorter_than_the_first_one(asked, monkeypatch):
    instance = gsm8k(1, requests=30, clients=5)
    first = orsched.solve(instance, "hybrid").makespan_ns
    beaten, beat = [], BestFirst.beat

    def noted(self, best):
        beaten.append((self.best, best))
        beat(self, best)

    monkeypatch.setattr(BestFirst, "beat", noted)
    monkeypatch.setattr(PLACE, 100)
    result = solve_best_first(instance, max_states=20_000)
    assert asked == [True]
    assert result.termination == "too_large"
    assert result.bound_ns <= result.makespan_ns < first
    assert orsched.check(instance, result.schedule) == []
    assert result.history[-1].makespan_ns == result.makespan_ns
    problem = read_problem(instance)
    assert [[problem.to_ns(each) for each in pair] for pair in beaten] == [
        [first, result.makespan_ns]
    ]


@pytest.mark.parametrize("kind", [BestFirst, Packed])
@pytest.mark.parametrize("above", [0, 1])
@pytest.mark.parametrize("seed", [2, 5, 6])
def test_what_was_found_elsewhere_is_beaten_or_proven(kind, above, seed):
    instance = gsm8k(seed, requests=11, clients=3)
    problem = read_problem(instance)
    whole = kind(States(problem), NONE, 0, 10**6)
    assert whole.run(lambda: False, lambda: False) == "finished"
    search = kind(States(problem), NONE, 0, 10**6)
    told = []

    def tell():
        if not told and search.expanded >= whole.expanded // 2:
            told.append(search.expanded)
            search.beat(whole.best + above)
        return False

    assert search.run(tell, lambda: False) == "finished"
    assert told
    assert search.best == search.bound == whole.best
    assert (search.plan() is None) == (above == 0)
    if above:
        found = schedule_of(instance, search.plan(), "best-first")
        assert found.makespan_ns == problem.to_ns(whole.best)
    whole.beat(whole.best - 1)  # the plan is of what was the best
    assert whole.plan() is None


def test_small_searches_short_ones_and_searches_alone_have_none(asked, monkeypatch):
    solve_best_first(FIFTEEN)
    monkeypatch.setattr(PLACE, 10)
    solve_best_first(FIFTEEN, time_limit=4.9)  # too short to begin anew
    solve_best_first(FIFTEEN, alone=True)
    assert asked == []
    solve_best_first(FIFTEEN, time_limit=600)
    assert len(asked) == 1


@pytest.fixture
def _stopped_clock(monkeypatch):
    monkeypatch.setattr("orsched.models.best_first.solve.perf_counter", lambda: NOW)


def begun(ago, limit):
    """A search that began some seconds ago, and its end."""
    begin = NOW - ago
    search = ExactSearch(FIFTEEN, read_problem(FIFTEEN), None, begin, time_limit=limit)
    return SecondStart(search, 0, True)


@pytest.mark.usefixtures("_stopped_clock")
def test_it_is_due_after_many_states_or_a_tenth_of_the_time():
    pytest.importorskip("numba")
    assert begun(5, 60).is_due(AFTER_STATES)
    assert not begun(5, 60).is_due(AFTER_STATES - 1)
    assert begun(6.1, 60).is_due(1)
    assert not begun(10**6, None).is_due(AFTER_STATES - 1)
    assert begun(10**6, None).is_due(AFTER_STATES)
    assert (begun(1, 60).seconds, begun(1, 1000).seconds) == (pytest.approx(3), 5)


def test_what_windows_does_not_take_is_searched_on(asked, monkeypatch):
    """A schedule of windows that is no better, or none, changes nothing."""
    monkeypatch.setattr(PLACE, 1)
    best = solve_best_first(FIFTEEN, alone=True)

    def refuse(*_, **__):
        raise InputError("not that one", field="instance")

    given = orsched.solve(FIFTEEN, "hybrid").schedule
    monkeypatch.setattr("orsched.solving.solver.solve", refuse)
    result = solve_best_first(FIFTEEN, initial_schedule=given)
    assert asked == [False]
    assert (result.status, result.makespan_ns) == ("optimal", best.makespan_ns)


@pytest.mark.full
def test_callbacks_see_its_schedule_and_ctrl_c_in_it_ends_the_search(asked, monkeypatch):
    instance = gsm8k(1, requests=30, clients=5)
    first = orsched.solve(instance, "hybrid").schedule
    monkeypatch.setattr(PLACE, 100)
    calls = []

    def shorter(seen):
        calls.append(seen.makespan_ns)
        return seen.makespan_ns < first.makespan_ns and len(calls) == calls.index(calls[-1]) + 1

    result = solve_best_first(instance, callback=shorter, max_states=10**5)
    assert asked == [True]
    assert calls.count(result.makespan_ns) == 1
    assert result.termination == "stopped"
    assert result.makespan_ns < first.makespan_ns

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("orsched.solving.solver.solve", interrupt)
    result = solve_best_first(instance, initial_schedule=first)
    assert (result.status, result.termination) == ("feasible", "interrupted")


def test_exact_goes_on_from_a_given_schedule():
    """The optimum as the start: nothing shorter, so it is the incumbent from the first report."""
    instance = gsm8k(6, requests=10, clients=3)
    best = solve_best_first(instance).schedule
    assert best.makespan_ns < orsched.solve(instance, "hybrid").makespan_ns
    seen = []
    result = orsched.solve(instance, "exact", initial_schedule=best, callback=seen.append)
    assert result.makespan_ns == seen[0].makespan_ns == best.makespan_ns
    assert result.status == "optimal"
