"""Schedules: the timeline of steps and the work of each request in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from orsched.common.columns import IntColumn, int_column, whole_number
from orsched.common.errors import InputError
from orsched.common.registry import attached
from orsched.common.units import MAX_TOKENS, NEVER, NS_PER_S, seconds_text
from orsched.data.autoscaling import OnTime, checked_on_times
from orsched.data.feasibility import fits_some_worker
from orsched.data.instance import require_instance
from orsched.data.links import Transfers
from orsched.data.memory import Eviction

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.data.instance import Instance


class StepPhase(IntEnum):
    """What a step does: codes of the column ``phase`` of ``Steps``."""

    PREFILL = 0
    DECODE = 1
    MIXED = 2


class WorkPhase(IntEnum):
    """What a row of work is: codes of the column ``phase`` of ``Work``."""

    PREFILL = 0
    DECODE = 1
    INVALID = 2


PREFILL = 0  # of both
DECODE = 1
MIXED = StepPhase.MIXED
INVALID = WorkPhase.INVALID
MEASURED_BY = ("device", "clock")
"""Entries of ``run`` that make a schedule a run trace: what a real worker did, and its clock."""

PHASES = tuple(phase.name.lower() for phase in StepPhase)
"""Names of the phase codes of steps."""

WORK_PHASES = tuple(phase.name.lower() for phase in WorkPhase)
"""Names of the phase codes of work rows."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Steps:
    """The timeline: one row a run of equal engine iterations, in order of start (then worker).

    A prefill stage is one row with one round; a decode stage is one row for each run of rounds
    with an unchanged set of active requests, so requests start and finish at row borders only. A
    mixed step prefills beside one round.

    Attributes:
        worker: index of the worker.
        phase: 0 prefill, 1 decode, 2 mixed (``StepPhase``).
        start_ns, end_ns: times of the run.
        rounds: repeat count, 1 but for decode.
    """

    worker: IntColumn
    phase: IntColumn
    start_ns: IntColumn
    end_ns: IntColumn
    rounds: IntColumn

    def __post_init__(self) -> None:
        n = len(int_column(self.worker, "steps.worker"))
        limits = {
            "worker": (0, 2**31),
            "phase": (0, len(PHASES) - 1),
            "start_ns": (0, NEVER - 1),
            "end_ns": (0, NEVER - 1),
            "rounds": (1, NEVER - 1),
        }
        for name, (low, high) in limits.items():
            column = int_column(
                getattr(self, name), f"steps.{name}", minimum=low, maximum=high, length=n
            )
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.worker)

    def __eq__(self, other: object) -> bool:
        return _same_columns(self, other) if isinstance(other, Steps) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


_NOT_GIVEN: IntColumn = np.zeros(0, np.int64)

OPTIONAL_WORK = ("stay", "hit", "turn", "rested", "exit")
"""Columns of ``Work`` that may be left out: 0 everywhere."""


@dataclass(frozen=True, eq=False)
class Work:
    """Work done: one row for each unbroken run of steps that serves a request in one phase.

    A decode row gives the request ``tokens`` tokens (1) in each round of the decode and mixed steps
    of its worker from ``first_step`` to ``last_step``; prefill steps in between do not serve it. A
    prefill row processes ``tokens`` tokens in its one step. An invalid row is like a decode row
    after the last token: the request is held, and what it yields is discarded. Rows are in order
    of request, stay, then step. Chunks are further prefill rows, slices and restarts further decode
    rows.

    A *stay* is an unbroken time of a request on a client, with one cache: an eviction ends it, and
    the next begins with the prefill of the prompt and of all tokens yielded so far.

    Attributes:
        request: row of the request in the instance.
        client: client of the worker.
        phase: 0 prefill, 1 decode, 2 invalid (``WorkPhase``).
        first_step, last_step: rows of ``Steps``, both included.
        tokens: tokens a round.
        stay: number of the request's stay, from 0; all 0 unless given.
        hit: on the first prefill row of a stay, tokens found in the worker's prefix cache, so that
            they are not prefilled; all 0 unless given.
        turn: on the first prefill row of a stay, its place among the stays that begin in that step,
            from 0; all 0 unless given. Written for workers with a prefix cache only, as are the
            next two.
        rested: on the last row of a stay that is evicted, how many steps of its worker begin after
            that row and before the eviction: those in which its prefill, or the request, rests.
            Of one that finishes where steps are planned ahead (``Eviction``): 1 if it has its
            blocks until the next step has taken its own, else 0.
        exit: on the last row of a stay that is evicted, its place, from 0, among those evicted
            before the same step; 0 on all of them where the last admitted goes first. From 1 where
            some of them had finished, of which a step that was planned ahead did not know.
    """

    request: IntColumn
    client: IntColumn
    phase: IntColumn
    first_step: IntColumn
    last_step: IntColumn
    tokens: IntColumn
    stay: IntColumn = field(default_factory=lambda: _NOT_GIVEN)
    hit: IntColumn = field(default_factory=lambda: _NOT_GIVEN)
    turn: IntColumn = field(default_factory=lambda: _NOT_GIVEN)
    rested: IntColumn = field(default_factory=lambda: _NOT_GIVEN)
    exit: IntColumn = field(default_factory=lambda: _NOT_GIVEN)

    def __post_init__(self) -> None:
        n = len(int_column(self.request, "work.request"))
        for name in OPTIONAL_WORK:
            if getattr(self, name) is _NOT_GIVEN:
                object.__setattr__(self, name, np.zeros(n, np.int64))
        limits = {
            "request": 2**31,
            "client": 2**31,
            "phase": len(WORK_PHASES) - 1,
            "first_step": 2**40,
            "last_step": 2**40,
            "tokens": MAX_TOKENS,
            "stay": 2**31,
            "hit": MAX_TOKENS,
            "turn": 2**31,
            "rested": 2**40,
            "exit": 2**31,
        }
        for name, high in limits.items():
            column = int_column(
                getattr(self, name),
                f"work.{name}",
                minimum=1 if name == "tokens" else 0,
                maximum=high,
                length=n,
            )
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.request)

    def __eq__(self, other: object) -> bool:
        return _same_columns(self, other) if isinstance(other, Work) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def _same_columns(a: Steps | Work, b: Steps | Work) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))


@dataclass(frozen=True)
class Schedule:
    """A timeline for an instance, with its method and its reported numbers.

    Attributes:
        instance_sha256: hash of the instance that the schedule is for.
        steps, work: the timeline and the work in it.
        method: name of the method or policy.
        information: what the method knew of output lengths.
        instance_name: label.
        seed: seed of the method's random choices.
        parameters: parameters of the method, plain JSON values.
        results: reported numbers (``orsched.metrics.summary``); each is checked.
        bound: a bound's certificate (``orsched.models.bounds.bounds``), or None.
        run: wall-clock figures and environment; the only part that differs between two runs.
        eviction: the eviction rule that was in force (``Eviction.to_dict``), or None: each
            prefix cache has its own, or there is none.
        lost_steps: worker, start and end of the steps in progress when their worker failed, in this
            order: time that is lost. They are none of ``steps``, for they have done nothing.
        transfers: the caches that went over links, or None where none did.
        on_times: when workers were ordered, on, drained and off (``OnTime``), with autoscaling.
    """

    instance_sha256: str
    steps: Steps
    work: Work
    method: str
    information: str
    instance_name: str = ""
    seed: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    bound: dict[str, Any] | None = None
    run: dict[str, Any] = field(default_factory=dict)
    eviction: dict[str, Any] | None = None
    lost_steps: tuple[tuple[int, int, int], ...] = ()
    transfers: Transfers | None = None
    on_times: tuple[OnTime, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "lost_steps", _lost_steps(self.lost_steps))
        object.__setattr__(self, "on_times", checked_on_times(self.on_times))
        if self.information not in ("none", "predicted", "clairvoyant"):
            raise InputError(
                f"{self.information!r} is not an information class",
                field="information",
                remedy="none, predicted or clairvoyant",
            )
        digest = self.instance_sha256
        if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
            raise InputError(
                "must be a SHA-256 in hexadecimal",
                field="instance_sha256",
                remedy="copy the instance's sha256",
            )
        for name in ("method", "instance_name"):
            if not isinstance(getattr(self, name), str):
                raise InputError("must be a text", field=name)
        object.__setattr__(self, "seed", whole_number(self.seed, "seed"))
        if self.eviction is not None:
            object.__setattr__(self, "eviction", Eviction.from_dict(self.eviction).to_dict())
        for name, kind in (("steps", Steps), ("work", Work)):
            if not isinstance(getattr(self, name), kind):
                raise InputError(f"must be {kind.__name__}", field=name)
        if self.transfers is not None:
            if not isinstance(self.transfers, Transfers):
                raise InputError("must be Transfers", field="transfers")
            if not len(self.transfers):
                object.__setattr__(self, "transfers", None)
        for name in ("first_step", "last_step"):
            column = getattr(self.work, name)
            if column.max(initial=-1) >= len(self.steps):
                row = int(np.argmax(column >= len(self.steps)))
                raise InputError(
                    f"step {column[row]} does not exist",
                    row=row,
                    field=f"work.{name}",
                    remedy=f"the timeline has {len(self.steps)} steps",
                )

    __hash__ = None  # type: ignore[assignment]

    @property
    def is_measured(self) -> bool:
        """Whether a worker executed the steps: ``run`` names device and clock."""
        return all(name in self.run for name in MEASURED_BY)

    @property
    def is_partial(self) -> bool:
        """Whether a run was stopped before all requests were done: ``run`` says so."""
        return self.run.get("complete") is False

    @property
    def makespan_ns(self) -> int:
        """End of the last step."""
        return int(self.steps.end_ns.max(initial=0))

    def replace(self, **changes: Any) -> Schedule:
        """Return a copy with some fields replaced."""
        return replace(self, **changes)

    def bare(self) -> Schedule:
        """Return what was decided alone: a copy without results, bound and ``run`` block."""
        return self.replace(results={}, bound=None, run={})

    def request_times(self, instance: Instance) -> dict[str, IntColumn]:
        """Return client, prefill start and end, first token and finish of every request.

        Columns ``client, prefill_start_ns, prefill_end_ns, first_token_ns, finish_ns``, one row a
        request; -1 where the schedule does not serve a request.
        """
        times: dict[str, IntColumn] = attached("request_times")(instance, self)
        return times

    def __repr__(self) -> str:
        made = "run" if self.is_measured else "schedule"
        who = f"{self.method!r} ({self.information}) for {self.instance_name!r}"
        length = f"makespan {seconds_text(self.makespan_ns / NS_PER_S)} s"
        return f"Schedule: a {made} by {who}, {len(self.steps):,} steps, {length}"

    def _repr_html_(self) -> str:
        table: str = attached("schedule_html")(self)
        return table


def _lost_steps(rows: object) -> tuple[tuple[int, int, int], ...]:
    """Return rows of worker, start and end as whole numbers; raises ``InputError``."""
    remedy = "a list of [worker, start_ns, end_ns]"
    if not isinstance(rows, (list, tuple)):
        raise InputError("must be a list", field="lost_steps", remedy=remedy)
    found = []
    for row in rows:
        if not isinstance(row, (list, tuple)) or len(row) != 3:
            raise InputError(f"{row!r} is not a step", field="lost_steps", remedy=remedy)
        worker, start, end = (
            whole_number(value, "lost_steps", minimum=0, maximum=NEVER - 1) for value in row
        )
        found.append((worker, start, end))
    return tuple(found)


class HasSchedule(Protocol):
    """A result: it is taken wherever a schedule is, and its schedule used."""

    @property
    def schedule(self) -> Schedule | None:
        """The schedule that was made."""
        ...


Scheduled = Schedule | HasSchedule
"""What functions that want a schedule take."""


def as_schedule(value: object, field: str = "schedule") -> Schedule:
    """Return a schedule, or that of a result; ``InputError`` for anything else."""
    for found in (value, getattr(value, "schedule", None), getattr(value, "trace", None)):
        if isinstance(found, Schedule):
            return found
    raise InputError(
        f"{type(value).__name__} is not a schedule",
        field=field,
        remedy="give what solve, simulate or load_schedule returns",
    )


def served_instance(instance: Instance, schedules: Iterable[Schedule]) -> Instance:
    """Return the instance of schedules: the given one, or it without the requests it refuses.

    ``solve`` sets aside what fits onto no worker, and its schedules are for the others.
    """
    require_instance(instance)
    fits = fits_some_worker(instance, chunks=True)
    if fits.all() or not fits.any():
        return instance
    served = instance.admitted()
    own = any(schedule.instance_sha256 == served.sha256 for schedule in schedules)
    return served if own else instance


MADE_ANEW = (
    "give the instance that it was made for; one generated or converted again is the same only "
    "with the same seed, workers, cost, arrivals and predictions"
)


def require_same_instance(
    instance: Instance, schedule: Schedule, file: str | None = None, field: str = "instance_sha256"
) -> None:
    """Raise ``InputError`` that names both instances if a schedule was made for another one."""
    if schedule.instance_sha256 != instance.sha256:
        raise InputError(
            other_instance(instance, schedule),
            file=file,
            field=field,
            remedy=MADE_ANEW,
        )


def other_instance(instance: Instance, schedule: Schedule) -> str:
    """Return in words which instance a schedule is for, and which one this is."""
    return (
        f"the schedule is for another instance, {schedule.instance_name!r} "
        f"({schedule.instance_sha256[:12]}), and this is {instance.name!r} ({instance.sha256[:12]})"
    )
