"""Every number of valid schedules, changed, is found; and the figures of caches."""

import json
from collections import Counter
from dataclasses import fields
from fnmatch import fnmatch
from functools import cache

import numpy as np
import pytest

from orsched import check, summarise
from orsched.checker.results import _NOT_IN_OLDER_FILES
from orsched.data.memory import RULES
from orsched.data.schedule import PREFILL, Schedule, Steps, Work
from orsched.metrics.cache_use import cache_use
from orsched.metrics.timeline import Timeline
from tests.checker.test_caches import SHARED, by_hand, made
from tests.checker.valid import leaves, mutations, possible, tree_mutations, valid_schedules

VALID = valid_schedules()

EQUIVALENT = {
    "instance_name": "a label; the instance is known by its hash",
    "seed": "what a method was started with cannot be told from its schedule",
    "parameters*": "what a method was started with cannot be told from its schedule",
    "run*": "wall-clock figures and environment differ from run to run",
    "method": "a name that is not registered may be anybody's policy",
    "information of fcfs": "it may know lengths, by which it orders requests where it is told to",
    "information of an unregistered method": "what a policy declares that nobody registered",
    "results.slo.*_ns": "objectives are free to choose; what is attained under them is checked",
    "results written as a whole number": "JSON writes 1 or 1.0 for the same number",
    "a number left out that older files lack": "they were written before orsched knew it",
    "results = {}": "a schedule that reports nothing",
    "bound.certificate.released_ns": "the same requests are released then, and one of them alone "
    "is the bound (kv_volume)",
}
"""Changes that make another valid schedule, and why."""


def excuse(name, changed, original):
    """Return the entry of EQUIVALENT that covers a change that the checker accepts, or None."""
    if name == "information":
        if original.method == "fcfs":
            return "information of fcfs"
        return "information of an unregistered method"
    if name == "results" and changed.results == {}:
        return "results = {}"
    old, new = (leaf(schedule.results, name.split(".")[1:]) for schedule in (original, changed))
    if name in _NOT_IN_OLDER_FILES and new is LEFT_OUT:
        return "a number left out that older files lack"
    if name.startswith("results") and type(old) is float and type(new) is int and old == new:
        return "results written as a whole number"
    return next((key for key in EQUIVALENT if fnmatch(name, key)), None)


LEFT_OUT = object()


def leaf(tree, path):
    for part in path:
        tree = tree.get(part, LEFT_OUT) if isinstance(tree, dict) else None
    return tree


@pytest.mark.parametrize("name", VALID)
def test_the_unchanged_schedules_are_valid(name):
    """A violation of a changed one is due to the change."""
    instance, schedule = VALID[name]
    assert check(instance, schedule) == []
    assert len(schedule.steps) > 5
    assert schedule.results["ttft_ns"]["max"] > 0


@cache
def judged(name):
    """Return the changed fields, what is missed, the excuses that are needed, and counts."""
    instance, schedule = VALID[name]
    every = list(mutations(schedule))
    missed, used, counts = [], set(), {"rejected": len(every), "caught": 0, "equivalent": 0}
    for field, what, changed in possible(every):
        counts["rejected"] -= 1
        if check(instance, changed):
            counts["caught"] += 1
        elif key := excuse(field, changed, schedule):
            counts["equivalent"] += 1
            used.add(key)
        else:
            missed.append((field, what))
    return {field for field, *_ in every}, missed, used, counts


@pytest.mark.parametrize("name", VALID)
def test_every_change_is_caught_or_equivalent(name):
    """No field of a schedule can be wrong without a violation."""
    changed_fields, missed, _, counts = judged(name)
    assert missed == []
    assert min(counts.values()) > 0
    assert counts["caught"] > 10 * counts["equivalent"]
    assert expected_fields(VALID[name][1]) <= changed_fields


def expected_fields(schedule):
    """All fields of a schedule, so that a new one cannot be forgotten here."""
    names = {f.name for f in fields(Schedule)} - {"steps", "work", "parameters", "run"}
    names |= {f"steps.{f.name}" for f in fields(Steps)} | {f"work.{f.name}" for f in fields(Work)}
    for tree in ("results", "bound", "parameters", "run"):
        names |= {".".join((tree, *path)) for path, _ in leaves(getattr(schedule, tree) or {})}
    return names - {"results", "bound", "parameters", "run", ""} | {"results", "bound"}


def test_every_excuse_is_needed():
    """The table of equivalent changes names no change that is caught after all."""
    assert set().union(*(judged(name)[2] for name in VALID)) == set(EQUIVALENT)


NAMES = ("hit_tokens", "hit_rate", "recomputed_tokens")


def counted(instance, schedule):
    """Tokens hit, prefilled, and prefilled though the request had them before, one by one."""
    hit = computed = again = 0
    for request in range(len(instance)):
        had, line = set(), Timeline(instance, schedule)
        for stay in np.flatnonzero(line.stay_request == request).tolist():
            rows = range(line.stay_row[stay], line.stay_end[stay] + 1)
            at = int(schedule.work.hit[line.row[rows[0]]])
            hit += at
            here = set(range(at))
            for row in rows:
                if line.row_phase[row] == PREFILL:
                    chunk = set(range(at, at + int(line.tokens[row])))
                    computed += len(chunk)
                    again += len(chunk & had)
                    at += len(chunk)
                    here |= chunk
                else:
                    here |= set(range(at, at + int(line.row_rounds[row])))
                    at += int(line.row_rounds[row])
            had |= here
    return hit, computed, again


def test_what_is_computed_again_is_counted_once():
    """INV-23: a restart computes again what it does not find, and what it yielded since."""
    seen = Counter()
    for seed in range(45):
        instance, schedule = made(seed)
        hit, computed, again = counted(instance, schedule)
        figures = summarise(instance, schedule)
        assert [figures[name] for name in NAMES] == [hit, hit / (hit + computed), again]
        seen["again"] += again > 0
        seen["not again"] += again == 0 and figures["restarts"] > 0
        seen["hit"] += hit > 0
    assert len(seen) == 3
    assert seen["again"] > 3


def test_figures_are_there_with_a_cache_only_and_checked():
    instance, schedule = by_hand(SHARED, [10, 9, 11], [0, 0, 8])
    results = summarise(instance, schedule)
    assert [results[name] for name in NAMES] == [8, 8 / 30, 0]
    whole = schedule.replace(results=results)
    assert check(instance, whole) == []
    for field, what, make in tree_mutations(whole):
        if field.removeprefix("results.") in NAMES:
            changed = make()
            same = json.dumps(changed.results) == json.dumps(results)
            assert same or check(instance, changed), what
    plain = instance.replace(workers=instance.worker.__class__(2, instance.worker.cost))
    again = by_hand(SHARED, [10, 9, 11], [0, 0, 0])[1].replace(instance_sha256=plain.sha256)
    assert not set(NAMES) & set(summarise(plain, again))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("workers", [1, 3])
def test_blocks_are_running_cached_or_empty(workers, rule):
    """INV-21: every block is one of the three at any time; what runs is kv_blocks."""
    most = np.zeros(2, np.int64)
    for seed in range(12):
        instance, schedule = made(seed, workers, rule)
        line = Timeline(instance, schedule)
        uses = cache_use(instance, schedule)
        assert [use.worker for use in uses] == list(range(workers))
        for use in uses:
            here = line.worker == use.worker
            blocks = instance.workers[use.worker].memory.blocks
            together = use.running.sum(axis=0)
            assert (together[::2] == line.caches.blocks[here]).all()
            assert min(part.min(initial=0) for part in (use.running, use.cached, use.empty)) >= 0
            assert (together + use.cached.sum(axis=0) + use.empty == blocks).all()
            assert (np.diff(use.time_ns) >= 0).all()
            if here.any():
                assert together[-1] == 0
            most = np.maximum(most, use.cached.max(axis=1, initial=0))
    assert (most > 0).all()


def test_blocks_belong_to_who_uses_them():
    instance, schedule = by_hand(SHARED, [10, 9, 11], [0, 0, 8], blocks=7)
    classes = instance.requests.replace(service_class=[0, 1, 1])
    instance = instance.replace(requests=classes)
    (use,) = cache_use(instance, schedule.replace(instance_sha256=instance.sha256))
    assert use.time_ns.tolist() == [0, 10, 10, 19, 19, 22]
    # The third block of each has one to three tokens: it is empty when it is free.
    assert use.running.tolist() == [[3, 0, 0, 0, 0, 0], [0, 0, 3, 0, 3, 0]]
    assert use.cached.tolist() == [[0, 2, 2, 2, 0, 0], [0, 0, 0, 2, 2, 4]]
    assert use.empty.tolist() == [4, 5, 2, 3, 2, 3]
