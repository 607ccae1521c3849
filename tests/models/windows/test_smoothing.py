"""Levels smoothed into a line, and the search that begins with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import orsched
from orsched.common.errors import TimeLimitError
from orsched.costs import AffineCost, LevelsCost
from orsched.instances.synthetic import gsm8k
from orsched.models.windows import method
from orsched.models.windows.stage_prices import smoothed
from orsched.solving.result import Termination
from tests.stops import TimeUp

CAPS = (256, 512, 1024, 2048)


def _levelled(requests=40, clients=8, levels=None, seed=0):
    instance = gsm8k(seed, requests=requests, clients=clients)
    of = AffineCost()
    levels = levels or tuple((cap, of.prefill_ns([cap])) for cap in CAPS)
    cost = LevelsCost(levels=levels, round_fixed_ns=of.round_ns(clients, 0, 0))
    return instance.replace(workers=replace(instance.worker, cost=cost))


def test_the_line_meets_the_levels_and_keeps_rounds_and_cap():
    instance = _levelled()
    cost, line = instance.worker.cost, smoothed(instance).worker.cost
    assert [line.prefill_ns([cap]) for cap in CAPS] == [time for _, time in cost.levels]
    assert line.round_ns(1, 0, 0) == line.round_ns(8, 0, 0) == cost.round_fixed_ns
    assert smoothed(instance).worker.prefill_limit == CAPS[-1]


def test_levels_above_a_cap_do_not_count():
    instance = _levelled()
    capped = instance.replace(workers=replace(instance.worker, prefill_cap_tokens=600))
    line = smoothed(capped).worker
    assert line.prefill_limit == 600
    assert [line.cost.prefill_ns([cap]) for cap in CAPS[:2]] == [
        time for _, time in instance.worker.cost.levels[:2]
    ]


@pytest.mark.parametrize(
    "instance",
    [
        pytest.param(gsm8k(0, requests=9, clients=3), id="affine"),
        pytest.param(_levelled(levels=((2048, 9),)), id="one level"),
        pytest.param(_levelled(levels=((256, 5), (2048, 2000))), id="a line from below 0"),
    ],
)
def test_other_costs_are_not_smoothed(instance):
    assert smoothed(instance) is None


def test_a_search_that_begins_smoothed_ends_with_a_schedule(monkeypatch):
    monkeypatch.setattr(method, "MOST_TO_RESTART", 0)
    instance = _levelled()
    result = orsched.solve(instance, "windows", stop=TimeUp(9, seconds=1.5))
    assert not orsched.check(instance, result.schedule)
    hybrid = orsched.solve(instance, "hybrid")
    assert result.bound <= result.makespan < hybrid.makespan


def test_what_the_smoothed_part_found_is_kept_when_it_is_interrupted(monkeypatch):
    monkeypatch.setattr(method, "MOST_TO_RESTART", 0)
    instance = _levelled()
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
    instance = _levelled()
    result = orsched.solve(instance, "windows", stop=TimeUp(2, seconds=1.0))
    assert not orsched.check(instance, result.schedule)
    assert result.bound <= result.makespan
