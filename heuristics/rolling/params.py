"""Parameters of the rolling policy."""

from __future__ import annotations

import math
from dataclasses import dataclass

from orsched.columns import whole_number
from orsched.errors import InputError

BACKGROUNDS = ("process", "thread")


@dataclass(frozen=True)
class RollingParams:
    """Parameters of ``RollingPolicy``.

    Attributes:
        horizon: most waiting requests that a plan is made for; of more, evenly many of each length.
        interval: seconds from one snapshot to the next.
        planning_time: seconds from a snapshot to the moment from which its plan is followed.
        iterations: attempts of the search for one plan.
        background: where plans are made: in a ``process`` of their own, or in a ``thread`` that
            shares the interpreter with the policy.
        tolerance: plans are made while the mean error of the predicted ends is at most this share
            of the usual wait for a stage.
        wait: whether a run waits for a plan that is late, and is reproducible, or goes on without
            it. None: a simulation waits, a real worker does not.
    """

    horizon: int = 2000
    interval: float = 8.0
    planning_time: float = 3.0
    iterations: int = 8
    background: str = "process"
    tolerance: float = 0.1
    wait: bool | None = None

    def __post_init__(self) -> None:
        for name in ("horizon", "iterations"):
            object.__setattr__(self, name, whole_number(getattr(self, name), name, minimum=1))
        tolerance = self.tolerance
        if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or tolerance < 0:
            raise InputError(f"{tolerance!r} is no share", field="tolerance", remedy="at least 0")
        for name in ("interval", "planning_time"):
            _require_seconds(name, getattr(self, name))
        if self.background not in BACKGROUNDS:
            raise InputError(
                f"{self.background!r} is unknown",
                field="background",
                remedy=", ".join(BACKGROUNDS),
            )
        if self.wait is not None and type(self.wait) is not bool:
            raise InputError(f"{self.wait!r} is not true or false", field="wait")


def _require_seconds(name: str, value: object) -> None:
    """Raise ``InputError`` unless a value is a finite number of seconds above 0."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 < value < 1e6:  # type: ignore[arg-type,operator]
        raise InputError(f"{value!r} is no time", field=name, remedy="seconds above 0, below 1e6")
