"""What decides for the workers: a schedule that is followed or a policy, and what is planned."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

import numpy as np

from orsched.checker import check
from orsched.common.columns import whole_number
from orsched.common.errors import InputError, InvalidScheduleError
from orsched.data.schedule import Schedule
from orsched.heuristics.policy_method import LiveMethod
from orsched.runner.loop.following import FollowSchedule, plan_of_rest
from orsched.runner.loop.resume import merge, prompts_of_rest, residual
from orsched.simulator.policy import Policy
from orsched.solving.method_choice import choose
from orsched.solving.solver import solve

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.data.instance import Instance
    from orsched.runner.loop.resume import Rest
    from orsched.runner.worker_pool import RunSettings
    from orsched.solving.methods import Method, Progress

    Source = Schedule | str | Method | Policy | type[Policy]


class PolicySource(NamedTuple):
    """What decides in a run."""

    policy: Policy  # a fresh policy object
    parameters: dict[str, Any]  # its parameters, as the trace names them
    plan: Schedule  # what is followed, or what the policy does by the cost model; with its bound
    follows: bool  # whether the policy repeats the plan, whatever time the steps take
    whole: Schedule | None = None  # of which ``plan`` is what a stopped run had left

    def noted(self) -> dict[str, Any]:
        """Return what a trace says of the plan; ``resumable`` recognises it by that."""
        plan = self.plan if self.whole is None else self.whole
        return {"makespan_ns": plan.makespan_ns, "followed": self.follows, "sha256": digest(plan)}


def digest(schedule: Schedule) -> str:
    """Return the SHA-256 of a schedule's steps and work, by which a trace names its plan."""
    found = sha256(schedule.instance_sha256.encode())
    for table in (schedule.steps, schedule.work):
        for name, column in sorted(vars(table).items()):
            found.update(name.encode())
            found.update(np.ascontiguousarray(column, dtype="<i8").tobytes())
    return found.hexdigest()


def source_of_rest(instance: Instance, schedule: Schedule, rest: Rest) -> PolicySource:
    """Return what continues a schedule of which a run left a rest; raises as ``plan_of_rest``."""
    plan = plan_of_rest(instance, schedule, rest)
    return _follow(rest.instance, plan)._replace(whole=schedule)


class MethodOptions(TypedDict, total=False):
    """What a method may be told, as in ``solve``."""

    seed: int
    information: str | None
    parameters: dict[str, Any] | None
    iterations: int | None
    time_limit: float | None
    gap: float | None
    callback: Callable[[Progress], None] | None


def policy_source(
    instance: Instance, source: Source, **options: Unpack[MethodOptions]
) -> PolicySource:
    """Return what decides for the workers of an instance.

    A schedule is followed. Methods that are policies decide live; of the others a schedule is made
    first, which is then followed. A policy object is copied for the plan.

    Raises:
        InputError: the schedule is for another instance, or an argument is wrong.
        InvalidScheduleError: the schedule breaks a rule.
        And what ``solve`` raises.
    """
    information, parameters = options.get("information"), options.get("parameters")
    if isinstance(source, Schedule):
        if information is not None or parameters:
            raise InputError(
                "a schedule has its information and parameters",
                field="parameters",
                remedy="leave them out",
            )
        _require_valid(instance, source)
        return _follow(instance, source)
    chosen = choose(source, information, parameters)
    planned = deepcopy(source) if isinstance(source, Policy) else source
    plan = solve(instance, planned, **options).schedule
    if not isinstance(chosen.method, LiveMethod) or not chosen.method.live:
        return _follow(instance, plan)
    build = chosen.method.build
    policy, values = build(instance, chosen.information, chosen.parameters, plan.seed)
    return PolicySource(policy, values, plan, False)


def _require_valid(instance: Instance, plan: Schedule) -> None:
    """Refuse a schedule that breaks a rule; ``FollowSchedule`` names one for another instance."""
    if plan.instance_sha256 != instance.sha256:
        return
    faults = check(instance, plan, times="measured" if plan.is_measured else "model")
    if faults:
        message = f"the schedule is not valid: {faults[0].message} (see orsched check)"
        raise InvalidScheduleError(message, faults)


def _follow(instance: Instance, plan: Schedule) -> PolicySource:
    return PolicySource(FollowSchedule(instance, plan), plan.parameters, plan, True)


@dataclass(frozen=True)
class Resumed:
    """A run to go on with."""

    whole: Instance  # the instance
    trace: Schedule  # what was done of it
    rest: Rest  # what is left
    seed: int  # of the prompts, which stay the same
    has_tokens: bool  # whether the requests have yielded any that could be read

    @property
    def instance(self) -> Instance:
        """What is left, as an instance of its own."""
        return self.rest.instance

    def prompts(self, vocabulary: int) -> list[list[int]] | None:
        """Return the prompts of what is left; None where they are not needed."""
        if not self.has_tokens:
            return None
        return prompts_of_rest(self.rest, self.trace, self.seed, vocabulary)

    def merged(self, timeline: Schedule) -> Schedule:
        """Return both runs as one."""
        return merge(self.whole, self.trace, timeline)


def rest_of(instance: Instance, trace: Schedule, source: object, settings: RunSettings) -> Resumed:
    """Return what a run that was stopped has left."""
    if not trace.is_partial:
        raise InputError("this run was not stopped", field="resume", remedy="give a partial trace")
    _require_notes(trace)
    left = residual(instance, trace)
    faults = check(instance, trace, times="measured")
    if faults:
        raise InputError(
            f"the run that was stopped is not valid: {faults[0].message}",
            field="resume",
            remedy="orsched check --times measured lists what is wrong",
        )
    if isinstance(source, Schedule):
        _require_followed(trace, source)
    for name in ("worker", "model"):
        had, has = trace.run.get(name), getattr(settings, name)
        if had is not None and had != has:
            raise InputError(
                f"the run had the {name} {had!r}", field=name, remedy=f"--{name} {had}"
            )
    seed = whole_number(trace.run.get("seed", 0), "run.seed")
    return Resumed(instance, trace, left, seed, settings.worker != "virtual")


def _require_notes(trace: Schedule) -> None:
    """Raise ``InputError`` unless what a run noted has the form that the runner writes."""
    events, unfinished = trace.run.get("events", []), trace.run.get("unfinished", {})
    if not isinstance(events, list) or not all(map(_is_event, events)):
        raise _wrong("must be a list of objects with time_ns", "run.events")
    if not isinstance(unfinished, dict):
        raise _wrong("must be an object: tokens by request", "run.unfinished")
    for request, tokens in unfinished.items():
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise _wrong("must be a list of tokens", f"run.unfinished.{request}")


def _is_event(event: object) -> bool:
    return isinstance(event, dict) and type(event.get("time_ns")) is int


def _wrong(problem: str, field: str) -> InputError:
    return InputError(problem, field=field, remedy="resume a trace that the runner wrote")


def _require_followed(trace: Schedule, plan: Schedule) -> None:
    """Raise ``InputError`` unless a run followed this schedule."""
    noted = trace.run.get("plan")
    noted = noted if isinstance(noted, dict) else {}
    remedy = "give the instance and a policy"
    if not noted.get("followed"):
        raise InputError(
            "the run that was stopped followed no schedule: its policy decided live",
            field="resume",
            remedy=remedy,
        )
    if "sha256" not in noted or noted["sha256"] != digest(plan):
        raise InputError(
            "the run that was stopped followed another schedule",
            field="resume",
            remedy=f"give the one that it followed, or {remedy}",
        )
