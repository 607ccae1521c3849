"""The laws of the product do find what is wrong: a leak, and schedules that break each of them."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from orsched.heuristics.pang import FirstComeFirstServed
from orsched.simulator import simulate_policy
from tests.product import laws
from tests.product.cell import Size, instance_of_cell, serve
from tests.product.laws import begun, otherwise
from tests.product.test_refusals import plain

SIZE = Size(9, 14, ())


def served(policy="vllm@none+max_num_batched_tokens=7", **modes):
    cell = plain(policy, **modes)
    instance = instance_of_cell(cell, SIZE)
    return instance, serve(instance, cell)


def changed(schedule, table, column, row, value):
    """The schedule with another value in a place of a table."""
    rows = getattr(schedule, table)
    columns = {f.name: getattr(rows, f.name).copy() for f in fields(rows)}
    columns[column][row] = value
    return schedule.replace(**{table: type(rows)(**columns)})


def without(schedule, gone):
    """The schedule without some rows of work."""
    columns = {f.name: getattr(schedule.work, f.name)[~gone] for f in fields(schedule.work)}
    return schedule.replace(work=type(schedule.work)(**columns))


def broken(instance, schedule):
    """Names of the laws that a schedule breaks."""
    found = set()
    account = laws.Account(instance, schedule)
    for law in laws.LAWS:
        try:
            law(account)
        except (AssertionError, KeyError):
            found.add(law.__name__)
    return found


def test_each_law_is_broken_by_something():
    instance, schedule = served(memory="paged", workload="poisson")
    assert broken(instance, schedule) == set()
    work, steps = schedule.work, schedule.steps
    last = work.request == len(instance) - 1
    decodes = int(np.flatnonzero(work.phase == laws.DECODE)[0])
    prefill = int(np.flatnonzero(work.phase == laws.PREFILL)[-1])
    cases = {
        "tokens_are_conserved": changed(schedule, "work", "tokens", prefill, 99),
        "invalid_tokens_come_last": changed(schedule, "work", "phase", decodes, laws.INVALID),
        "the_clock_never_runs_backwards": changed(schedule, "steps", "end_ns", 0, 10**15),
        "a_client_serves_one_request_at_a_time": changed(schedule, "work", "client", last, 7),
    }
    for law, wrong in cases.items():
        assert law in broken(instance, wrong), law
    with pytest.raises((AssertionError, KeyError)):
        laws.requests_are_conserved(laws.Account(instance, without(schedule, last)))
    late = instance.replace(requests=instance.requests.replace(arrival_ns=steps.end_ns[:9] + 1))
    assert "times_of_a_request_are_in_order" in broken(late, schedule)
    small, _ = served(memory="paged_tight", workload="poisson")
    assert broken(small, schedule) == {"blocks_are_conserved"}


class Peeking(FirstComeFirstServed):
    """Serves the longest first, by lengths that it was not shown."""

    def __init__(self, instance):
        super().__init__()
        self.lengths = instance.requests.output_tokens.tolist()

    def decide(self, view):
        waiting = sorted(self.queue, key=lambda request: -self.lengths[request])
        self.queue.clear()
        self.queue.extend(waiting)
        return super().decide(view)


@pytest.mark.parametrize(("policy", "leaks"), [(Peeking, True), (None, False)])
def test_a_leak_is_found(policy, leaks):
    """INV-8: the boundary is crossed by a policy that knows the truth, and by it alone."""
    cell = plain("fcfs@none", workload="all_at_0")
    instance = instance_of_cell(cell, SIZE)

    def run(on):
        return simulate_policy(on, policy(on) if policy else FirstComeFirstServed()).schedule

    schedule = run(instance)
    other, prefix = otherwise(instance, schedule, 0)
    assert prefix >= 1
    assert (begun(run(other), prefix, 0) != begun(schedule, prefix, 0)) == leaks


def test_rest_is_found():
    """INV-12 is broken by a batch that waits to be full."""
    instance, schedule = served("dynamic@none+batch_wait_timeout_s=0.15", workload="one_request")
    with pytest.raises(AssertionError):
        laws.work_is_conserved(laws.Account(instance, schedule))
    laws.work_is_conserved(laws.Account(*served("static@none", workload="one_request")))
