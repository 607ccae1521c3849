"""Valid schedules to break, and ways to break them."""

import json
from dataclasses import fields
from functools import partial

import numpy as np

from orsched import SLO, AffineCost, BlockMemory, Instance, Requests, Transfers, Worker, summarise
from orsched.common.errors import InputError
from orsched.data.schedule import Schedule, Steps, Work
from orsched.heuristics.pang import FirstComeFirstServed
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
    prompts, outputs, predicted = random.integers(1, 9, (3, n))
    arrivals = random.integers(0, latest + 1, n)
    return Requests(prompts, outputs, arrival_ns=arrivals, predicted_tokens=predicted)


def run(instance, policy=FirstComeFirstServed, slo=SLOW):
    """Return a schedule with everything in it that can be reported."""
    schedule = simulate_policy(instance, policy()).schedule
    if len(instance.workers) == 1:
        schedule = schedule.replace(bound=makespan_bound(instance).to_dict())
    schedule = schedule.replace(parameters={"window": 3}, run={"runtime_s": 0.5})
    return schedule.replace(results=summarise(instance, schedule, slo))


def joined(tables, names):
    """Columns of tables, one below the other."""
    return {name: np.concatenate([getattr(table, name) for table in tables]) for name in names}


def two_workers():
    """Two schedules of one worker each, side by side."""
    worker, rule = Worker(2, COST), "decode"
    halves = [Instance(random_requests(5, seed), worker, first_token=rule) for seed in (1, 2)]
    schedules = [simulate_policy(half, FirstComeFirstServed()).schedule for half in halves]
    steps = joined([s.steps for s in schedules], [f.name for f in fields(Steps)])
    lengths = [len(s.steps) for s in schedules]
    steps["worker"] = np.repeat([0, 1], lengths)
    order = np.lexsort((steps["worker"], steps["start_ns"]))
    place = np.argsort(order)
    work = joined([s.work for s in schedules], [f.name for f in fields(Work)])
    second = np.repeat([0, 1], [len(s.work) for s in schedules])
    work["request"] = work["request"] + 5 * second
    for name in ("first_step", "last_step"):
        work[name] = place[work[name] + lengths[0] * second]
    columns = ("prompt_tokens", "output_tokens", "arrival_ns", "predicted_tokens")
    requests = Requests(**joined([half.requests for half in halves], columns))
    workers = (worker, Worker(2, COST, name="worker-1"))
    instance = Instance(requests, workers, first_token=rule)
    steps = Steps(**{name: column[order] for name, column in steps.items()})
    schedule = Schedule(instance.sha256, steps, Work(**work), "by hand", "none")
    return instance, schedule.replace(results=summarise(instance, schedule, SLOW))


def valid_schedules():
    """Name -> (instance, valid schedule): rules, arrivals, limits, contexts, workers, modes."""
    plain = Worker(3, COST)
    given = {
        "plain": (random_requests(), plain),
        "first-token-prefill": (random_requests(12), plain),
        "arrivals": (random_requests(latest=1500, seed=3), plain),
        "limits": (random_requests(seed=4), Worker(4, COST, 11, BlockMemory(9, 4, "whole"))),
        "contexts": (random_requests(seed=5, latest=400), Worker(3, ContextCost())),
    }
    made = {}
    for name, (requests, worker) in given.items():
        rule = "prefill" if name.endswith("prefill") else "decode"
        instance = Instance(requests, worker, first_token=rule)
        made[name] = (instance, run(instance))
    made |= {"two-workers": two_workers()}
    return made | {f"dice-{seed}": reported(*random_schedule(seed, 4)) for seed in DICE}


def reported(instance, schedule):
    """Return a schedule with everything in it that can be reported but a bound."""
    schedule = schedule.replace(parameters={"window": 3}, run={"runtime_s": 0.5})
    return instance, schedule.replace(results=summarise(instance, schedule, SLOW))


def with_step(schedule, column, row, value):
    return with_value(schedule, "steps", column, row, value)


def with_work(schedule, column, row, value):
    return with_value(schedule, "work", column, row, value)


def with_value(schedule, name, column, row, value):
    """Return a schedule with another value in its steps, its work or its transfers."""
    table = getattr(schedule, name)
    columns = {f.name: getattr(table, f.name).copy() for f in fields(table)}
    columns[column][row] = value
    return schedule.replace(**{name: type(table)(**columns)})


def with_rows(schedule, name, rows):
    """Return a schedule with the given rows of its steps, work or transfers, in this order."""
    table = getattr(schedule, name)
    columns = {f.name: getattr(table, f.name)[list(rows)] for f in fields(table)}
    return schedule.replace(**{name: type(table)(**columns)})


def with_leaf(tree, path, *value):
    """Return a copy of a tree with another value at a path; without one it is left out."""
    copy = json.loads(json.dumps(tree))
    place = copy
    for name in path[:-1]:
        place = place[name]
    if value:
        place[path[-1]] = value[0]
    else:
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
    worker = {"clients": 2, "cost": COST, **worker}
    workers = tuple(Worker(**{"name": f"worker-{i}", **worker}) for i in range(many))
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
    columns = map(list, zip(*rows, strict=True)) if rows else [[]] * 5
    work = [(*row, 0)[:7] for row in work]
    work_columns = map(list, zip(*work, strict=True)) if work else [[]] * 7
    fields = {"method": "by hand", "information": "none", **fields}
    return Schedule(instance.sha256, in_order(Steps, *columns), Work(*work_columns), **fields)


def edited(rows, changes=None):
    """Rows with some of them replaced, by their place; None leaves one out. Or rows as given."""
    if not isinstance(changes, dict):
        return rows if changes is None else tuple(changes)
    return tuple(row for row in (changes.get(i, row) for i, row in enumerate(rows)) if row)


def kinds(violations):
    return {violation.kind.value for violation in violations}


def mutations(schedule):
    """Yield (name of the field, what is changed, the changed schedule's maker)."""
    yield from table_mutations(schedule)
    yield from tree_mutations(schedule)
    yield from scalar_mutations(schedule)


def possible(mutations):
    """Yield (field, what is changed, the changed schedule) of those that can be built."""
    for field, what, make in mutations:
        try:
            changed = make()
        except InputError:
            continue
        yield field, what, changed


def table_mutations(schedule):
    for table in ("steps", "work"):
        yield from column_mutations(schedule, table)
    yield from row_mutations(schedule)


def column_mutations(schedule, table, every=1):
    for field in fields(getattr(schedule, table)):
        column = getattr(getattr(schedule, table), field.name).tolist()
        for row, old in [*enumerate(column)][::every]:
            news = (old + 1, old - 1, 0, 1, 10**6, 2**61, column[(row + 1) % len(column)])
            for new in dict.fromkeys(news):
                if new != old:
                    make = partial(with_value, schedule, table, field.name, row, new)
                    yield f"{table}.{field.name}", f"row {row}: {old} -> {new}", make


def row_mutations(schedule, tables=("steps", "work")):
    for table in tables:
        n = len(getattr(schedule, table))
        orders = {f"row {row} left out": [r for r in range(n) if r != row] for row in range(n)}
        orders |= {f"row {row} twice": sorted([*range(n), row]) for row in range(n)}
        for a in range(n - 1):
            for b in {a + 1, n - 1}:
                order = list(range(n))
                order[a], order[b] = b, a
                orders[f"rows {a} and {b} swapped"] = order
        orders["no rows"] = []
        for what, order in orders.items():
            yield f"{table} rows", what, partial(with_rows, schedule, table, order)


def tree_mutations(schedule):
    for name in ("results", "bound", "parameters", "run"):
        tree = getattr(schedule, name)
        if not tree:
            continue

        def changed(path, *value, name=name, tree=tree):
            return lambda: schedule.replace(**{name: with_leaf(tree, path, *value)})

        for path, old in leaves(tree):
            where = ".".join((name, *path))
            for new in other_values(old):
                yield where, f"{old!r} -> {new!r}", changed(path, new)
            yield where, "left out", changed(path)
        for place in sorted({path[:-1] for path, _ in leaves(tree)}):
            extra = (*place, "extra")
            yield ".".join((name, *extra)), "an entry more", changed(extra, 1)


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
