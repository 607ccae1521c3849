"""Measured schedules that say they were stopped: what is asked of them still."""

from __future__ import annotations

import numpy as np
import pytest

import orsched
from orsched.data.instance import Instance
from orsched.data.schedule import Steps, Work
from tests.in_order import in_order

STOPPED = {"device": "d", "clock": "c", "complete": False}


def instance(rule="decode"):
    return Instance(
        orsched.Requests([5, 7, 3], [4, 2, 1]),
        orsched.Worker(2, in_order(orsched.costs.AffineCost, 10, 1, 5, 1)),
        first_token=rule,
    )


def trace(problem, rounds=3, prompt=5, **run):
    """Return a run in which request 0 was prefilled and decoded for some rounds."""
    steps = in_order(
        Steps, *(np.array(column) for column in ([0, 0], [0, 1], [0, 20], [20, 50], [1, rounds]))
    )
    work = Work(
        *(
            np.array(column)
            for column in ([0, 0], [0, 0], [0, 1], [0, 1], [0, 1], [prompt, 1], [0, 0])
        )
    )
    return orsched.Schedule(problem.sha256, steps, work, "own", "none", run={**STOPPED, **run})


def kinds(problem, schedule, times="measured"):
    return {each.kind.value for each in orsched.check(problem, schedule, times=times)}


@pytest.mark.parametrize(("rule", "most"), [("decode", 4), ("prefill", 3)])
def test_requests_may_have_yielded_fewer_tokens_but_not_more(rule, most):
    problem = instance(rule)
    for rounds in range(1, most + 1):
        assert kinds(problem, trace(problem, rounds)) == set()
    assert kinds(problem, trace(problem, most + 1)) == {"completeness"}


def test_prefills_are_whole_before_tokens_are_yielded():
    problem = instance()
    assert kinds(problem, trace(problem, prompt=4)) == {"completeness"}


def test_a_run_that_does_not_say_that_it_was_stopped_is_not_complete():
    problem = instance()
    for complete in (True, None, 0, "no"):
        schedule = trace(problem, complete=complete)
        assert not schedule.is_partial
        assert kinds(problem, schedule) == {"completeness"}
    assert trace(problem).is_partial
    assert "completeness" in kinds(problem, trace(problem), times="model")


def test_a_run_that_was_stopped_reports_nothing():
    problem = instance()
    schedule = trace(problem).replace(results={"makespan_ns": 50})
    assert kinds(problem, schedule) == {"result"}
