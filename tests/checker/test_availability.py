"""Workers that come and go: failures, repairs and autoscaling, kept and broken."""

import random
from dataclasses import replace

import numpy as np
import pytest

import orsched
from orsched import Autoscaling, InputError, Steps, Work
from orsched.checker import ViolationKind, check
from tests.checker.valid import with_work
from tests.in_order import in_order
from tests.simulator.losses import losing, steady
from tests.simulator.test_losses import COST, alone, by_hand, scaled

KIND = ViolationKind.AVAILABILITY


def example():
    """One worker that fails at 32 and is back at 50, and its schedule."""
    instance = alone([(0, 32), (50, None)])
    schedule = solved(instance)
    assert check(instance, schedule) == []
    return instance, schedule


def solved(instance):
    return orsched.simulate(instance, "vllm").schedule


def found(instance, schedule):
    """Kinds of violations where the instance is another one, and nothing is reported."""
    bare = schedule.replace(instance_sha256=instance.sha256, results={}, bound=None)
    return {violation.kind for violation in check(instance, bare)}


def moved(instance, *times):
    worker = replace(instance.workers[0], available_ns=times)
    return instance.replace(workers=(worker, *instance.workers[1:]))


@pytest.mark.parametrize("times", [
    [(0, 24), (50, None)],  # in the midst of a run of rounds
    [(0, 32), (51, None)],  # the first step after the repair comes too early
    [(1, 32), (50, None)],  # the first step of all does
    [(0, 32), (50, 136)],  # the last step comes too late
    [(0, 32)],
    [(0, 2), (3, 32), (50, None)],  # within a stage
    [(50, None)],
])  # fmt: skip
def test_a_step_while_the_worker_is_away_is_found(times):
    """INV-29."""
    instance, schedule = example()
    assert KIND in found(moved(instance, *times), schedule)


def test_a_cache_that_outlives_a_failure_is_found():
    """INV-30: a failure between two steps of a stay, which no step is cut by."""
    instance, schedule = example()
    steps = in_order(Steps, [0, 0, 0], [0, 1, 1], [0, 5, 50], [5, 25, 130], [1, 2, 8])
    work = Work([0, 0], [0, 0], [0, 1], [0, 1], [0, 2], [5, 1])
    kept = schedule.replace(steps=steps, work=work, lost_steps=())
    assert found(instance, kept) == {KIND}
    assert found(steady(instance), kept) == set()


def test_too_little_computed_anew_is_found():
    """INV-30: the caches are gone, so that prompt and tokens are all due."""
    instance, schedule = example()
    forged = with_work(schedule, "tokens", 2, 5)
    assert ViolationKind.COMPLETENESS in found(instance, forged)


@pytest.mark.parametrize("lost", [
    [(0, 24, 32)],  # the last step ends at 25
    [(0, 25, 31)],  # no failure
    [(0, 25, 50)],
    [(0, 32, 32)],  # no time
    [(0, 25, 32), (0, 26, 32)],  # two at one failure
    [(0, 40, 60)],
    [(1, 25, 32)],  # no such worker
    [(0, 33, 32)],
])  # fmt: skip
def test_a_lost_step_that_cannot_be_is_found(lost):
    """INV-31."""
    instance, schedule = example()
    assert found(instance, schedule.replace(lost_steps=lost)) == {KIND}


def test_lost_steps_are_in_order():
    each = ((instance, solved(instance)) for instance in map(losing, range(20)))
    instance, schedule = next(pair for pair in each if len(pair[1].lost_steps) > 1)
    assert found(instance, schedule) == set()
    assert KIND in found(instance, schedule.replace(lost_steps=schedule.lost_steps[::-1]))


def test_a_wrong_figure_of_the_fleet_is_found():
    instance, schedule = example()
    for name, value in schedule.results["fleet"].items():
        fleet = {**schedule.results["fleet"], name: value + 1}
        forged = schedule.replace(results={**schedule.results, "fleet": fleet})
        assert {each.kind for each in check(instance, forged)} == {ViolationKind.RESULT}
    bare = {name: value for name, value in schedule.results.items() if name != "fleet"}
    assert check(instance, schedule.replace(results=bare)) != []
    assert check(instance, schedule.replace(lost_steps=())) != []


def literally(instance, schedule):
    """Whether every round of every step, and every stay, is within one time of its worker."""
    steps, work = schedule.steps, schedule.work
    of_step = []
    for worker, start, end in zip(steps.worker, steps.start_ns, steps.end_ns, strict=True):
        times = instance.workers[worker].available_ns or ((0, None),)
        within = [low <= start and (high is None or end <= high) for low, high in times]
        fits = [number for number, fit in enumerate(within) if fit]
        if not fits:
            return False
        of_step.append((worker, fits[-1]))
    stays = {}
    rows = zip(work.request, work.stay, work.first_step, work.last_step, strict=True)
    for request, stay, first, last in rows:
        stays.setdefault((request, stay), set()).update((of_step[first], of_step[last]))
    return all(len(places) == 1 for places in stays.values())


def test_checker_and_literal_reading_agree_on_random_times():
    """INV-29, INV-30: times are moved at random below schedules; both say which still hold."""
    rng = random.Random(5)
    verdicts = []
    for seed in range(10):
        instance = losing(seed)
        schedule = solved(instance).replace(lost_steps=())
        borders = np.unique([*schedule.steps.start_ns, *schedule.steps.end_ns]).tolist()
        for _ in range(12):
            workers = list(instance.workers)
            index = rng.randrange(len(workers))
            cuts = sorted(rng.sample(borders, min(len(borders), 3)))
            times = [each + rng.choice((0, 0, 1)) for each in cuts]
            if len({*times}) < 3:
                continue
            there = ((0, times[0] + 1), (times[0] + 2 + times[1], None))
            if rng.random() < 0.5:
                shift = rng.choice((-1, 0, 1))
                given = instance.workers[index].available_ns
                ends = [None if high is None else high + shift for _, high in given]
                there = tuple(zip([max(0, low + shift) for low, _ in given], ends, strict=True))
            workers[index] = replace(workers[index], available_ns=there)
            other = instance.replace(workers=tuple(workers))
            right = literally(other, schedule)
            verdicts.append(right)
            assert (found(other, schedule) == set()) == right
    assert 4 < sum(verdicts) < len(verdicts) - 4


@pytest.mark.parametrize(("times", "problem"), [
    ([(5, 5)], "not after its start"), ([(0, 5), (5, 9)], "not after 5"),
    ([(0, None), (5, 9)], "without an end"), ([(0, 1, 2)], "not an interval"),
    ([(-1, 2)], "-1"), ([(0.5, 2)], "0.5"), ("always", "not a list"), ([5], "not an interval"),
])  # fmt: skip
def test_times_that_cannot_be_are_refused(times, problem):
    with pytest.raises(InputError, match=problem) as caught:
        orsched.Worker(4, COST, available_ns=times)
    assert caught.value.field == "available_ns"


def test_files_hold_times_and_lost_steps(tmp_path):
    instance, schedule = example()
    for name in ("a.json", "a.parquet"):
        orsched.save_instance(instance, tmp_path / name)
        assert orsched.load(str(tmp_path / name)) == instance
        orsched.save_schedule(schedule, tmp_path / f"s-{name}")
        read = orsched.load_schedule(tmp_path / f"s-{name}")
        assert read.lost_steps == schedule.lost_steps
        assert check(instance, read) == []
    assert "available_ns" not in steady(instance).workers[0].to_dict()


def test_every_value_of_the_times_counts():
    """INV-36: what a schedule says of its workers is what the rule says, and no step is outside."""
    tried = 0
    for seed in range(5):
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
    assert tried > 40


@pytest.mark.parametrize("changes", [
    {"startup_ns": 31}, {"least": 2}, {"interval_ns": 30}, {"target": 10.0},
    {"target": 5.0, "most": 1},
])  # fmt: skip
def test_another_rule_is_not_kept(changes):
    """INV-36."""
    instance = by_hand(late=(60, 900))
    other = instance.replace(autoscaling=replace(instance.autoscaling, **changes))
    assert found(other, solved(instance)) == {KIND}


def free(*times):
    """Two workers whose policy says when they are on; one request a worker."""
    rule = Autoscaling(startup_ns=30, interval_ns=20, cooldown_ns=40, rule="policy")
    workers = tuple(orsched.Worker(2, COST, name=name) for name in "ab")
    requests = orsched.Requests([5, 5], [2, 2], arrival_ns=[0, 150])
    instance = orsched.Instance(requests, workers, autoscaling=rule, first_token="decode")
    begun, ended = [0, 5, 150, 155], [5, 25, 155, 175]
    steps = in_order(Steps, [0, 0, 1, 1], [0, 1] * 2, begun, ended, [1, 2] * 2)
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


@pytest.mark.parametrize(("times", "problem"), [
    ([(1, 20, 60, None, None)], "not at 50 ns"), ([(1, 21, 51, None, None)], "not at a look"),
    ([(1, 20, 50, None, 180)], "without having drained"),
    ([(1, 20, 50, 160, 170)], "not there"), ([(1, 120, 150, 140, 180)], "soon after a change"),
    ([(1, 20, 50, 60, 100), (1, 80, 110, None, None)], "before it is off"),
    ([(1, 140, 170, None, None)], "not there"), ([(2, 20, 50, None, None)], "not at"),
    ([], "not there"),
])  # fmt: skip
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
