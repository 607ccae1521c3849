"""Failures and repairs of workers, drawn: ``exponential:mtbf=3600,mttr=120``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import require_number
from orsched.common.units import NS_PER_S
from orsched.data.instance import require_instance
from orsched.instances.streams import read_spec, stream

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.workers import Interval

_MOST = 1_000_000
"""Failures of all workers together."""

MANY = 50_000
"""Of so many it is said beforehand: each takes a fraction of a millisecond to simulate."""

_LOG = logging.getLogger("orsched")


@dataclass(frozen=True)
class Exponential:
    """Times to failure and times to repair are exponential, and independent of one another.

    Attributes:
        mtbf: mean time from a start or a repair to the next failure, in seconds.
        mttr: mean time from a failure until the worker is available again, its start included.
        horizon: seconds after the last arrival in which a worker may still fail; later it stays.
    """

    law: ClassVar[str] = "exponential"
    mtbf: float
    mttr: float
    horizon: float = 3600.0

    def __post_init__(self) -> None:
        for name in ("mtbf", "mttr"):
            require_number(getattr(self, name), name, 1e-6, 1e9)
        require_number(self.horizon, "horizon", 0, 1e9)

    def intervals(self, seed: int, worker: int, until_ns: int) -> tuple[Interval, ...]:
        """Return when a worker is available; ``()`` where it does not fail before the horizon."""
        draws, start = stream(f"failures/{worker}", seed), 0
        found: list[Interval] = []
        while True:
            up, down = draws.standard_exponential(2)
            end = start + max(1, round(up * self.mtbf * NS_PER_S))
            if end >= until_ns:
                return (*found, (start, None)) if found else ()
            found.append((start, end))
            start = end + max(1, round(down * self.mttr * NS_PER_S))


FAILURES = {Exponential.law: Exponential}


def read_failures(spec: str | Mapping[str, Any] | Exponential) -> Exponential:
    """Return the law that a specification names; ``mtbf=600,mttr=60`` alone is exponential."""
    if isinstance(spec, str) and ":" not in spec and "=" in spec:
        spec = f"{Exponential.law}:{spec}"
    elif isinstance(spec, Mapping) and spec and "law" not in spec:
        spec = {"law": Exponential.law, **spec}
    law: Exponential = read_spec(
        spec,
        Exponential,
        FAILURES,
        field="failures",
        what="law of failures",
        example="exponential:mtbf=3600,mttr=120",
    )
    return law


def with_failures(
    instance: Instance, failures: str | Mapping[str, Any] | Exponential, seed: int = 0
) -> Instance:
    """Return the instance whose workers, there all the time so far, fail and are repaired.

    ``failures`` is what ``read_failures`` takes. Each worker has its own random stream, so that
    more workers change nothing for the others. Raises ``InputError`` if the specification is wrong,
    a worker has such times already, or they are too many.
    """
    require_instance(instance)
    law = read_failures(failures)
    number = whole_number(seed, "seed", remedy="give a whole number of at least 0")
    if instance.autoscaling is not None:
        raise InputError(
            "autoscaling and failures are not simulated together",
            field="failures",
            remedy="leave one of both out",
        )
    if instance.fleet_changes:
        raise InputError(
            "its workers have times already", field="available_ns", remedy="leave one of both out"
        )
    until_ns = int(instance.requests.arrival_ns.max(initial=0)) + round(law.horizon * NS_PER_S)
    expected = len(instance.workers) * until_ns / ((law.mtbf + law.mttr) * NS_PER_S)
    if expected > _MOST:
        raise InputError(
            f"about {expected:,.0f} failures are too many",
            field="failures",
            remedy="raise mtbf or mttr, or give a horizon",
        )
    if expected > MANY:
        _LOG.warning(
            "about %s failures until %.0f s: simulating them takes long (raise mtbf or mttr, or "
            "give a horizon)",
            f"{expected:,.0f}",
            until_ns / NS_PER_S,
        )
    workers = tuple(
        replace(worker, available_ns=law.intervals(number, index, until_ns))
        for index, worker in enumerate(instance.workers)
    )
    return instance.replace(workers=workers)
