"""Every field of a schedule is changed in turn: a change is caught, or equivalent for a reason."""

from __future__ import annotations

from dataclasses import fields
from fnmatch import fnmatch

import pytest

from orsched.checker import check
from orsched.errors import InputError
from orsched.schedule import Schedule, Steps, Work
from tests.checker.valid import (
    leaves,
    taken,
    valid_schedules,
    with_leaf,
    with_step,
    with_work,
    without_leaf,
)

VALID = valid_schedules()

EQUIVALENT = {
    "instance_name": "a label; the instance is known by its hash",
    "seed": "what a method was started with cannot be told from its schedule",
    "parameters*": "what a method was started with cannot be told from its schedule",
    "run*": "wall-clock figures and environment differ from run to run",
    "method": "a name that is not registered may be anybody's policy",
    "information of an unregistered method": "what a policy declares that nobody registered",
    "results.slo.*_ns": "objectives are free to choose; what is attained under them is checked",
    "results written as a whole number": "JSON writes 1 or 1.0 for the same number",
    "results = {}": "a schedule that reports nothing",
}
"""Changes that make another valid schedule, and why."""


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
    }
    for name, values in changes.items():
        for value in values:
            if value != getattr(schedule, name):
                yield name, f"{value!r}", lambda n=name, v=value: schedule.replace(**{n: v})


def excuse(name, changed, original):
    """Return the entry of EQUIVALENT that covers a change that the checker accepts, or None."""
    if name == "information":
        registered = original.method == "fcfs"
        return None if registered else "information of an unregistered method"
    if name == "results" and changed.results == {}:
        return "results = {}"
    if name.startswith("results") and same_json_number(name, original, changed):
        return "results written as a whole number"
    return next((key for key in EQUIVALENT if fnmatch(name, key)), None)


def same_json_number(name, original, changed):
    def leaf(schedule):
        place = schedule.results
        for part in name.split(".")[1:]:
            place = place.get(part) if isinstance(place, dict) else None
        return place

    old, new = leaf(original), leaf(changed)
    return type(old) is float and type(new) is int and old == new


@pytest.mark.parametrize("name", VALID)
def test_the_unchanged_schedules_are_valid(name):
    instance, schedule = VALID[name]
    assert check(instance, schedule) == []
    assert len(schedule.steps) > 5
    assert schedule.results["ttft_ns"]["max"] > 0


@pytest.mark.parametrize("name", VALID)
def test_every_change_is_caught_or_equivalent(name):
    """No field of a schedule can be wrong without a violation."""
    instance, schedule = VALID[name]
    changed_fields, missed, counts = set(), [], {"rejected": 0, "caught": 0, "equivalent": 0}
    for field, what, make in mutations(schedule):
        changed_fields.add(field)
        try:
            changed = make()
        except InputError:
            counts["rejected"] += 1
            continue
        if check(instance, changed):
            counts["caught"] += 1
        elif excuse(field, changed, schedule):
            counts["equivalent"] += 1
        else:
            missed.append((field, what))
    assert missed == []
    assert min(counts.values()) > 0
    assert counts["caught"] > 10 * counts["equivalent"]
    assert expected_fields(schedule) <= changed_fields


def expected_fields(schedule):
    """All fields of a schedule, so that a new one cannot be forgotten here."""
    names = {f.name for f in fields(Schedule)} - {"steps", "work", "parameters", "run"}
    names |= {f"steps.{f.name}" for f in fields(Steps)} | {f"work.{f.name}" for f in fields(Work)}
    for tree in ("results", "bound", "parameters", "run"):
        names |= {".".join((tree, *path)) for path, _ in leaves(getattr(schedule, tree) or {})}
    return names - {"results", "bound", "parameters", "run", ""} | {"results", "bound"}


def test_every_excuse_is_needed():
    """The table of equivalent changes names no change that is caught after all."""
    used = set()
    for instance, schedule in VALID.values():
        for field, _, make in mutations(schedule):
            try:
                changed = make()
            except InputError:
                continue
            key = excuse(field, changed, schedule)
            if key is not None and key not in used and not check(instance, changed):
                used.add(key)
    assert used == set(EQUIVALENT)
