"""Under levels the search begins as if stages took affine times."""

from __future__ import annotations

from dataclasses import replace

import orsched
from orsched.costs import AffineCost, LevelsCost
from orsched.instances.gsm8k import gsm8k
from orsched.models.windows.method import _affine

LEVELS = LevelsCost(((256, 58_280_000), (512, 91_560_000), (2048, 291_240_000)), 33_200_000)


def test_the_line_through_the_levels():
    """A full stage of the smallest level costs what it did, and half of that level's tokens."""
    line = _affine(LEVELS)
    assert line == AffineCost(41_640_000, 130_000, 33_200_000, 0)
    for cap, time in LEVELS.levels:
        assert line.prefill_ns([cap]) == time + 128 * 130_000


def test_a_limited_search_under_levels_is_no_worse_than_its_start():
    instance = gsm8k(1, requests=30, clients=6)
    instance = instance.replace(workers=replace(instance.worker, cost=LEVELS))
    start = orsched.solve(instance, "hybrid", iterations=18)
    result = orsched.solve(instance, "windows", time_limit=2.0)
    assert result.checked
    assert result.makespan_ns <= start.makespan_ns
    assert result.schedule.bound["value_ns"] <= result.makespan_ns
