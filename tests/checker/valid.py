"""Valid schedules to break, and ways to break them."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np

from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.schedule import Schedule, Steps, Work
from orsched.data.workers import Worker
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.metrics.summary import SLO, summarise
from orsched.models.bounds.bounds import makespan_bound
from orsched.simulator import simulate_policy
from tests.checker.any_mode import random_schedule
from tests.in_order import in_order
from tests.simulator.instances import ContextCost

COST = in_order(AffineCost, 30, 2, 17, 5)
SLOW = SLO(ttft_ns=10**6, tpot_ns=10**3)
DICE = (473, 500)
"""Seeds of small schedules that are in all modes between them."""


def random_requests(n=10, seed=0, latest=0):
    random = np.random.default_rng(seed)
    columns = random.integers(1, 9, (3, n))
    return Requests(
        columns[0],
        columns[1],
        arrival_ns=random.integers(0, latest + 1, n),
        predicted_tokens=columns[2],
    )


def run(instance, policy=FirstComeFirstServed, slo=SLOW):
    """Return a schedule with everything in it that can be reported."""
    schedule = simulate_policy(instance, policy()).schedule
    if len(instance.workers) == 1:
        schedule = schedule.replace(bound=makespan_bound(instance).to_dict())
    schedule = schedule.replace(parameters={"window": 3}, run={"runtime_s": 0.5})
    return schedule.replace(results=summarise(instance, schedule, slo))


def two_workers():
    """Two schedules of one worker each, side by side."""
    halves = [
        Instance(random_requests(5, seed), Worker(2, COST), first_token="decode") for seed in (1, 2)
    ]
    schedules = [simulate_policy(half, FirstComeFirstServed()).schedule for half in halves]
    steps = {
        f.name: np.concatenate([getattr(s.steps, f.name) for s in schedules]) for f in fields(Steps)
    }
    lengths = [len(s.steps) for s in schedules]
    steps["worker"] = np.repeat([0, 1], lengths)
    order = np.lexsort((steps["worker"], steps["start_ns"]))
    place = np.argsort(order)
    work = {
        f.name: np.concatenate([getattr(s.work, f.name) for s in schedules]) for f in fields(Work)
    }
    second = np.repeat([0, 1], [len(s.work) for s in schedules])
    work["request"] = work["request"] + 5 * second
    for name in ("first_step", "last_step"):
        work[name] = place[work[name] + lengths[0] * second]
    a, b = (half.requests for half in halves)
    joined = {c: np.concatenate([getattr(r, c) for r in (a, b)]) for c in COLUMNS}
    instance = Instance(
        Requests(**joined),
        (Worker(2, COST), Worker(2, COST, name="worker-1")),
        first_token="decode",
    )
    schedule = Schedule(
        instance.sha256,
        Steps(**{name: column[order] for name, column in steps.items()}),
        Work(**work),
        method="by hand",
        information="none",
    )
    return instance, schedule.replace(results=summarise(instance, schedule, SLOW))


COLUMNS = ("prompt_tokens", "output_tokens", "arrival_ns", "predicted_tokens")


def valid_schedules():
    """Name -> (instance, valid schedule): rules, arrivals, limits, contexts, workers, modes."""
    instances = {
        "plain": Instance(random_requests(), Worker(3, COST), first_token="decode"),
        "first-token-prefill": Instance(
            random_requests(12), Worker(3, COST), first_token="prefill"
        ),
        "arrivals": Instance(
            random_requests(latest=1500, seed=3), Worker(3, COST), first_token="decode"
        ),
        "limits": Instance(
            random_requests(seed=4),
            Worker(4, COST, 11, BlockMemory(9, 4, "whole")),
            first_token="decode",
        ),
        "contexts": Instance(
            random_requests(seed=5, latest=400), Worker(3, ContextCost()), first_token="decode"
        ),
    }
    made = {name: (instance, run(instance)) for name, instance in instances.items()}
    made |= {"two-workers": two_workers()}
    return made | {f"dice-{seed}": reported(*random_schedule(seed, 4)) for seed in DICE}


def reported(instance, schedule):
    """Return a schedule with everything in it that can be reported but a bound."""
    schedule = schedule.replace(parameters={"window": 3}, run={"runtime_s": 0.5})
    return instance, schedule.replace(results=summarise(instance, schedule, SLOW))


def with_step(schedule, column, row, value):
    """Return the schedule with one value of its steps changed."""
    return schedule.replace(steps=_changed(schedule.steps, column, row, value))


def with_work(schedule, column, row, value):
    """Return the schedule with one value of its work changed."""
    return schedule.replace(work=_changed(schedule.work, column, row, value))


def _changed(table, column, row, value):
    columns = {f.name: getattr(table, f.name).copy() for f in fields(table)}
    columns[column][row] = value
    return type(table)(**columns)


def taken(table, rows):
    """Return the given rows of steps or work, in the given order."""
    return type(table)(**{f.name: getattr(table, f.name)[list(rows)] for f in fields(table)})


def with_leaf(tree, path, value):
    """Return a copy of JSON data with one entry replaced."""
    copy = json.loads(json.dumps(tree))
    place = copy
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return copy


def without_leaf(tree, path):
    """Return a copy of JSON data without one entry."""
    copy = json.loads(json.dumps(tree))
    place = copy
    for name in path[:-1]:
        place = place[name]
    del place[path[-1]]
    return copy


def leaves(tree, path=()):
    """Paths and values of all leaves of JSON data."""
    if isinstance(tree, dict) and tree:
        for name, value in tree.items():
            yield from leaves(value, (*path, name))
    else:
        yield path, tree
