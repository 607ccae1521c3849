"""The checker against autoscaling: every value of the times changed in turn, and rules broken."""

from __future__ import annotations

from dataclasses import replace

import pytest

import orsched
from orsched.checker import ViolationKind, check
from orsched.data.autoscaling import Autoscaling
from orsched.data.schedule import Steps, Work
from tests.in_order import in_order
from tests.simulator.test_autoscaling import by_hand, scaled
from tests.simulator.test_losses import COST

KIND = ViolationKind.AVAILABILITY


def solved(instance):
    return orsched.simulate(instance, "vllm").schedule


def test_every_value_of_the_times_counts():
    """INV-36: what a schedule says of its workers is what the rule says, and no step is outside."""
    tried = 0
    for seed in range(12):
        instance = scaled(seed)
        schedule = solved(instance)
        rows = [list(row) for row in schedule.on_times]
        for place, row in enumerate(rows):
            for column, value in enumerate(row):
                for new in {0, 1, None, (value or 0) + 1, (value or 1) - 1} - {value}:
                    if new is None and column < 3:
                        continue
                    changed = [list(each) for each in rows]
                    changed[place][column] = new
                    tried += 1
                    assert check(instance, schedule.replace(on_times=changed)) != []
        for place in range(len(rows)):
            fewer = rows[:place] + rows[place + 1 :]
            assert check(instance, schedule.replace(on_times=fewer)) != []
            assert check(instance, schedule.replace(on_times=[*rows, rows[place]])) != []
        assert check(instance, schedule.replace(on_times=rows[::-1])) != [] or len(rows) == 1
    assert tried > 100


@pytest.mark.parametrize(
    "changes",
    [
        {"startup_ns": 31}, {"least": 2}, {"interval_ns": 30}, {"target": 10.0},
        {"target": 5.0, "most": 1},
    ],
)  # fmt: skip
def test_another_rule_is_not_kept(changes):
    """INV-36."""
    instance = by_hand(late=(60, 900))
    schedule = solved(instance).replace(results={}, bound=None)
    other = instance.replace(autoscaling=replace(instance.autoscaling, **changes))
    kinds = {each.kind for each in check(other, schedule.replace(instance_sha256=other.sha256))}
    assert kinds == {KIND}


def free(*times):
    """Two workers whose policy says when they are on; one request a worker."""
    rule = Autoscaling(startup_ns=30, interval_ns=20, cooldown_ns=40, rule="policy")
    workers = tuple(orsched.Worker(2, COST, name=name) for name in "ab")
    requests = orsched.Requests([5, 5], [2, 2], arrival_ns=[0, 150])
    instance = orsched.Instance(requests, workers, autoscaling=rule, first_token="decode")
    steps = in_order(
        Steps, [0, 0, 1, 1], [0, 1, 0, 1], [0, 5, 150, 155], [5, 25, 155, 175], [1, 2, 1, 2]
    )
    work = Work([0, 0, 1, 1], [0] * 4, [0, 1] * 2, [0, 1, 2, 3], [0, 1, 2, 3], [5, 1] * 2)
    schedule = solved(instance.replace(autoscaling=None))
    schedule = schedule.replace(
        instance_sha256=instance.sha256, steps=steps, work=work, results={}, bound=None,
        on_times=[(0, 0, 0, None, None), *times],
    )  # fmt: skip
    return check(instance, schedule)


def test_what_drains_begins_nothing_that_came_later():
    """INV-37: a request that comes at 150 may not begin on a worker that drains from 140 on."""
    assert free((1, 20, 50, None, None)) == []
    assert free((1, 20, 50, 160, 180)) == []
    found = free((1, 20, 50, 140, 180))
    assert [violation.kind for violation in found] == [KIND]
    assert "begins on a worker that drains" in found[0].message


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        ([(1, 20, 60, None, None)], "not at 50 ns"),
        ([(1, 21, 51, None, None)], "not at a look"),
        ([(1, 20, 50, None, 180)], "without having drained"),
        ([(1, 20, 50, 160, 170)], "not there"),
        ([(1, 120, 150, 140, 180)], "soon after a change"),
        ([(1, 20, 50, 60, 100), (1, 80, 110, None, None)], "before it is off"),
        ([(1, 140, 170, None, None)], "not there"),
        ([(2, 20, 50, None, None)], "not at"),
        ([], "not there"),
    ],
)
def test_times_that_cannot_be_are_found(times, problem):
    """INV-36."""
    found = free(*times)
    assert {violation.kind for violation in found} == {KIND}
    assert any(problem in violation.message for violation in found)


def test_times_without_autoscaling_are_found():
    instance = by_hand().replace(autoscaling=None)
    schedule = solved(instance)
    assert check(instance, schedule) == []
    found = check(instance, schedule.replace(on_times=[(0, 0, 0, None, None)]))
    assert [violation.kind for violation in found] == [KIND]
