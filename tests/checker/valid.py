"""Valid schedules to break, and ways to break them."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np

from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.links import Transfers
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
    return schedule.replace(steps=_changed(schedule.steps, column, row, value))


def with_work(schedule, column, row, value):
    return schedule.replace(work=_changed(schedule.work, column, row, value))


def _changed(table, column, row, value):
    columns = {f.name: getattr(table, f.name).copy() for f in fields(table)}
    columns[column][row] = value
    return type(table)(**columns)


def taken(table, rows):
    """Return the given rows of steps or work, in the given order."""
    return type(table)(**{f.name: getattr(table, f.name)[list(rows)] for f in fields(table)})


def with_leaf(tree, path, value):
    copy = json.loads(json.dumps(tree))
    place = copy
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return copy


def without_leaf(tree, path):
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


"""Prefill: 30 + 2 a token. Round: 17 + 5 a request. Mixed step: 30 + 2 a token + 5 a request."""


def problem(
    prompts=(4, 5, 6), outputs=(2, 3, 2), *, arrivals=None, rule="decode", many=1, **worker
):
    """Return an instance on a worker, or on several equal ones, with two clients each."""
    requests = Requests(list(prompts), list(outputs), arrival_ns=arrivals and list(arrivals))
    workers = tuple(
        Worker(**{"clients": 2, "cost": COST, "name": f"worker-{i}", **worker}) for i in range(many)
    )
    return Instance(requests, workers, first_token=rule)


def built(instance, steps, work, **fields):
    """Return a schedule.

    Steps are (worker, phase, idle time of the worker before, duration, rounds), work rows
    (request, client, phase, first step, last step, tokens[, stay]).
    """
    rows, now = [], {}
    for worker, phase, idle, duration, rounds in steps:
        start = now.get(worker, 0) + idle
        now[worker] = start + duration
        rows.append((worker, phase, start, now[worker], rounds))
    columns = zip(*rows, strict=True) if rows else [[]] * 5
    work = [(*row, 0)[:7] for row in work]
    work_columns = zip(*work, strict=True) if work else [[]] * 7
    fields = {"method": "by hand", "information": "none", **fields}
    return Schedule(
        instance.sha256,
        in_order(Steps, *(list(c) for c in columns)),
        Work(*(list(c) for c in work_columns)),
        **fields,
    )


def edited(rows, **changes):
    """Rows with some of them replaced: ``r2=(...)``; None leaves a row out."""
    result = [changes.get(f"r{i}", row) for i, row in enumerate(rows)]
    return tuple(row for row in result if row is not None) + tuple(changes.get("more", ()))


def kinds(violations):
    return {violation.kind.value for violation in violations}


def mutations(schedule):
    """Yield (name of the field, what is changed, the changed schedule's maker)."""
    yield from column_mutations(schedule, "steps", with_step)
    yield from column_mutations(schedule, "work", with_work)
    yield from row_mutations(schedule)
    yield from tree_mutations(schedule)
    yield from scalar_mutations(schedule)


def column_mutations(schedule, table, change):
    columns = getattr(schedule, table)
    n = len(columns)
    for field in fields(columns):
        column = getattr(columns, field.name)
        for row in range(n):
            old = int(column[row])
            news = (old + 1, old - 1, 0, 1, 10**6, 2**61, int(column[(row + 1) % n]))
            for new in dict.fromkeys(news):
                if new != old:
                    name = f"{table}.{field.name}"
                    yield (
                        name,
                        f"row {row}: {old} -> {new}",
                        lambda row=row, new=new, c=field.name: change(schedule, c, row, new),
                    )


def row_mutations(schedule):
    for table in ("steps", "work"):
        columns = getattr(schedule, table)
        n = len(columns)
        orders = {f"row {row} left out": [r for r in range(n) if r != row] for row in range(n)}
        orders |= {f"row {row} twice": sorted([*range(n), row]) for row in range(n)}
        for a in range(n - 1):
            for b in {a + 1, n - 1}:
                order = list(range(n))
                order[a], order[b] = b, a
                orders[f"rows {a} and {b} swapped"] = order
        orders["no rows"] = []
        for what, order in orders.items():
            yield (
                f"{table} rows",
                what,
                lambda t=table, c=columns, order=order: schedule.replace(**{t: taken(c, order)}),
            )


def tree_mutations(schedule):
    for name in ("results", "bound", "parameters", "run"):
        tree = getattr(schedule, name)
        if not tree:
            continue
        for path, old in leaves(tree):
            where = ".".join((name, *path))
            for new in other_values(old):
                yield (
                    where,
                    f"{old!r} -> {new!r}",
                    lambda p=path, v=new, t=tree, n=name: schedule.replace(
                        **{n: with_leaf(t, p, v)}
                    ),
                )
            yield (
                where,
                "left out",
                lambda p=path, t=tree, n=name: schedule.replace(**{n: without_leaf(t, p)}),
            )
        places = {path[:-1] for path, _ in leaves(tree)}
        for place in sorted(places):
            where = ".".join((name, *place, "extra"))
            yield (
                where,
                "an entry more",
                lambda p=(*place, "extra"), t=tree, n=name: schedule.replace(
                    **{n: with_leaf(t, p, 1)}
                ),
            )


def other_values(old):
    """Values that differ from a leaf's, of its own type and of others."""
    values = [None, True, False, "text", [], {}, [1], {"a": 1}, 0, -1, 1.5, 10**30, float("nan")]
    values.append(float("inf"))
    if type(old) in (int, float):
        values += [old + 1, old - 1, -old, str(old), [old], old * 2, float(old)]
    if type(old) is float:
        values += [int(old), old * (1 + 1e-15)]
    if isinstance(old, str):
        values += [old + "x", "", old.upper()]
    return [v for v in values if type(v) is not type(old) or v != old]


def scalar_mutations(schedule):
    sha = schedule.instance_sha256
    changes = {
        "instance_sha256": [sha.upper(), sha[::-1], "0" * 64, sha[:-1], sha + "0", list(sha)],
        "method": ["fcfs2", "", None, 3, [], "FCFS"],
        "information": ["none", "predicted", "clairvoyant", "all", "", "None"],
        "instance_name": ["other", ""],
        "seed": [1, -1, None],
        "results": [{}, None, [], 3, "text", {1: 2}],
        "bound": [{}, [], 3, "text", {1: 2}],
        "eviction": [{"rule": "lru"}, {"rule": "task_aware"}, {}, "lru", {"rule": "mru"}],
        "lost_steps": [((0, 0, 1),), ((9, 5, 6),), ((0, 3, 1),)],
        "on_times": [((0, 0, 0, None, None),), ((9, 0, 5, None, None),), [3], "on"],
        "transfers": [in_order(Transfers, [0], [1], [0], [1], [5], [9], [3]), [], "sent"],
    }
    for name, values in changes.items():
        for value in values:
            if value != getattr(schedule, name):
                yield name, f"{value!r}", lambda n=name, v=value: schedule.replace(**{n: v})
