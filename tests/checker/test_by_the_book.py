"""What the checker says, held against the book; runs that were stopped; kinds of workers."""

import math
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import orsched
from orsched import AffineCost, InputError, Instance, ProfiledCost, Steps, Work, Worker, check
from orsched.checker.durations import kinds_of_workers
from orsched.costs.profiled import GRIDS
from orsched.costs.profiled_grid import Grid
from orsched.instances.synthetic import peers_workload
from orsched.metrics.summary import SLO, summarise
from orsched.metrics.timeline import Timeline
from tests.by_the_book import Book, rule_broken_by
from tests.checker.any_mode import random_schedule
from tests.checker.valid import DICE, possible, table_mutations, with_value
from tests.costs.test_exact import Unhashable
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
    on = [set(steps.worker[work.first_step[work.request == r]]) for r in range(len(instance))]
    return {
        "restart": (work.stay > 0).any(),
        "chunks": any(many > 1 for (*_, prefill), many in chunks.items() if prefill),
        "mixed": (steps.phase == 2).any(), "invalid": (work.phase == 2).any(),
        "padding": any(worker.padding for worker in workers), "pages": any(paged),
        "workers": len(set(steps.worker.tolist())) > 1,
        "another worker": any(len(workers) > 1 for workers in on),
        instance.first_token: True,
    }  # fmt: skip


MANY = pytest.param(range(150, 4000), marks=pytest.mark.full)


@pytest.mark.parametrize("seeds", [range(150), MANY])
def test_random_schedules_are_valid(seeds):
    """INV-1, INV-2, INV-3, INV-4, INV-5, INV-6, INV-7, INV-15, INV-17, INV-18, INV-19: all hold."""
    seen = Counter()
    for seed in seeds:
        instance, schedule = made(seed)
        assert agree_on(instance, schedule), seed
        seen.update(name for name, there in seen_in(instance, schedule).items() if there)
    assert len(seen) == 10
    assert min(seen.values()) > len(seeds) // 25


def test_the_schedules_to_break_are_in_all_modes():
    """Those of the mutation tests."""
    seen = set()
    for seed in DICE:
        seen |= {name for name, there in seen_in(*made(seed, 4)).items() if there}
    assert len(seen) == 10


@pytest.mark.parametrize(("seeds", "steps", "least"), [
    (range(20, 37), 6, (1000, 3)),
    pytest.param(range(37, 200), 14, (20_000, 50), marks=pytest.mark.full),
])  # fmt: skip
def test_changed_schedules_are_judged_alike(seeds, steps, least):
    """No field or row of small schedules can be wrong without a violation."""
    counts = Counter()
    for seed in seeds:
        instance, schedule = made(seed, 3)
        if len(schedule.steps) > steps:
            continue
        for _, _, changed in possible(table_mutations(schedule)):
            counts[agree_on(instance, changed)] += 1
    assert counts[False] > least[0]
    assert counts[True] > least[1]


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
    name = "work" if dice.random() < 0.8 else "steps"
    table = getattr(schedule, name)
    names = list(vars(table))
    field, row = names[dice.integers(len(names))], int(dice.integers(len(table)))
    column = getattr(table, field)
    new = (column[dice.integers(len(table))], column[row] + 1, column[row] - 1)
    return with_value(schedule, name, field, row, int(new[dice.integers(3)]))


def profiled():
    axes = {"dense": ((0, 10),), "prefill": ((0, 10), (0,)), "decode": ((0,), (1, 8), (0, 99))}
    sizes = {name: math.prod(map(len, points)) for name, points in axes.items()}
    tables = {name: Grid(GRIDS[name], axes[name], tuple(range(sizes[name]))) for name in axes}
    return ProfiledCost(fixed_ns=10_000, **tables)


def solved(costs):
    base = peers_workload(80, rate=200.0, seed=3)
    worker, numbered = replace(base.worker, clients=8), enumerate(costs)
    workers = tuple(replace(worker, cost=cost, name=f"worker-{k}") for k, cost in numbered)
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
    others = ({"clients": 5}, {"prefill_cap_tokens": 9}, {"padding": True}, {"name": "like it"})
    base = peers_workload(1, seed=1)
    instance = base.replace(workers=(worker, *(replace(worker, **other) for other in others)))
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
        places = [(each.step, each.worker) for each in found if each.field == "steps.end_ns"]
        assert (row, int(steps.worker[row])) in places


STOPPED = {"device": "d", "clock": "c", "complete": False}


def instance(rule="decode"):
    worker = orsched.Worker(2, in_order(AffineCost, 10, 1, 5, 1))
    return Instance(orsched.Requests([5, 7, 3], [4, 2, 1]), worker, first_token=rule)


def trace(problem, rounds=3, prompt=5, **run):
    """Return a run in which request 0 was prefilled and decoded for some rounds."""
    steps = in_order(Steps, [0, 0], [0, 1], [0, 20], [20, 50], [1, rounds])
    work = Work([0, 0], [0, 0], [0, 1], [0, 1], [0, 1], [prompt, 1], [0, 0])
    return orsched.Schedule(problem.sha256, steps, work, "own", "none", run={**STOPPED, **run})


def kinds(problem, schedule, times="measured"):
    return {each.kind.value for each in orsched.check(problem, schedule, times=times)}


@pytest.mark.parametrize(("rule", "most"), [("decode", 4), ("prefill", 3)])
def test_requests_may_have_yielded_fewer_tokens_but_not_more(rule, most):
    problem = instance(rule)
    for rounds in range(1, most + 1):
        assert kinds(problem, trace(problem, rounds)) == set()
    assert kinds(problem, trace(problem, most + 1)) == {"completeness"}


def test_prefills_are_whole_before_tokens_are_yielded_and_what_was_stopped_reports_nothing():
    problem = instance()
    assert kinds(problem, trace(problem, prompt=4)) == {"completeness"}
    schedule = trace(problem).replace(results={"makespan_ns": 50})
    assert kinds(problem, schedule) == {"result"}


def test_a_run_that_does_not_say_that_it_was_stopped_is_not_complete():
    problem = instance()
    for complete in (True, None, 0, "no"):
        schedule = trace(problem, complete=complete)
        assert not schedule.is_partial
        assert kinds(problem, schedule) == {"completeness"}
    assert trace(problem).is_partial
    assert "completeness" in kinds(problem, trace(problem), times="model")
