"""Reported numbers against their definitions, on random schedules of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orsched.checker import check
from orsched.common.errors import InputError
from orsched.data.schedule import INVALID, MIXED
from orsched.metrics.summary import SLO, summarise
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import request_times
from tests.by_the_book import Book, require_reported
from tests.checker.valid import with_step, with_work
from tests.metrics.any_schedule import any_schedule
from tests.views.samples import every_kind

cases = st.integers(0, 10**6).map(any_schedule)
several = settings(max_examples=60)


def test_the_drawn_schedules_hold_every_kind_of_work():
    drawn = [any_schedule(seed) for seed in range(100)]
    assert any((s.work.phase == INVALID).any() for _, s in drawn)
    assert any((s.steps.phase == MIXED).any() for _, s in drawn)
    assert any((s.work.stay >= 2).any() for _, s in drawn)
    assert any(len(np.unique(s.steps.worker)) == 3 for _, s in drawn)


@several
@given(cases)
def test_numbers_are_those_of_each_step_and_client_time_adds_up(case):
    """INV-15: busy time and bubbles are clients x makespan, to the nanosecond."""
    instance, schedule = case
    require_reported(instance, schedule)
    results = summarise(instance, schedule)
    clients = sum(worker.clients for worker in instance.workers)
    total = results["busy_client_ns"] + sum(results["bubble_ns"].values())
    assert total == clients * schedule.makespan_ns


@several
@given(cases)
def test_times_are_those_of_each_round(case):
    instance, schedule = case
    book, times = Book(instance, schedule), request_times(instance, schedule)
    requests = range(len(instance))
    assert times["first_token_ns"].tolist() == [book.first_token[r] for r in requests]
    assert times["prefill_end_ns"].tolist() == [book.prefill_end[r] for r in requests]
    assert times["finish_ns"].tolist() == [book.finish[r] for r in requests]
    stays = {stay.request: stay for stay in reversed(book.stays)}  # the first of each request
    for request in requests:
        assert times["client"][request] == stays[request].client
        begin = book.steps[stays[request].first]
        assert times["prefill_start_ns"][request] == begin.start_ns
        assert begin.worker == stays[request].worker


@several
@given(cases)
def test_caches_are_those_of_each_round(case):
    line, book = Timeline(*case), Book(*case)
    for number, row in enumerate(book.work):
        (stay,) = (s for s in book.stays
                   if s.request == row.request and s.first <= row.first_step <= s.last
                   and s.worker == book.steps[row.first_step].worker)  # fmt: skip
        before = [cache for step, (*_, cache) in stay.does.items() if step < row.first_step]
        assert line.cached[number] == (before[-1] if before else 0)
        grown = stay.cache_in(row.last_step) - line.cached[number]
        assert grown == (row.tokens if row.first_step == row.last_step and line.is_prefill[number]
                         else line.row_rounds[number])  # fmt: skip


def test_a_measured_schedule_has_equal_rounds_in_a_step():
    for seed in range(30):
        instance, schedule = any_schedule(seed, requests=6)
        measured = schedule.replace(run={"device": "a device", "clock": "a clock"})
        times = request_times(instance, measured)
        if instance.first_token == "prefill":
            assert times["first_token_ns"].tolist() == times["prefill_end_ns"].tolist()
            continue
        line = Timeline(instance, measured)
        rows = [
            np.flatnonzero((schedule.work.request == r) & (schedule.work.phase == 1))[0]
            for r in range(6)
        ]
        place = line.first[rows]
        one = (line.end_ns[place] - line.start_ns[place]) // line.rounds[place]
        assert times["first_token_ns"].tolist() == (line.start_ns[place] + one).tolist()


@several
@given(cases)
def test_the_checker_agrees(case):
    """INV-15: two computations that share nothing give every reported number."""
    instance, schedule = case
    for slo in (None, SLO(ttft_ns=50, tpot_ns=20)):
        results = summarise(instance, schedule, slo)
        assert check(instance, schedule.replace(results=results)) == []


@pytest.mark.full
def test_many_more_schedules():
    for seed in range(10**6, 10**6 + 3000):
        require_reported(*any_schedule(seed))


CHANGES = {
    "steps.worker": ("worker", 0, 7, "the worker does not exist"),
    "work.request": ("request", 0, 99, "the request does not exist"),
    "work.client": ("client", 0, 2, "the worker has fewer clients"),
    "an end before the start": ("last_step", 2, 3, "the row ends before it begins"),
    "another worker's step": ("last_step", 1, 5, "the row changes workers"),
    "a long prefill": ("last_step", 0, 3, "a prefill row has one step"),
    "a prefill in a round": ("phase", 4, 0, "a prefill row has one step"),
    "a round in a prefill": ("phase", 5, 1, "the step does not do that"),
    "a stay on two workers": ("first_step", 2, 5, "the stay changes workers"),
    "twice in one step": ("first_step", 7, 5, "the rows overlap"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_work_that_cannot_be_is_named(change):
    column, row, value, problem = CHANGES[change]
    instance, schedule = every_kind()
    changed = with_step if column == "worker" else with_work
    broken = changed(schedule, column, row, value)
    if change == "a stay on two workers":
        broken = with_work(broken, "last_step", row, value)
    with pytest.raises(InputError, match=problem) as caught:
        summarise(instance, broken)
    assert caught.value.row == row
