"""The best-first search against exhaustive search and the full MIP, and what it says early."""

import random
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given

import orsched
from orsched import AffineCost, InputError, Requests, Worker
from orsched.instances.synthetic import gsm8k
from orsched.models.best_first import solve_best_first
from orsched.models.best_first.packed import Packed
from orsched.models.best_first.solve import AFTER_STATES, SecondStart
from orsched.models.best_first.states import BestFirst, States
from orsched.models.exact_search.aims import ExactSearch
from orsched.models.exact_search.stage_plan import read_problem, schedule_of
from tests.brute_force import optimum_ns
from tests.decoding import decoding
from tests.in_order import in_order
from tests.models.full_mip.small import instances
from tests.seeds import seeds

STAGE_COSTS = (
    in_order(AffineCost, 25, 1, 29, 2),
    in_order(AffineCost, 60, 0, 10, 1),
    in_order(AffineCost, 7, 2, 0, 3),
)


FIFTEEN = gsm8k(2, requests=15, clients=3)
SHORTEST = 46_814_230_000
"""Also without leaving any state out."""


def at_once(instance):
    """The instance with all its requests there from the start, at a moment that is not 0."""
    late = instance.requests.replace(arrival_ns=[17] * len(instance))
    return instance.replace(requests=late)


def plain(seed, most=6, clients=3):
    """An instance of a fixed time of a stage, with many equal lengths."""
    rng = random.Random(seed)
    n = rng.randint(1, most)
    lengths = [rng.choice((1, 2, 3, 5, 5, 8)) for _ in range(n)]
    worker = Worker(rng.randint(1, clients), rng.choice(STAGE_COSTS))
    return decoding([rng.randint(1, 9) for _ in range(n)], lengths, worker)


def optimal(instance):
    """Search to the end, beside exhaustive search; the bound of the start is below it."""
    result, optimum = solve_best_first(instance, alone=True), optimum_ns(instance)
    assert result.status == "optimal"
    assert result.makespan_ns == result.bound_ns == optimum
    assert orsched.check(instance, result.schedule) == []
    problem = read_problem(instance)
    states = States(problem)
    assert problem.to_ns(states.least(states.start, ())) <= optimum


@given(instances())
def test_it_finds_the_optimum_of_exhaustive_search(drawn):
    optimal(at_once(drawn))


@pytest.mark.parametrize("seed", seeds(12, 60))
def test_it_finds_the_optimum_where_a_stage_takes_a_fixed_time(seed):
    instance = plain(seed)
    assert States(read_problem(instance)).is_plain
    optimal(instance)


@cache
def _to_go(states, waiting, active):
    """The least time from a state to the end, over all stages and any number of rounds."""
    if not any(waiting):
        return states.round * states.rounds_left(active)
    ways = []
    for stage in states.stages(waiting, active):
        left = tuple(a - b for a, b in zip(waiting, stage, strict=True))
        then = _to_go(states, left, states.with_stage(active, stage))
        ways.append(states.stage_time(stage) + then)
    if active:
        then = tuple(each - states.base for each in active if each >= 2 * states.base)
        ways.append(states.round + _to_go(states, waiting, then))
    return min(ways)


def _every_stage(instance):
    """States in which a stage need not be full, as in the definition."""
    states = States(read_problem(instance))
    assert states.is_plain

    class Any(States):
        def stages(self, waiting, active):
            self.is_plain = False
            yield from list(super().stages(waiting, active))
            self.is_plain = True

    return Any(read_problem(instance))


@pytest.mark.parametrize("seed", seeds(10, 40))
def test_the_bound_of_every_state_is_below_what_it_takes(seed):
    states, rng = _every_stage(plain(seed)), random.Random(seed)
    for _ in range(20):
        waiting = tuple(rng.randint(0, count) for count in states.start)
        active = tuple(sorted(rng.randint(1, 9) for _ in range(rng.randint(0, states.clients))))
        assert states.least(waiting, active) <= _to_go(states, waiting, active)


def test_fifteen_requests_are_proven_in_seconds_and_callbacks_see_growing_bounds_and_end_it():
    seen = []
    result = solve_best_first(FIFTEEN, time_limit=600, callback=seen.append)
    assert result.status == "optimal"
    assert result.makespan_ns == SHORTEST >= orsched.bound(FIFTEEN).value_ns
    assert len(seen) > 2
    assert seen[-1].bound_ns == seen[-1].makespan_ns
    assert all(a.bound_ns <= b.bound_ns for a, b in pairwise(seen))
    assert all(a.makespan_ns >= b.makespan_ns for a, b in pairwise(seen))
    assert solve_best_first(FIFTEEN, callback=lambda _: True).termination == "stopped"


def test_nothing_left_out_changes_the_optimum(monkeypatch):
    instance = gsm8k(1, requests=14, clients=3)
    monkeypatch.setattr("orsched.models.best_first.solve.fits", lambda _: False)  # plain alone
    first = solve_best_first(instance, alone=True)
    monkeypatch.setattr(BestFirst, "_is_beaten", lambda *_: False)
    second = solve_best_first(instance, alone=True)
    assert first.makespan_ns == second.makespan_ns
    assert first.expanded <= second.expanded
    assert first.left_out > 0


def test_the_same_instance_gives_the_same_search_and_the_order_of_requests_plays_no_part():
    instance = gsm8k(1, requests=12, clients=3)
    one, other = (solve_best_first(instance) for _ in range(2))
    assert one == other
    req = instance.requests
    turned = instance.replace(requests=Requests(req.prompt_tokens[::-1], req.output_tokens[::-1]))
    one, other = (solve_best_first(each, alone=True).makespan_ns for each in (instance, turned))
    assert one == other


@pytest.mark.parametrize("states", [1, 30, 300])
def test_out_of_memory_it_says_what_it_has_proven(states):
    result = solve_best_first(FIFTEEN, max_states=states)
    assert (result.status, result.termination) == ("feasible", "too_large")
    assert f"more than {states} states" in result.notes
    assert orsched.bound(FIFTEEN).value_ns <= result.bound_ns <= SHORTEST <= result.makespan_ns


def test_arrivals_and_too_many_first_stages_are_refused_and_nothing_is_done_at_once():
    with pytest.raises(InputError) as caught:
        solve_best_first(decoding([1, 1], [2, 2], Worker(1), arrival_ns=[0, 5]))
    assert caught.value.field == "requests.arrival_ns"
    result = solve_best_first(orsched.load("pang-100x20"), time_limit=600)
    assert (result.status, result.termination) == ("feasible", "too_large")
    assert result.expanded == 0
    assert solve_best_first(gsm8k(0, requests=1, clients=3)).status == "optimal"
    assert solve_best_first(decoding([], [], Worker(3))).makespan_ns == 0


PLACE = "orsched.models.best_first.solve.AFTER_STATES"
"""Changed here, so that small instances come to it."""
NONE = 2**62
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
    assert (asked, result.termination) == ([True], "too_large")
    assert result.bound_ns <= result.makespan_ns < first
    assert orsched.check(instance, result.schedule) == []
    assert result.history[-1].makespan_ns == result.makespan_ns
    (pair,) = beaten
    assert [read_problem(instance).to_ns(each) for each in pair] == [first, result.makespan_ns]


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
        found = schedule_of(instance, search.plan(), "best-first").makespan_ns
        assert found == problem.to_ns(whole.best)
    whole.beat(whole.best - 1)  # the plan is of what was the best
    assert whole.plan() is None


def test_small_searches_short_ones_and_searches_alone_have_none(asked, monkeypatch):
    solve_best_first(FIFTEEN, max_states=2000)
    monkeypatch.setattr(PLACE, 10)
    solve_best_first(FIFTEEN, time_limit=4.9, max_states=2000)  # too short to begin anew
    solve_best_first(FIFTEEN, alone=True, max_states=2000)
    assert asked == []
    solve_best_first(FIFTEEN, time_limit=600, max_states=2000)
    assert len(asked) == 1


def begun(ago, limit):
    """A search that began some seconds ago, and its end."""
    search = ExactSearch(FIFTEEN, read_problem(FIFTEEN), None, 0.0, time_limit=limit)
    search.clock.left = lambda: search.clock.seconds - ago
    return SecondStart(search, 0, True)


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

    def refuse(*_, **__):
        raise InputError("not that one", field="instance")

    given = orsched.solve(FIFTEEN, "hybrid").schedule
    monkeypatch.setattr("orsched.solving.solver.solve", refuse)
    result = solve_best_first(FIFTEEN, initial_schedule=given)
    assert asked == [False]
    assert (result.status, result.makespan_ns) == ("optimal", SHORTEST)


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
