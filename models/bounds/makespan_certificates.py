"""Certificates of bounds on the makespan, cheap ones first, for what schedules may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.certificates.jobs import all_jobs, released_after
from orsched.certificates.pools import jobs_of, pools
from orsched.certificates.scope import PLAIN, Scope, equal_workers
from orsched.models.bounds.aggregation_bound import charged_certificates, shares_of
from orsched.models.bounds.stages_rounds_bound import (
    by_counts,
    by_ends,
    by_packing,
    larger,
    release_moments,
    shared,
    stages_and_rounds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orsched.certificates.scope import Scope
    from orsched.data.instance import Instance


_MOMENTS = 16
"""Moments of release that are tried, evenly among the arrivals."""


def pool_certificates(
    instance: Instance, out_of_time: Callable[[], bool], scope: Scope
) -> Iterator[dict[str, Any]]:
    """Yield certificates of bounds over what is released at or after some moments."""
    choices = []
    for number, worker in enumerate(instance.workers):
        rows, jobs = jobs_of(instance, worker, scope)
        if rows:
            choices.append({"worker": number, "weight": 1, **shares_of(worker, jobs, scope)})
    arrivals = sorted(set(instance.requests.arrival_ns.tolist()))
    step = max(1, len(arrivals) // _MOMENTS)
    for moment in arrivals[::step]:
        yield pools(instance, {**scope.stated(), "released_ns": moment, "workers": choices})
        if out_of_time():
            return


_CHARGED_SECONDS_A_ROW = 3e-5


class Limits(NamedTuple):
    """What there is time for, and what the schedules may do.

    Attributes:
        out_of_time: whether to begin nothing more.
        seconds_left: seconds until then; work that is expected to take longer is left out.
        search: whether to search for dual prices, too.
        scope: what the schedules may do for which the bounds hold.
    """

    out_of_time: Callable[[], bool]
    seconds_left: Callable[[], float]
    search: bool
    scope: Scope = PLAIN

    def allow(self, instance: Instance, seconds_a_row: float) -> bool:
        """Whether work on every request on every worker can be done in time."""
        rows = len(instance) * len(instance.workers)
        return not self.out_of_time() and rows * seconds_a_row <= self.seconds_left()


def _plain_certificates(instance: Instance, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield certificates of makespan bounds for schedules of stages and rounds."""
    last = last_arrival(instance)
    if not all(PLAIN.has_floor(worker) for worker in instance.workers):
        yield last
        return
    equal, best = equal_workers(instance), last
    if equal:
        for found in by_counts(instance, last, limits.out_of_time):
            best = larger(best, found)
            yield found
    else:
        yield last
    late = int(instance.requests.arrival_ns.max()) > int(instance.requests.arrival_ns.min())
    if (late or not equal) and limits.allow(instance, _CHARGED_SECONDS_A_ROW):
        yield from charged_certificates(instance, limits.out_of_time)
    if equal and limits.search and not limits.out_of_time():
        for found in by_packing(instance, best, limits.seconds_left):
            best = larger(best, found)
            yield found
        yield from by_ends(instance, best, limits.out_of_time)


def _scoped_certificates(instance: Instance, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield certificates of makespan bounds for schedules that do more than plain ones."""
    scope = limits.scope
    yield last_arrival(instance)
    if not all(scope.has_floor(worker) for worker in instance.workers):
        return
    if equal_workers(instance) and not scope.yielding:
        one, workers = instance.replace(workers=instance.workers[0]), len(instance.workers)
        jobs = all_jobs(one)
        for moment in release_moments(one, jobs):
            released = released_after(one, jobs, moment)
            yield shared(stages_and_rounds(one.worker, released, moment, None, scope), workers)
            if limits.out_of_time():
                return
    if limits.allow(instance, _CHARGED_SECONDS_A_ROW):
        yield from charged_certificates(instance, limits.out_of_time, scope)


def _pooled_certificates(instance: Instance, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield certificates of makespan bounds where caches may change workers."""
    yield last_arrival(instance)
    if all(limits.scope.has_floor(worker) for worker in instance.workers):
        yield from pool_certificates(instance, limits.out_of_time, limits.scope)


def last_arrival(instance: Instance) -> dict[str, Any]:
    """Return the certificate that holds under any cost: nothing ends before the last arrival."""
    return {"bound": "last_arrival", "value_ns": int(instance.requests.arrival_ns.max())}


def makespan_certificates(instance: Instance, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield certificates of makespan bounds, the last arrival first, in no order of size.

    Args:
        instance: with requests.
        limits: what there is time for, and what the schedules may do.
    """
    if instance.link is not None:
        return _pooled_certificates(instance, limits)
    if limits.scope.is_plain:
        return _plain_certificates(instance, limits)
    return _scoped_certificates(instance, limits)
