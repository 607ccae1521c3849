"""Reported numbers of simulated schedules of all batching modes, on any number of workers."""

from __future__ import annotations

import random

import pytest

from orsched.metrics.token_times import request_times
from orsched.simulator import simulate_policy
from tests.by_the_book import Book, require_reported
from tests.random_instances import random_batching_instance
from tests.simulator.batching_policies import BATCHING


def simulated(name, seeds):
    """Schedules of random policies of some kind for random instances."""
    for seed in seeds:
        instance = random_batching_instance(random.Random(f"{name} {seed}"))
        yield instance, simulate_policy(instance, BATCHING[name](seed)).schedule


@pytest.mark.parametrize("name", BATCHING)
def test_simulated_schedules_report_what_is_defined_and_the_checker_agrees(name):
    for instance, schedule in simulated(name, range(12)):
        require_reported(instance, schedule)
        times = request_times(instance, schedule)
        book, requests = Book(instance, schedule), range(len(instance))
        assert times["first_token_ns"].tolist() == [book.first_token[r] for r in requests]
        assert times["prefill_end_ns"].tolist() == [book.prefill_end[r] for r in requests]


@pytest.mark.full
@pytest.mark.parametrize("name", BATCHING)
def test_many_more_simulated_schedules(name):
    for instance, schedule in simulated(name, range(1000, 2000)):
        require_reported(instance, schedule)
