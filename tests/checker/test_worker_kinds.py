"""Workers that are priced alike are priced together, with the same findings."""

from dataclasses import replace

import numpy as np

import orsched
from orsched.checker.durations import kinds_of_workers
from orsched.costs import AffineCost, ProfiledCost
from orsched.costs.profiled_grid import Grid
from orsched.data.workers import Worker
from orsched.instances.synthetic import peers_workload
from orsched.metrics.timeline import Timeline


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
