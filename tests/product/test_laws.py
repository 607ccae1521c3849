"""What judges the product does find what is wrong: a leak, and schedules that break each rule."""

from dataclasses import replace

import numpy as np
import pytest

from orsched.checker import check
from orsched.data.schedule import Work
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.simulator import simulate_policy
from tests.by_the_book import DECODE, INVALID, PREFILL, Book, rule_broken_by
from tests.product.cell import Size, instance_of_cell, serve
from tests.product.laws import begun, otherwise, work_is_conserved
from tests.product.test_refusals import plain

SIZE = Size(9, 14, ())


def served(policy="vllm@none+max_num_batched_tokens=7", **modes):
    cell = plain(policy, **modes)
    instance = instance_of_cell(cell, SIZE)
    return instance, serve(instance, cell)


def changed(rows, column, row, value):
    """Rows with another value in a place."""
    values = getattr(rows, column).copy()
    values[row] = value
    return replace(rows, **{column: values})


def test_each_rule_is_broken_by_something():
    instance, schedule = served(memory="paged", workload="poisson")
    assert rule_broken_by(instance, schedule) is None
    work, steps, requests = schedule.work, schedule.steps, instance.requests
    last = work.request == len(instance) - 1
    decode = int(np.flatnonzero(work.phase == DECODE)[0])
    prefill = int(np.flatnonzero(work.phase == PREFILL)[-1])
    late = requests.replace(arrival_ns=steps.end_ns[: len(instance)] + 1)
    without = {name: column[~last] for name, column in vars(work).items()}
    small, _ = served(memory="paged_tight", workload="poisson")
    for rule, of, tables in (
        ("no more prefill than is due", instance, {"work": changed(work, "tokens", prefill, 99)}),
        ("invalid tokens come last", instance, {"work": changed(work, "phase", decode, INVALID)}),
        ("one step at a time", instance, {"steps": changed(steps, "end_ns", 0, 10**15)}),
        ("client", instance, {"work": changed(work, "client", last, 7)}),
        ("numbers of stays", instance, {"work": Work(**without)}),
        ("arrival", instance.replace(requests=late), {}),
        ("memory", small, {}),
    ):
        wrong = schedule.replace(instance_sha256=of.sha256, **tables)
        assert rule_broken_by(of, wrong) == rule
        assert check(of, wrong) != []


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
    other, prefix = otherwise(Book(instance, schedule), 0)
    assert prefix >= 1
    assert (begun(run(other), prefix, 0) != begun(schedule, prefix, 0)) == leaks


def test_rest_is_found():
    """INV-12 is broken by a batch that waits to be full."""
    instance, schedule = served("dynamic@none+batch_wait_timeout_s=0.15", workload="one_request")
    with pytest.raises(AssertionError):
        work_is_conserved(Book(instance, schedule))
    work_is_conserved(Book(*served("static@none", workload="one_request")))
