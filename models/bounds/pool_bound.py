"""Bounds that know which workers prefill and which decode: certificates by moment of release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.certificates.pools import jobs_of, pools
from orsched.models.bounds.aggregate_machine import shares_of

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
