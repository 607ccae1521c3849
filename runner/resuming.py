"""What ``run`` needs to resume a stopped run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orsched.checker import check
from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.data.schedule import Schedule
from orsched.runner.loop.resume import merge, prompts_of_rest, residual
from orsched.runner.policy_source import digest

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.runner.loop.resume import Rest
    from orsched.runner.worker_pool import RunSettings


@dataclass(frozen=True)
class Resumed:
    """A run to go on with.

    Attributes:
        whole: the instance.
        trace: what was done of it.
        rest: what is left.
        seed: of the prompts, which stay the same.
        has_tokens: whether the requests have yielded any that could be read.
    """

    whole: Instance
    trace: Schedule
    rest: Rest
    seed: int
    has_tokens: bool

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
    """Return what a run that was stopped has left.

    Raises:
        InputError: it was not stopped, is not valid or of another instance or another model, or a
            schedule is to be followed that the run did not follow.
    """
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
    return Resumed(instance, trace, left, seed, settings.worker == "torch")


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
