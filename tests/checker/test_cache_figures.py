"""Figures of prefix caches, against a count of single tokens and of all blocks."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from orsched.checker import check
from orsched.data.eviction import RULES
from orsched.data.schedule import PREFILL
from orsched.metrics.cache_use import cache_use
from orsched.metrics.summary import summarise
from orsched.metrics.timeline import Timeline
from tests.checker.mutations import tree_mutations
from tests.checker.test_prefix_caches import SHARED, by_hand, made

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
            assert (use.running >= 0).all()
            assert (use.cached >= 0).all()
            assert (use.empty >= 0).all()
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
