"""Given schedules as the start of windows: read, continued, never worse."""

from __future__ import annotations

from dataclasses import replace

import pytest

import orsched
from orsched.common.errors import InvalidScheduleError
from orsched.costs import PoolingCost
from orsched.instances.synthetic import gsm8k
from orsched.models.windows import method as windows_method
from orsched.models.windows.method import NEAR_GAP, given_start
from orsched.models.windows.stage_prices import terms_of
from orsched.models.windows.state_changes import state_of
from tests.in_order import in_order


def _case(seed=1):
    return gsm8k(seed, requests=40, clients=10)


def test_a_search_goes_on_from_a_schedule_near_the_bound(monkeypatch):
    """It starts there, without the heuristic, and each part of the way is no worse."""
    instance = _case()
    monkeypatch.setattr(windows_method, "NEAR_GAP", 1.0)
    best = orsched.solve(instance, "windows", iterations=6)
    monkeypatch.setattr(windows_method.WindowsMethod, "_warm_start", None)
    for seed in range(3):
        seen: list[int] = []
        again = orsched.solve(
            instance,
            "windows",
            iterations=6,
            seed=seed,
            initial_schedule=best.schedule,
            callback=lambda progress, seen=seen: seen.append(progress.makespan_ns),
        )
        assert seen[0] == best.makespan_ns
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


def test_schedules_in_chunks_have_no_stages_to_start_from():
    """They are valid, and the result is no worse; the search itself starts from the heuristic."""
    instance = _case(3)
    chunks = orsched.solve(instance, "vllm").schedule
    assert given_start(instance, chunks, "windows") is None
    result = orsched.solve(instance, "windows", iterations=2, initial_schedule=chunks)
    assert result.makespan_ns <= chunks.makespan_ns


def test_schedules_of_other_instances_are_refused():
    other = orsched.solve(_case(4), "fcfs").schedule
    with pytest.raises(InvalidScheduleError, match="initial schedule"):
        orsched.solve(_case(5), "windows", iterations=1, initial_schedule=other)


def test_costs_that_do_not_split_go_on_too(monkeypatch):
    """The plan is carried over to the affine cost beside, and searched on from there."""
    monkeypatch.setattr(windows_method, "NEAR_GAP", 10.0)
    instance, cost = _case(6), in_order(PoolingCost, 9_000, 20_000, 300_000, 1_000, 5_000_000)
    instance = instance.replace(workers=replace(instance.worker, cost=cost))
    first = orsched.solve(instance, "windows", iterations=3)
    again = orsched.solve(instance, "windows", iterations=3, initial_schedule=first.schedule)
    assert again.makespan_ns <= first.makespan_ns
