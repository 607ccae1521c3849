"""Whether a machine has cores to spare: times measured on a busy machine hold for a busy one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orsched.runner.devices.settings import cores

if TYPE_CHECKING:
    from orsched.runner.devices.settings import WorkerSettings

_NOISE = 0.25
"""Load that even an idle machine has."""


def load() -> float | None:
    """Return how many processes want a core, over the last minute; None where it is unknown."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def contention(settings: WorkerSettings) -> list[str]:
    """Say what will make a worker's steps take longer than they need to, a sentence each.

    A worker on the CPU wants a core for each of its threads; one on a GPU wants one.
    """
    there, others = cores(), load()
    threads = settings.threads or there
    if settings.device != "cpu":
        threads = 1
    if threads > there:
        return [
            f"{threads} threads share {_cores(there)}: times will vary (--threads {there} or fewer)"
        ]
    if others is None or others <= _NOISE or threads + others <= there + _NOISE:
        return []
    free = max(0, int(there - others))
    remedy = f"--threads {free}, or" if settings.device == "cpu" and free else "wait for"
    return [
        f"others keep {others:.1f} of {_cores(there)} busy, the worker wants {threads}: steps will "
        f"take longer than on a free machine ({remedy} a calmer moment)"
    ]


def _cores(count: int) -> str:
    return f"{count} core" + "s" * (count != 1)
