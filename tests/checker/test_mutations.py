"""Every field of a schedule is changed in turn: a change is caught, or equivalent for a reason."""

from __future__ import annotations

from dataclasses import fields
from fnmatch import fnmatch

import pytest

from orsched.checker import check
from orsched.common.errors import InputError
from orsched.data.schedule import Schedule, Steps, Work
from tests.checker.mutations import mutations
from tests.checker.valid import leaves, valid_schedules

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
    "a number left out that older files lack": "they were written before orsched knew it",
    "results = {}": "a schedule that reports nothing",
}
"""Changes that make another valid schedule, and why."""


def excuse(name, changed, original):
    """Return the entry of EQUIVALENT that covers a change that the checker accepts, or None."""
    if name == "information":
        registered = original.method == "fcfs"
        return None if registered else "information of an unregistered method"
    if name == "results" and changed.results == {}:
        return "results = {}"
    if name in ("results.itl_ns", "results.slo.goodput_per_s") and left_out(name, changed):
        return "a number left out that older files lack"
    if name.startswith("results") and same_json_number(name, original, changed):
        return "results written as a whole number"
    return next((key for key in EQUIVALENT if fnmatch(name, key)), None)


def left_out(name, changed):
    *tables, last = name.split(".")[1:]
    place = changed.results
    for part in tables:
        place = place[part]
    return last not in place


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
    """A violation of a changed one is due to the change."""
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
