"""What the checker says, held against the book; runs that were stopped; kinds of workers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import orsched
from orsched.checker import check
from orsched.checker.durations import kinds_of_workers
from orsched.common.errors import InputError
from orsched.costs import AffineCost, ProfiledCost
from orsched.costs.profiled_grid import Grid
from orsched.data.instance import Instance
from orsched.data.schedule import Steps, Work
from orsched.data.workers import Worker
from orsched.instances.synthetic import peers_workload
from orsched.metrics.summary import SLO, summarise
from orsched.metrics.timeline import Timeline
from tests.by_the_book import Book, rule_broken_by
from tests.checker.any_mode import random_schedule
from tests.checker.valid import DICE, column_mutations, row_mutations, with_step, with_work
from tests.in_order import in_order

made = cache(random_schedule)


def agree_on(instance, schedule):
    """Say if a schedule is valid; the checker, the book and the metrics agree on it."""
    rule, found = rule_broken_by(instance, schedule), check(instance, schedule)
    assert (rule is None) == (found == []), (rule, [str(violation) for violation in found])
    if rule is not None:
        return False
    results = summarise(instance, schedule, SLO(ttft_ns=200, tpot_ns=20))
    book = Book(instance, schedule)
    figures = book.figures()
    assert {name: results[name] for name in figures} == figures
    requests = instance.requests
    finish = [book.finish[request] for request in range(len(instance))]
    first = [book.first_token[request] for request in range(len(instance))]
    for name, moments in (("jct_ns", finish), ("ttft_ns", first)):
        waits = np.array(moments) - requests.arrival_ns
        assert results[name]["mean"] == sum(waits.tolist()) / len(waits)
        assert results[name]["max"] == waits.max()
    assert check(instance, schedule.replace(results=results)) == []
    return True


def seen_in(instance, schedule):
    """The modes that a schedule is in."""
    work, steps, workers = schedule.work, schedule.steps, instance.workers
    chunks = Counter(zip(work.request, work.stay, work.phase == 0, strict=True))
    paged = [worker.memory is not None and worker.memory.is_paged for worker in workers]
    return {
        "restart": (work.stay > 0).any(),
        "chunks": any(many > 1 for (*_, prefill), many in chunks.items() if prefill),
        "mixed": (steps.phase == 2).any(),
        "invalid": (work.phase == 2).any(),
        "padding": any(worker.padding for worker in workers),
        "pages": any(paged),
        "workers": len(set(steps.worker.tolist())) > 1,
        "another worker": any(
            len({steps.worker[s] for s in work.first_step[work.request == request]}) > 1
            for request in range(len(instance))
        ),
        instance.first_token: True,
    }


def random_schedules_agree(seeds):
    seen = Counter()
    for seed in seeds:
        instance, schedule = made(seed)
        assert agree_on(instance, schedule), seed
        seen.update(name for name, there in seen_in(instance, schedule).items() if there)
    assert len(seen) == 10
    assert min(seen.values()) > len(seeds) // 25


def test_random_schedules_are_valid():
    """INV-1, INV-2, INV-3, INV-4, INV-5, INV-6, INV-7, INV-15, INV-17, INV-18, INV-19: all hold."""
    random_schedules_agree(range(150))


def test_the_schedules_to_break_are_in_all_modes():
    """Those of the mutation tests."""
    seen = set()
    for seed in DICE:
        seen |= {name for name, there in seen_in(*made(seed, 4)).items() if there}
    assert len(seen) == 10


@pytest.mark.full
def test_many_random_schedules_are_valid():
    random_schedules_agree(range(150, 4000))


def mutations_agree(seeds, limit):
    """Change every field and row of small schedules in turn; return how many stay valid."""
    counts = Counter()
    for seed in seeds:
        instance, schedule = made(seed, 3)
        if len(schedule.steps) > limit:
            continue
        for _, _, make in (
            *column_mutations(schedule, "steps", with_step),
            *column_mutations(schedule, "work", with_work),
            *row_mutations(schedule),
        ):
            try:
                changed = make()
            except InputError:
                continue
            counts[agree_on(instance, changed)] += 1
    return counts


def test_changed_schedules_are_judged_alike():
    """No field of a row can be wrong without a violation."""
    counts = mutations_agree(range(20, 37), 6)
    assert counts[False] > 1000
    assert counts[True] > 3


@pytest.mark.full
def test_many_changed_schedules_are_judged_alike():
    counts = mutations_agree(range(37, 200), 14)
    assert counts[False] > 20_000
    assert counts[True] > 50


def test_schedules_with_two_changes_are_judged_alike():
    """Two changes can make up for each other, as one cannot."""
    dice = np.random.default_rng(0)
    counts = Counter()
    for seed in range(60):
        instance, schedule = made(seed, 4)
        for _ in range(12):
            changed = schedule
            try:
                for _ in range(2):
                    changed = one_change(dice, changed)
            except InputError:
                continue
            counts[agree_on(instance, changed)] += 1
    assert counts[False] > 300
    assert counts[True] > 3


def one_change(dice, schedule):
    """A value of a row becomes another row's, or one more or less."""
    table, change = (
        (schedule.work, with_work) if dice.random() < 0.8 else (schedule.steps, with_step)
    )
    names = list(vars(table))
    name, row = names[dice.integers(len(names))], int(dice.integers(len(table)))
    column = getattr(table, name)
    new = (column[dice.integers(len(table))], column[row] + 1, column[row] - 1)
    return change(schedule, name, row, int(new[dice.integers(3)]))


class Unhashable(AffineCost):
    """Equal to itself alone."""

    __hash__ = None


def profiled():
    axes = {"dense": ((0, 10),), "prefill": ((0, 10), (0,)), "decode": ((0,), (1, 8), (0, 99))}
    names = {
        "dense": ("tokens",),
        "prefill": ("chunk", "context"),
        "decode": ("beside", "batch", "context"),
    }
    tables = {}
    for name, points in axes.items():
        size = int(np.prod([len(axis) for axis in points]))
        tables[name] = Grid(names[name], points, tuple(range(size)))
    return ProfiledCost(fixed_ns=10_000, **tables)


def solved(costs):
    base = peers_workload(80, rate=200.0, seed=3)
    workers = tuple(
        replace(base.worker, cost=cost, clients=8, name=f"worker-{index}")
        for index, cost in enumerate(costs)
    )
    instance = base.replace(workers=workers)
    return instance, orsched.solve(instance, "vllm+dispatch=round_robin").schedule


def test_equal_workers_are_one_kind_and_all_steps_are_in_one():
    first, second = AffineCost(), AffineCost(prefill_fixed_ns=7)
    shared = Unhashable()
    costs = [first, second, AffineCost(), profiled(), shared, profiled(), shared, Unhashable()]
    instance, schedule = solved(costs)
    line = Timeline(instance, schedule)
    kinds = kinds_of_workers(line)
    assert [costs.index(kind.worker.cost) for kind in kinds[:4]] == [0, 1, 3, 4]
    assert len(kinds) == 5
    numbers = [line.worker[kind.steps] for kind in kinds]
    assert [sorted(set(each.tolist())) for each in numbers] == [[0, 2], [1], [3, 5], [4, 6], [7]]
    every = np.concatenate([kind.steps for kind in kinds])
    assert sorted(every.tolist()) == list(range(len(schedule.steps)))
    batches = np.concatenate([kind.batches for kind in kinds])
    assert sorted(batches.tolist()) == list(range(len(line.batches.place)))


def test_limits_clients_and_padding_part_kinds():
    worker = Worker(4)
    others = [
        replace(worker, clients=5),
        replace(worker, prefill_cap_tokens=9),
        replace(worker, padding=True),
    ]
    base = peers_workload(1, seed=1)
    instance = base.replace(workers=(worker, *others, replace(worker, name="like the first")))
    schedule = orsched.solve(base, "fcfs").schedule
    assert len(kinds_of_workers(Timeline(instance, schedule, strict=False))) == 4


def test_a_wrong_time_is_found_on_each_worker_of_a_kind():
    instance, schedule = solved([AffineCost(), profiled(), AffineCost(), profiled()])
    assert orsched.check(instance, schedule) == []
    for row in range(0, len(schedule.steps), 97):
        ends = schedule.steps.end_ns.copy()
        ends[row] += 1
        steps = replace(schedule.steps, end_ns=ends)
        found = orsched.check(instance, replace(schedule, steps=steps, results={}))
        assert (row, int(steps.worker[row])) in [
            (each.step, each.worker) for each in found if each.field == "steps.end_ns"
        ]


STOPPED = {"device": "d", "clock": "c", "complete": False}


def instance(rule="decode"):
    return Instance(
        orsched.Requests([5, 7, 3], [4, 2, 1]),
        orsched.Worker(2, in_order(orsched.costs.AffineCost, 10, 1, 5, 1)),
        first_token=rule,
    )


def trace(problem, rounds=3, prompt=5, **run):
    """Return a run in which request 0 was prefilled and decoded for some rounds."""
    steps = in_order(
        Steps, *(np.array(column) for column in ([0, 0], [0, 1], [0, 20], [20, 50], [1, rounds]))
    )
    work = Work(
        *(
            np.array(column)
            for column in ([0, 0], [0, 0], [0, 1], [0, 1], [0, 1], [prompt, 1], [0, 0])
        )
    )
    return orsched.Schedule(problem.sha256, steps, work, "own", "none", run={**STOPPED, **run})


def kinds(problem, schedule, times="measured"):
    return {each.kind.value for each in orsched.check(problem, schedule, times=times)}


@pytest.mark.parametrize(("rule", "most"), [("decode", 4), ("prefill", 3)])
def test_requests_may_have_yielded_fewer_tokens_but_not_more(rule, most):
    problem = instance(rule)
    for rounds in range(1, most + 1):
        assert kinds(problem, trace(problem, rounds)) == set()
    assert kinds(problem, trace(problem, most + 1)) == {"completeness"}


def test_prefills_are_whole_before_tokens_are_yielded():
    problem = instance()
    assert kinds(problem, trace(problem, prompt=4)) == {"completeness"}


def test_a_run_that_does_not_say_that_it_was_stopped_is_not_complete():
    problem = instance()
    for complete in (True, None, 0, "no"):
        schedule = trace(problem, complete=complete)
        assert not schedule.is_partial
        assert kinds(problem, schedule) == {"completeness"}
    assert trace(problem).is_partial
    assert "completeness" in kinds(problem, trace(problem), times="model")


def test_a_run_that_was_stopped_reports_nothing():
    problem = instance()
    schedule = trace(problem).replace(results={"makespan_ns": 50})
    assert kinds(problem, schedule) == {"result"}
