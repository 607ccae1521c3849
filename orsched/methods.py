"""Methods: what ``solve`` runs; each declares its information on output lengths."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Mapping

    from orsched.instance import Instance
    from orsched.policy import Information, View
    from orsched.result import Termination
    from orsched.schedule import Schedule
    from orsched.step import Step
    from orsched.stop import Stop


class Progress(NamedTuple):
    """What a callback sees after each iteration of a method.

    Attributes:
        method: name of the method.
        iteration: iterations done.
        makespan_ns: the incumbent's makespan, or None.
        improved: whether this iteration found it.
    """

    method: str
    iteration: int
    makespan_ns: int | None
    improved: bool


@dataclass
class Run:
    """What a method is given beside the instance.

    Attributes:
        information: the class that the caller asked for, one of the method's.
        stop: when to end; its clock runs.
        seed: seed of random choices.
        parameters: the method's parameters by name.
        callback: called with ``Progress`` after each iteration, or None.
        bound_ns: a proven lower bound, or None: a method may end when it meets it.
        initial_schedule: a schedule to start from, or None.
        observer: called with the view and the step before each step of a simulation, or None.
    """

    information: Information
    stop: Stop
    seed: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)
    callback: Callable[[Progress], None] | None = None
    bound_ns: int | None = None
    initial_schedule: Schedule | None = None
    observer: Callable[[View, Step], None] | None = None

    def out_of_time(self) -> bool:
        """Whether a time limit has ended."""
        return self.stop.seconds_left <= 0

    def report(self, progress: Progress) -> None:
        """Call the callback, if there is one."""
        if self.callback is not None:
            self.callback(progress)


class Outcome(NamedTuple):
    """What a method returns: its best schedule and why it ended.

    Attributes:
        proven: whether a solver proved the schedule optimal, beyond the certified bound.
        notes: remarks for the result.
        counted: what the policy counted itself.
    """

    schedule: Schedule
    termination: Termination
    decision_ns: array[int]
    parameters: dict[str, Any]
    proven: bool = False
    notes: tuple[str, ...] = ()
    counted: Mapping[str, int] = MappingProxyType({})


class Method(Protocol):
    """A way to make a schedule."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def information(self) -> tuple[Information, ...]:
        """The classes that it can run with, the default first; none: its policy declares it."""

    @property
    def summary(self) -> str:
        """One line for help texts."""

    def __call__(self, instance: Instance, run: Run) -> Outcome:
        """Make a schedule; raises ``TimeLimitError`` when time ends before there is one."""
