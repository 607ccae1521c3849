"""Methods: what ``solve`` runs; each declares its information on output lengths."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from orsched.common.errors import TimeLimitError
from orsched.common.lazy_names import callable_module
from orsched.common.registry import attached
from orsched.common.stop import FIRST_S, gap_met, gap_of, tell_bound
from orsched.simulator.policy import Information
from orsched.solving.objectives import MAKESPAN, Objective
from orsched.solving.result import Termination

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Mapping

    from orsched.common.parameters import Parameter
    from orsched.common.stop import Stop
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.schedule_classes import ScheduleClass
    from orsched.data.service_classes import SLO
    from orsched.data.step import Step
    from orsched.simulator.policy import View


class Progress(NamedTuple):
    """What a callback sees after each iteration of a method.

    Attributes:
        method: name of the method.
        iteration: iterations done.
        makespan_ns: the incumbent's makespan, or None.
        improved: whether this iteration found it.
        bound_ns: the best lower bound that is known so far, or None: also where the method plans on
            predicted lengths, since the bound is that of the true ones.
        seconds_spent: since the search began.
        seconds_left: until its time limit; infinity without one.
        value: the incumbent's value of the objective, times in nanoseconds; for the makespan it is
            filled in. ``bound_ns`` and the gap are those of the objective.
    """

    method: str
    iteration: int
    makespan_ns: int | None
    improved: bool
    bound_ns: int | None = None
    seconds_spent: float = 0.0
    seconds_left: float = math.inf
    value: float | None = None

    @property
    def gap(self) -> float | None:
        """(value - bound) / bound, or None while one of them is unknown."""
        return gap_of(self.makespan_ns if self.value is None else self.value, self.bound_ns)


@dataclass
class Run:
    """What a method is given beside the instance.

    Attributes:
        information: the class that the caller asked for, one of the method's.
        stop: when to end; its clock runs.
        seed: seed of random choices.
        parameters: the method's parameters by name.
        callback: called with ``Progress`` after each iteration, or None.
        bound_ns: a proven lower bound on the objective, in whole nanoseconds, or None: a method may
            end when it meets it.
        initial_schedule: a schedule to start from, or None.
        observer: called with the view and the step before each step of a simulation, or None.
        begin: when ``solve`` was called, on the clock ``perf_counter``.
        objective: what to minimise (the attainment: to make largest); one that the method says in
            its attribute ``objectives`` that it can.
        slo: the limits to attain, None for those of the classes.
        has_schedule: whether the caller has a schedule to return where time ends before the
            method has one.
    """

    information: Information
    stop: Stop
    seed: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)
    callback: Callable[[Progress], None] | None = None
    _: KW_ONLY
    bound_ns: int | None = None
    initial_schedule: Schedule | None = None
    observer: Callable[[View, Step], None] | None = None
    begin: float = field(default_factory=perf_counter)
    objective: Objective = MAKESPAN
    slo: SLO | None = None
    has_schedule: bool = False

    def __post_init__(self) -> None:
        if self._true_bound_ns is not None:
            tell_bound(self.stop, self._true_bound_ns)

    @property
    def _true_bound_ns(self) -> int | None:
        """The bound, where the makespans that the method knows can be held against it."""
        return self.bound_ns if self.information is Information.CLAIRVOYANT else None

    def bounded(self, bound_ns: int) -> None:
        """Take a better lower bound, of the search itself; it may end the search."""
        self.bound_ns = max(bound_ns, self.bound_ns or 0)
        tell_bound(self.stop, self.bound_ns)

    def why_ended(self, iteration: int, best_ns: int | None) -> Termination | None:
        """Return why the search ends after an iteration, or None where it goes on; ``best_ns`` is
        the incumbent's value of the objective, times in nanoseconds, rounded up."""
        if not self.stop(iteration, best_ns):
            return None
        if gap_met(self.stop, best_ns):
            return Termination.TARGET_GAP
        return Termination.TIME_LIMIT if self.out_of_time() else Termination.ITERATIONS

    def out_of_time(self) -> bool:
        """Whether a time limit has ended."""
        return self.stop.seconds_left <= 0

    def require_time(self, reserve: float = 0.0) -> None:
        """Raise ``TimeLimitError`` unless more time than a reserve, in seconds, is left; a first
        schedule has ``FIRST_S`` seconds from the call, whatever the limit."""
        left = self.stop.seconds_left
        if left <= reserve and not self.has_schedule:
            left = self.begin + FIRST_S - perf_counter()
        if left <= reserve:
            raise TimeLimitError("the time limit ended before there was a schedule")

    def report(self, progress: Progress) -> None:
        """Call the callback, if there is one, with the bound and the times added."""
        if self.callback is None:
            return
        bound = self._true_bound_ns if progress.bound_ns is None else progress.bound_ns
        if self.objective.is_makespan:
            progress = progress._replace(value=progress.makespan_ns)
        elif progress.value is None:
            bound = None  # of another figure than the makespan that is told
        value = progress.value
        if None not in (bound, value) and not self.objective.largest and value < bound:  # type: ignore[operator]
            bound = None  # of schedules that do less than this one, such as no restarts
        self.callback(
            progress._replace(
                bound_ns=bound,
                seconds_spent=perf_counter() - self.begin,
                seconds_left=self.stop.seconds_left,
            )
        )


class Outcome(NamedTuple):
    """What a method returns: its best schedule and why it ended.

    Attributes:
        proven: the class of schedules of which a search proved this one the best, beyond the
            certified bound; None where none did.
        notes: remarks for the result.
        counted: what the policy counted itself.
    """

    schedule: Schedule
    termination: Termination
    decision_ns: array[int]
    parameters: dict[str, Any]
    proven: ScheduleClass | None = None
    notes: tuple[str, ...] = ()
    counted: Mapping[str, int] = MappingProxyType({})


class Method(Protocol):
    """A way to make a schedule. One that minimises something else than the makespan says so in an
    attribute ``objectives``, a tuple of names from ``orsched.solving.objectives.MINIMISED``."""

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


def objectives_of(method: Method) -> tuple[str, ...]:
    """Return what a method can minimise, by default the makespan; a policy optimises nothing."""
    found: tuple[str, ...] = getattr(method, "objectives", ("makespan",))
    return found


class MethodInfo(NamedTuple):
    """A method, as ``orsched info METHOD`` describes it.

    Attributes:
        name: what ``solve`` takes.
        information: what it may know of output lengths, its default first; empty: its class says.
        workers: ``one``, or ``any`` number.
        searches: whether it gets better with time, until a gap, iterations or a time end it.
        summary: what it does, in a line.
        parameters: name, default and meaning of each.
        paper: where it comes from.
        objectives: what it can minimise (``solve``'s ``objective``); empty: a policy, which takes
            any and goes by its own rule.
    """

    name: str
    information: tuple[str, ...]
    workers: str
    searches: bool
    summary: str
    parameters: tuple[Parameter, ...]
    paper: str = ""
    objectives: tuple[str, ...] = ()

    def __repr__(self) -> str:
        what = f"{self.name}: {self.summary}" if self.summary else self.name
        names = ", ".join(each.name for each in self.parameters)
        return f"Method {what}" + (f"; parameters {names}" if names else "")


class MethodList(list[MethodInfo]):
    """Methods, a line each when they are printed."""

    def __repr__(self) -> str:
        left = max((len(each.name) for each in self), default=0)
        return "\n".join(f"{each.name:{left}}  {each.summary}".rstrip() for each in self)


def methods() -> list[MethodInfo]:
    """Return all methods and registered policies, a row each: ``orsched.methods()``. Importing them
    all may take a second.

    >>> {"fcfs", "hybrid", "exact"} <= {each.name for each in orsched.methods()}
    True
    """
    return MethodList(attached("all_methods")())


callable_module(__name__)
