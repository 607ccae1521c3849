"""A cell of the product: a policy on an instance, and everything that must hold of it."""

from __future__ import annotations

import json
from typing import NamedTuple

from orsched.common.registry import resolve
from orsched.common.stop import MaxIterations
from orsched.models.bounds.bounds import bound_for, makespan_bound
from orsched.simulator.policy import Information
from orsched.solving.method_choice import read_spec
from orsched.solving.methods import Run
from tests.by_the_book import Book, require_reported
from tests.product.laws import begun, otherwise, work_is_conserved
from tests.product.modes import FACTORS, instance_of
from tests.product.policies import SHARING, conserves_work

ITERATIONS = 2
SEED = 1


class Size(NamedTuple):
    """How large the instances are, and where the boundary of information is tried."""

    requests: int  # most of them
    limit: int  # most output tokens of each
    cuts: tuple[float, ...]  # shares of the steps after which the rest of the lengths change


def instance_of_cell(cell, size):
    """Return the cell's instance; equal modes, the same object."""
    modes = {name: cell[name] for name in FACTORS}
    return instance_of(**modes, n=size.requests, limit=size.limit)


def serve(instance, cell):
    """Return the schedule of the cell's policy, as a method makes it."""
    spec = read_spec(cell["policy"])
    parameters = {**spec.parameters, **SHARING[cell["sharing"]]}
    stop = MaxIterations(ITERATIONS)
    stop.start()
    run = Run(Information(spec.information), stop, SEED, parameters)
    outcome = resolve("methods", spec.name)(instance, run)
    return outcome.schedule.replace(seed=SEED, parameters=outcome.parameters)


def judge(cell, size):
    """Assert all that the documentation states of every schedule."""
    instance = instance_of_cell(cell, size)
    schedule = serve(instance, cell)
    assert content(serve(instance, cell)) == content(schedule), "INV-9: same seed, same bytes"
    book = Book(instance, schedule)  # by all rules
    bound = bound_for(instance, schedule, bound_of(instance))
    assert bound.value_ns <= schedule.makespan_ns, "INV-10: bounds hold"
    reported = schedule.replace(bound=bound.to_dict())
    require_reported(instance, reported)  # a literal reading, INV-15, and the checker on it
    if conserves_work(cell["policy"], cell["sharing"]):
        work_is_conserved(book)
    if schedule.information != "clairvoyant":
        for cut in size.cuts:
            information_is_bounded(cell, book, schedule, cut)


def information_is_bounded(cell, book, schedule, cut):
    """INV-8: with other lengths of all that is not done, all that is begun by then is the same."""
    moment = int(schedule.steps.start_ns[int(cut * len(schedule.steps))])
    changed, prefix = otherwise(book, moment)
    if changed is not None:
        other = serve(changed, cell)
        done, known = begun(other, prefix, moment), begun(schedule, prefix, moment)
        assert done == known, f"INV-8 before {moment} ns"


def content(schedule):
    """Return all of a schedule but the block ``run``, as bytes."""
    tables = (schedule.steps, schedule.work)
    columns = b"".join(column.tobytes() for table in tables for column in vars(table).values())
    labels = (schedule.method, schedule.information, schedule.parameters, schedule.seed)
    return json.dumps(labels).encode() + columns


_BOUNDS = {}


def bound_of(instance):
    """Return the bound on schedules of stages and rounds, computed once an instance."""
    if instance.name not in _BOUNDS:
        _BOUNDS.clear()  # cells come instance by instance
        _BOUNDS[instance.name] = makespan_bound(instance)
    return _BOUNDS[instance.name]
