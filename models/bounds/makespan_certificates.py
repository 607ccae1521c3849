"""Certificates of bounds on the makespan, cheap ones first, for what schedules may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.certificates.pools import pools
from orsched.models.bounds.aggregation_bound import best_shares, charged_certificates, stated
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

    from orsched.certificates.context import Context
    from orsched.data.instance import Instance


_MOMENTS = 16
"""Moments of release that are tried, evenly among the arrivals."""


def pool_certificates(
    context: Context, out_of_time: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """Yield certificates of bounds over what is released at or after some moments."""
    choices = stated(best_shares(context))
    arrivals = sorted(set(context.arrivals))
    step = max(1, len(arrivals) // _MOMENTS)
    for moment in arrivals[::step]:
        yield pools(context, moment, choices)
        if out_of_time():
            return


_CHARGED_SECONDS_A_ROW = 3e-5


class Limits(NamedTuple):
    """What there is time for.

    Attributes:
        out_of_time: whether to begin nothing more.
        seconds_left: seconds until then; work that is expected to take longer is left out.
        search: whether to search for dual prices, too.
    """

    out_of_time: Callable[[], bool]
    seconds_left: Callable[[], float]
    search: bool

    def allow(self, instance: Instance, seconds_a_row: float) -> bool:
        """Whether work on every request on every worker can be done in time."""
        rows = len(instance) * len(instance.workers)
        return not self.out_of_time() and rows * seconds_a_row <= self.seconds_left()


def _plain_certificates(context: Context, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield certificates of makespan bounds for schedules of stages and rounds."""
    best = last = last_arrival(context)
    if context.equal:
        for found in by_counts(context, last, limits.out_of_time):
            best = larger(best, found)
            yield found
    else:
        yield last
    late = context.arrive_over_time or not context.equal
    if late and limits.allow(context.instance, _CHARGED_SECONDS_A_ROW):
        yield from charged_certificates(context, limits.out_of_time)
    if context.equal and limits.search and not limits.out_of_time():
        for found in by_packing(context, best, limits.seconds_left):
            best = larger(best, found)
            yield found
        yield from by_ends(context, best, limits.out_of_time)


def _scoped_certificates(context: Context, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield certificates of makespan bounds for schedules that do more than plain ones."""
    yield last_arrival(context)
    if context.equal and not context.scope.yielding:
        for moment in release_moments(context.one):
            yield shared(context, stages_and_rounds(context.one, moment))
            if limits.out_of_time():
                return
    if limits.allow(context.instance, _CHARGED_SECONDS_A_ROW):
        yield from charged_certificates(context, limits.out_of_time)


def _pooled_certificates(context: Context, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield certificates of makespan bounds where caches may change workers."""
    yield last_arrival(context)
    yield from pool_certificates(context, limits.out_of_time)


def last_arrival(context: Context) -> dict[str, Any]:
    """Return the certificate that holds under any cost: nothing ends before the last arrival."""
    return {"bound": "last_arrival", "value_ns": max(context.arrivals)}


def makespan_certificates(context: Context, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield certificates of makespan bounds in no order of size, for instances with requests."""
    if not context.has_floors:
        return iter([last_arrival(context)])
    if context.instance.link is not None:
        return _pooled_certificates(context, limits)
    if context.scope.is_plain:
        return _plain_certificates(context, limits)
    return _scoped_certificates(context, limits)
