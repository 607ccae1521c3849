"""Parameters of the rolling policy."""

from __future__ import annotations

from dataclasses import dataclass

from orsched.scalars import require_bool, require_number, require_one_of, set_whole

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
        set_whole(self, "horizon", "iterations", minimum=1)
        require_number(self.tolerance, "tolerance", 0)
        for name in ("interval", "planning_time"):
            require_number(getattr(self, name), name, 0, 1e6, above=True)
        require_one_of(self.background, "background", BACKGROUNDS)
        if self.wait is not None:
            require_bool(self.wait, "wait")
