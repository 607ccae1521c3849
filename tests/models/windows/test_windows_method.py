"""Given schedules as the start of windows: read, continued, never worse."""

import math
from dataclasses import replace
from functools import partial

import pytest

import orsched
from orsched import Information, MaxIterations, MaxRuntime, Termination
from orsched.common.errors import InvalidScheduleError, TimeLimitError
from orsched.common.registry import resolve
from orsched.costs import AffineCost, PoolingCost
from orsched.instances.synthetic import gsm8k
from orsched.models.bounds.bounds import makespan_bound
from orsched.models.windows import method
from orsched.models.windows.method import NEAR_GAP, SHORT_S, WINDOWS, _Follower, given_start
from orsched.models.windows.stage_prices import smoothed, terms_of
from orsched.models.windows.state_changes import state_of
from orsched.models.windows.window_state import compiled
from orsched.solving.methods import Run
from tests.in_order import in_order
from tests.models.windows.test_windows import CAPS, levelled, with_cost
from tests.stops import TimeUp


def _case(seed=1):
    return gsm8k(seed, requests=40, clients=10)


def _on_levels(levels=None):
    return levelled(gsm8k(0, requests=40, clients=8), levels)


def test_a_search_goes_on_from_a_schedule_near_the_bound(monkeypatch):
    """It starts there, without the heuristic, and each part of the way is no worse."""
    instance = _case()
    monkeypatch.setattr(method, "NEAR_GAP", 1.0)
    best = orsched.solve(instance, "windows", iterations=6)
    monkeypatch.setattr(method.WindowsMethod, "_warm_start", None)
    for seed in range(3):
        seen, given = [], {"seed": seed, "initial_schedule": best.schedule}
        again = orsched.solve(instance, "windows", iterations=6, callback=seen.append, **given)
        assert seen[0].makespan_ns == best.makespan_ns
        assert again.makespan_ns <= best.makespan_ns
        assert again.schedule.method == "windows"
        assert not orsched.check(instance, again.schedule)
        best = again


def test_far_from_the_bound_the_heuristic_starts_too():
    """Of a schedule of first come first served little is kept; the result is as without it."""
    instance = _case()
    slow = orsched.solve(instance, "fcfs")
    assert slow.gap > NEAR_GAP
    alone = orsched.solve(instance, "windows", iterations=3)
    given = orsched.solve(instance, "windows", iterations=3, initial_schedule=slow.schedule)
    assert given.makespan_ns == alone.makespan_ns < slow.makespan_ns


def test_the_state_is_read_out_of_the_schedule():
    """The plan of a schedule has its stages and rounds; in its state nothing is missing."""
    instance = _case(2)
    found = orsched.solve(instance, "windows", iterations=4)
    outcome, plan = given_start(instance, found.schedule, "windows")
    assert outcome.schedule.makespan_ns == found.makespan_ns
    assert sum(plan.rounds) == found.schedule.results["decode_rounds"]
    state = state_of(instance, found.schedule, terms_of(instance))
    assert state.missing == 0
    assert state.end == sum(plan.rounds)
    assert len(state.paths()) <= 10


def test_schedules_in_chunks_have_no_stages_to_start_from_and_those_of_others_are_refused():
    """They are valid, and the result is no worse; the search itself starts from the heuristic."""
    instance = _case(3)
    chunks = orsched.solve(instance, "vllm").schedule
    assert given_start(instance, chunks, "windows") is None
    result = orsched.solve(instance, "windows", iterations=2, initial_schedule=chunks)
    assert result.makespan_ns <= chunks.makespan_ns
    with pytest.raises(InvalidScheduleError, match="initial schedule"):
        orsched.solve(_case(5), "windows", iterations=1, initial_schedule=chunks)


def test_costs_that_do_not_split_go_on_too(monkeypatch):
    """The plan is carried over to the affine cost beside, and searched on from there."""
    monkeypatch.setattr(method, "NEAR_GAP", 10.0)
    instance, cost = _case(6), in_order(PoolingCost, 9_000, 20_000, 300_000, 1_000, 5_000_000)
    instance = with_cost(instance, cost)
    first = orsched.solve(instance, "windows", iterations=3)
    again = orsched.solve(instance, "windows", iterations=3, initial_schedule=first.schedule)
    assert again.makespan_ns <= first.makespan_ns


def test_the_line_meets_the_levels_and_keeps_rounds_and_cap():
    instance = _on_levels()
    cost, line = instance.worker.cost, smoothed(instance).worker.cost
    assert [line.prefill_ns([cap]) for cap, _ in cost.levels] == [time for _, time in cost.levels]
    assert line.round_ns(1, 0, 0) == line.round_ns(8, 0, 0) == cost.round_fixed_ns
    assert smoothed(instance).worker.prefill_limit == CAPS[-1]
    # Levels above a cap do not count.
    capped = instance.replace(workers=replace(instance.worker, prefill_cap_tokens=600))
    line = smoothed(capped).worker
    assert line.prefill_limit == 600
    assert all(line.cost.prefill_ns([cap]) == time for cap, time in cost.levels[:2])


@pytest.mark.parametrize("instance", [
    pytest.param(gsm8k(0, requests=9, clients=3), id="affine"),
    pytest.param(_on_levels(((2048, 9),)), id="one level"),
    pytest.param(_on_levels(((256, 5), (2048, 2000))), id="a line from below 0"),
])  # fmt: skip
def test_other_costs_are_not_smoothed(instance):
    assert smoothed(instance) is None


def test_a_search_that_begins_smoothed_ends_with_a_schedule(monkeypatch):
    monkeypatch.setattr(method, "MOST_TO_RESTART", 0)
    instance = _on_levels()
    result = orsched.solve(instance, "windows", stop=TimeUp(9, seconds=1.5))
    assert not orsched.check(instance, result.schedule)
    hybrid = orsched.solve(instance, "hybrid")
    assert result.bound <= result.makespan < hybrid.makespan


def test_what_the_smoothed_part_found_is_kept_when_it_is_interrupted(monkeypatch):
    monkeypatch.setattr(method, "MOST_TO_RESTART", 0)
    instance = _on_levels()
    start = None

    def interrupt(progress):
        nonlocal start
        start = start or progress.makespan_ns
        if progress.improved and progress.iteration > 0:
            raise KeyboardInterrupt

    result = orsched.solve(instance, "windows+threads=1", time_limit=100, callback=interrupt)
    assert result.termination is Termination.INTERRUPTED
    assert not orsched.check(instance, result.schedule)
    assert result.schedule.makespan_ns < start


def test_no_time_for_a_smoothed_start_leaves_the_other_one(monkeypatch):
    warm_start = method.WindowsMethod._warm_start

    def late(self, instance, run):
        if isinstance(instance.worker.cost, AffineCost):
            raise TimeLimitError("hybrid: no time")
        return warm_start(self, instance, run)

    monkeypatch.setattr(method.WindowsMethod, "_warm_start", late)
    instance = _on_levels()
    result = orsched.solve(instance, "windows", stop=TimeUp(2, seconds=1.0))
    assert not orsched.check(instance, result.schedule)
    assert result.bound <= result.makespan


@pytest.fixture(autouse=True)
def _stopped_clock(monkeypatch):
    monkeypatch.setattr("orsched.common.stop.perf_counter", lambda: 0.0)


def _searches(seconds, requests):
    instance = gsm8k(0, requests=requests, clients=4)
    stop = MaxRuntime(seconds)
    stop.start()
    lower = makespan_bound(instance).value_ns
    run = partial(Run, Information.CLAIRVOYANT, bound_ns=lower)
    start = resolve("methods", "hybrid")(instance, run(stop=MaxIterations(1)))
    follower = _Follower(instance, start, "windows")
    found = list(WINDOWS._searches(follower, run(stop=stop, begin=0.0), 1, compiled()))
    return [(search.run.stop.seconds_left, search.run.seed) for search, _ in found]


@pytest.mark.parametrize("requests", [12, method.MOST_TO_RESTART + 1])
def test_a_long_search_begins_with_all_of_a_short_one(requests):
    short, long = _searches(SHORT_S, requests), _searches(6 * SHORT_S, requests)
    assert long[: len(short)] == short
    assert long[-1][0] == 6 * SHORT_S
    assert len(long) == 2 * len(short)
    assert len(_searches(math.inf, requests)) == 1
