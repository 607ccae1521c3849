"""The checker and a literal reading of the rules agree on random schedules of all modes."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

from orsched.checker import check
from orsched.common.errors import InputError
from orsched.metrics.summary import SLO, summarise
from tests.by_the_book import Book, rule_broken_by
from tests.checker.any_mode import random_schedule
from tests.checker.mutations import column_mutations, row_mutations
from tests.checker.valid import DICE, with_step, with_work

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
    return {
        "restart": (work.stay > 0).any(),
        "chunks": any(many > 1 for (*_, prefill), many in chunks.items() if prefill),
        "mixed": (steps.phase == 2).any(),
        "invalid": (work.phase == 2).any(),
        "padding": any(worker.padding for worker in workers),
        "pages": any(paged),
        "workers": len(set(steps.worker.tolist())) > 1,
        "another worker": any(
            len({steps.worker[s] for s in work.first_step[work.request == request]}) > 1
            for request in range(len(instance))
        ),
        instance.first_token: True,
    }


def random_schedules_agree(seeds):
    seen = Counter()
    for seed in seeds:
        instance, schedule = made(seed)
        assert agree_on(instance, schedule), seed
        seen.update(name for name, there in seen_in(instance, schedule).items() if there)
    assert len(seen) == 10
    assert min(seen.values()) > len(seeds) // 25


def test_random_schedules_are_valid():
    """INV-1, INV-2, INV-3, INV-4, INV-5, INV-6, INV-7, INV-15, INV-17, INV-18, INV-19: all hold."""
    random_schedules_agree(range(150))


def test_the_schedules_to_break_are_in_all_modes():
    """Those of the mutation tests."""
    seen = set()
    for seed in DICE:
        seen |= {name for name, there in seen_in(*made(seed, 4)).items() if there}
    assert len(seen) == 10


@pytest.mark.full
def test_many_random_schedules_are_valid():
    random_schedules_agree(range(150, 4000))


def mutations_agree(seeds, limit):
    """Change every field and row of small schedules in turn; return how many stay valid."""
    counts = Counter()
    for seed in seeds:
        instance, schedule = made(seed, 3)
        if len(schedule.steps) > limit:
            continue
        for _, _, make in (
            *column_mutations(schedule, "steps", with_step),
            *column_mutations(schedule, "work", with_work),
            *row_mutations(schedule),
        ):
            try:
                changed = make()
            except InputError:
                continue
            counts[agree_on(instance, changed)] += 1
    return counts


def test_changed_schedules_are_judged_alike():
    """No field of a row can be wrong without a violation."""
    counts = mutations_agree(range(20, 37), 6)
    assert counts[False] > 1000
    assert counts[True] > 3


@pytest.mark.full
def test_many_changed_schedules_are_judged_alike():
    counts = mutations_agree(range(37, 200), 14)
    assert counts[False] > 20_000
    assert counts[True] > 50


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
    table, change = (
        (schedule.work, with_work) if dice.random() < 0.8 else (schedule.steps, with_step)
    )
    names = list(vars(table))
    name, row = names[dice.integers(len(names))], int(dice.integers(len(table)))
    column = getattr(table, name)
    new = (column[dice.integers(len(table))], column[row] + 1, column[row] - 1)
    return change(schedule, name, row, int(new[dice.integers(3)]))
