"""An instance on a fleet: so many copies of each machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orsched.data.workers import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.data.instance import Instance


def with_fleet(instance: Instance, fleet: Iterable[list[Any]]) -> Instance:
    """Return an instance on ``count`` copies of each ``[count, name, worker]`` of a fleet."""
    from orsched.common.registry import cost_model

    workers = []
    for count, name, values in fleet:
        worker = Worker.from_dict(values, cost_model)
        workers += [replace(worker, name=f"{name}-{number}") for number in range(count)]
    return instance.replace(workers=tuple(workers))
