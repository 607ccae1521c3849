"""What ends a search, the schedule that comes before it, and a remark on a gap not reached."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

from orsched.common.errors import OrschedError, TimeLimitError
from orsched.common.registry import resolve
from orsched.common.stop import FirstOf, MaxIterations, MaxRuntime, Stop, TargetGap
from orsched.simulator.policy import Information
from orsched.solving.methods import Outcome
from orsched.solving.result import Termination

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.solving.method_choice import Chosen
    from orsched.solving.methods import Run
    from orsched.solving.result import Result

DEFAULT_ITERATIONS = 18
"""Iterations of methods that search, when neither iterations nor a time limit is given."""

GAP_LIMIT_S = 60.0
"""Time limit of a search that has only a gap to reach: it may be out of reach."""

FIRST_METHODS = ("fcfs", "vllm", "disaggregated")
"""Policies that make the schedule before a search: the first one that suits the instance."""


def criterion_of(
    stop: Stop | None,
    time_limit: float | None,
    iterations: int | None,
    gap: float | None,
    requests: int,
    *,
    endless: bool,
) -> Stop:
    """Return what ends a search of so many requests: a time limit keeps back what checking takes.

    Times are seconds: 5 microseconds a request are kept back, and at most 30 % of the limit.
    A search that has only a gap to reach, and may never reach it, is ``endless``: it gets a limit.
    """
    criteria: list[Stop] = [] if stop is None else [stop]
    if gap is not None:
        criteria.append(TargetGap(gap))
    if iterations is not None:
        criteria.append(MaxIterations(iterations))
    elif time_limit is None and criteria and all(isinstance(c, TargetGap) for c in criteria):
        if endless:
            time_limit = GAP_LIMIT_S
        else:
            criteria.append(MaxIterations(DEFAULT_ITERATIONS))
    if time_limit is not None:
        whole = MaxRuntime(time_limit).seconds
        kept_back = min(0.3 * whole, 0.02 + 5e-6 * requests)
        criteria.append(MaxRuntime(whole - kept_back))
    return FirstOf(tuple(criteria or [MaxIterations(DEFAULT_ITERATIONS)]))


def outcome_in_time(instance: Instance, chosen: Chosen, run: Run) -> Outcome:
    """Run a method; one that searches never returns without a schedule, however short its time is.

    Before it searches under a time limit there is a schedule already: the given one or that of a
    policy. Where time ends before the method has one of its own, that schedule is the outcome.
    """
    method = chosen.method
    if getattr(method, "live", False) or run.stop.seconds_left == math.inf:
        return method(instance, run)
    first = _first(instance, run)
    try:
        return method(instance, replace(run, has_schedule=first is not None))
    except TimeLimitError:
        if first is None:
            raise
        schedule = first.schedule.replace(method=method.name, information=run.information.value)
        source = "the given one"
        if run.initial_schedule is None:
            source = f"that of {first.schedule.method}"
        note = f"time ended before {method.name} had a schedule; this is {source}"
        return Outcome(schedule, Termination.TIME_LIMIT, array("q"), {}, notes=(note,))


def _first(instance: Instance, run: Run) -> Outcome | None:
    """Return the schedule to fall back to, or None where no policy makes one."""
    if run.initial_schedule is not None:
        return Outcome(run.initial_schedule.bare(), Termination.FINISHED, array("q"), {})
    told = replace(run, information=Information.NONE, parameters={}, callback=None, observer=None)
    for name in FIRST_METHODS:
        try:
            found: Outcome = resolve("methods", name)(instance, told)
        except TimeLimitError:
            return None
        except OrschedError:  # it does not suit: the next one may
            continue
        return found
    return None


def why_no_search(chosen: Chosen) -> str | None:
    """Return why a method has no search that a gap could end, or None where it has one."""
    if getattr(chosen.method, "live", False):
        return "policies make one schedule: the target gap ends nothing"
    if chosen.information is not Information.CLAIRVOYANT:
        return "a plan on predicted lengths has no gap while it is sought: the target ends nothing"
    return None


def remark_on_gap(result: Result, target: float | None, no_search: str | None) -> list[str]:
    """Return the remark on a gap that was asked for and not reached."""
    if target is None or result.gap is None or result.gap <= target:
        return []
    if no_search is not None:
        return [no_search]
    if result.termination in (Termination.TARGET_GAP, Termination.INTERRUPTED):
        return []  # within the gap of a bound without a certificate, of which a note tells
    ends = {Termination.TIME_LIMIT: "more time", Termination.ITERATIONS: "more iterations"}
    remedy = ends.get(result.termination, "method windows, if it suits")
    return [f"the gap is {result.gap:.2%}, not the {target:.2%} asked for: try {remedy}"]


def remark_on_iterations(
    result: Result, iterations: int | None, time_limit: float | None
) -> list[str]:
    """Return the remark that a search went on to its own time limit, whatever iterations said."""
    ended_by_time = result.termination is Termination.TIME_LIMIT
    if iterations is None or time_limit is not None or not ended_by_time:
        return []
    name = result.schedule.method
    return [f"{name} counts no iterations: its own time limit ended it; give one to set another"]
