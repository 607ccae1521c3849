"""Changes of one thing in a schedule: a value, a row, an entry, a label."""

from __future__ import annotations

from dataclasses import fields

from orsched.data.transfers import Transfers
from tests.checker.valid import leaves, taken, with_leaf, with_step, with_work, without_leaf
from tests.in_order import in_order


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
