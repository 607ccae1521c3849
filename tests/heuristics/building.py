"""What tests of policies share: batch builders without a run, and checked runs of policies."""

from array import array

from orsched import AffineCost, Information, View, Worker, check
from orsched.common.registry import resolve
from orsched.heuristics.batch_builder import BatchBuilder
from orsched.simulator import simulate_policy
from orsched.simulator.policy import WorkerState
from tests.by_the_book import Book
from tests.product.laws import begun, otherwise


def batch_of(prompts, cap=None, clients=100, blocks=None, **worker):
    """A builder for requests with these prompts, and blocks to set aside for each."""
    state = WorkerState(Worker(clients, AffineCost(), cap, **worker), "decode", 9)
    column = memoryview(array("q", prompts))
    own = None if blocks is None else memoryview(array("q", blocks))
    return BatchBuilder(View(state, column, column, own))


def built(instance, name, known=None, /, **params):
    """A fresh policy of a registered method, which knows as little as it can unless said."""
    method = resolve("methods", name)
    return method.build(instance, Information(known or method.information[0]), params, 0)[0]


def solved(instance, policy, known=None, /, observer=None, **params):
    """The schedule of a policy or of a method's name, which the checker accepts."""
    if isinstance(policy, str):
        policy = built(instance, policy, known, **params)
    schedule = simulate_policy(instance, policy, observer).schedule
    assert check(instance, schedule) == []
    return schedule


def same(one, other):
    """Whether two schedules agree in every row."""
    return (one.steps, one.work) == (other.steps, other.work)


def require_sound(instance, make, *, cut=0.3, observer=None):
    """INV-8, INV-9: a policy's schedule is accepted, comes again, and is blind to the future: with
    other lengths of all that are not done after ``cut`` of the steps, what is begun is the same."""
    schedule = solved(instance, make(instance), observer=observer)
    assert same(solved(instance, make(instance)), schedule)
    if schedule.information != "clairvoyant" and len(schedule.steps):
        moment = int(schedule.steps.start_ns[int(cut * len(schedule.steps))])
        changed, prefix = otherwise(Book(instance, schedule), moment)
        if changed is not None:
            other = simulate_policy(changed, make(changed)).schedule
            assert begun(other, prefix, moment) == begun(schedule, prefix, moment), moment
    return schedule


def rows_of(table, *columns):
    """The rows of a table as tuples of these columns."""
    return list(zip(*(getattr(table, name).tolist() for name in columns), strict=True))


def steps_of(schedule, *columns):
    return rows_of(schedule.steps, *columns)


def starts_of(schedule):
    """When each request first gets a step, in the order in which they do."""
    starts, work = {}, schedule.work
    for step, request in sorted(zip(work.first_step.tolist(), work.request.tolist(), strict=True)):
        starts.setdefault(request, int(schedule.steps.start_ns[step]))
    return starts


def workers_of(schedule):
    """The worker that each request was on last."""
    work = schedule.work
    owners = schedule.steps.worker[work.first_step].tolist()
    return dict(zip(work.request.tolist(), owners, strict=True))
