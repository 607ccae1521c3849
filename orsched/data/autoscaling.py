"""Autoscaling: how many of the workers are on, and how long it takes to start one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.parameters import read_list_of_pairs
from orsched.common.scalars import printed, require_number, require_one_of, set_whole
from orsched.common.units import NEVER, seconds_to_ns, set_times
from orsched.costs.protocol import read_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.workers import Worker

RULES = ("reactive", "policy", "schedule")

MOST_LOOKS = 2_000_000
"""Looks at the load in one run."""


class OnTime(NamedTuple):
    """A time for which a worker (its index) is on; times in nanoseconds.

    It was decided at ``ordered_ns``, the worker was there at ``start_ns``, got no new requests from
    ``drained_ns`` on and was off at ``end_ns``; None: on to the end.
    """

    worker: int
    ordered_ns: int
    start_ns: int
    drained_ns: int | None = None
    end_ns: int | None = None


@dataclass(frozen=True, init=False)
class Autoscaling:
    """A rule that looks at the load every so often, and starts and drains workers.

    The workers of the instance are those that may be on; the first ``least`` are on at 0. At each
    multiple of the interval the open requests are counted, those that have arrived before and are
    not done. A worker counts with ``target`` requests for each of its clients. If those that are on
    or start count with fewer than are open, those that drain are kept, then others are started,
    both in order of index, until it is enough or there are ``most``. If it is enough without the
    last of them, it is drained, and so on down to ``least``; not before ``cooldown_ns`` have passed
    since the last change.

    Attributes:
        least, most: bounds on the number of workers that are on or start; None: all.
        target: open requests for each client.
        startup_ns: time from the decision until a worker is available.
        interval_ns: time between two looks.
        cooldown_ns: least time from a change to a decision to drain.
        rule: reactive, or policy: its ``workers_wanted`` says how many, or schedule.
        schedule: workers that are wanted from 0 and from each look on, the last to the end, without
            a cooldown; empty: not by a schedule.

    The three times may be given in seconds: ``startup_s``, ``interval_s`` and ``cooldown_s``.
    Raises ``InputError`` if a value is wrong, or a time is given in both units.
    """

    startup_ns: int
    least: int = 1
    most: int | None = None
    target: float = 0.7
    interval_ns: int = 10**10
    cooldown_ns: int = 6 * 10**10
    rule: str = "reactive"
    schedule: tuple[int, ...] = ()

    def __init__(
        self,
        *,
        startup_s: float | None = None,
        least: int = 1,
        most: int | None = None,
        target: float = 0.7,
        interval_s: float | None = None,
        cooldown_s: float | None = None,
        rule: str = "reactive",
        startup_ns: int | None = None,
        interval_ns: int = interval_ns,
        cooldown_ns: int = cooldown_ns,
        schedule: Sequence[int] = (),
    ) -> None:
        put = object.__setattr__
        put(self, "least", whole_number(least, "least", minimum=1))
        put(self, "most", most)
        set_whole(self, "most", minimum=self.least, optional=True)
        put(self, "target", require_number(target, "target", 1e-6, 1e6))
        put(self, "schedule", _checked_schedule(schedule, self.least, self.most))
        require_one_of(rule, "rule", RULES)
        if (rule == "schedule") > bool(schedule) or (rule == "policy" and schedule):
            raise InputError(
                f"the rule {rule} has {'a' if schedule else 'no'} schedule",
                field="rule",
                remedy="give a schedule with the rule schedule alone",
            )
        put(self, "rule", "schedule" if schedule else rule)
        set_times(
            self,
            startup=(startup_ns, startup_s),
            interval=(interval_ns, interval_s),
            cooldown=(0, None) if schedule else (cooldown_ns, cooldown_s),
        )
        set_whole(self, "interval_ns", minimum=1)

    def limits(self, workers: Sequence[Worker]) -> tuple[int, int]:
        """Return the least and the most workers; raises ``InputError`` if there are not so many."""
        many, largest = len(workers), max(self.schedule, default=None)
        named = (("least", self.least), ("most", self.most), ("schedule", largest))
        for name, value in named:
            if value is not None and value > many:
                raise InputError(
                    f"autoscaling names {value} workers, and the instance has {many}",
                    field=f"autoscaling.{name}",
                    remedy=f"give it {value} workers (--workers {value}), or name fewer",
                )
        return self.least, many if self.most is None else self.most

    @property
    def first(self) -> int:
        """How many workers are on at 0."""
        return self.schedule[0] if self.schedule else self.least

    def scheduled(self, now_ns: int) -> int:
        """Return how many workers the schedule wants from a look on."""
        return self.schedule[min(now_ns // self.interval_ns, len(self.schedule) - 1)]

    def requests_of(self, worker: Worker) -> int:
        """Return with how many open requests a worker counts, 1 at least."""
        return max(1, int(self.target * worker.clients))

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as plain JSON values."""
        own = {"schedule": list(self.schedule)} if self.schedule else {}
        return {name: getattr(self, name) for name in _FIELDS} | own

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Autoscaling:
        """Inverse of ``to_dict``."""
        return cls(**read_parameters(values, "autoscaling", ["startup_ns"], _OTHERS))


_FIELDS = ["startup_ns", "least", "most", "target", "interval_ns", "cooldown_ns", "rule"]
_OTHERS = [*_FIELDS[1:], "schedule"]


def _checked_schedule(counts: object, least: int, most: int | None) -> tuple[int, ...]:
    """Return numbers of workers, of a list or of text such as ``4/2/1``."""
    parts: Any = counts
    if isinstance(counts, str):
        parts = [int(each) if each.isdecimal() else each for each in counts.split("/")]
    elif isinstance(counts, int) and not isinstance(counts, bool):
        parts = [counts]
    if not isinstance(parts, (list, tuple)):
        raise InputError(
            f"{printed(counts)} is not a schedule", field="schedule", remedy="numbers: 4/2/1"
        )
    highest = NEVER if most is None else most
    return tuple(whole_number(each, "schedule", minimum=least, maximum=highest) for each in parts)


def checked_on_times(rows: object) -> tuple[OnTime, ...]:
    """Return rows of a schedule's ``on_times``; raises ``InputError`` for what are none."""
    remedy = "rows of [worker, ordered_ns, start_ns, drained_ns, end_ns], the last two may be null"
    if not isinstance(rows, (list, tuple)):
        raise InputError("must be a list", field="on_times", remedy=remedy)
    found = []
    for row in rows:
        if not isinstance(row, (list, tuple)) or len(row) != len(OnTime._fields):
            raise InputError(f"{printed(row)} is not a time", field="on_times", remedy=remedy)
        numbers = [
            None
            if value is None and place > 2
            else whole_number(value, "on_times", minimum=0, maximum=NEVER - 1)
            for place, value in enumerate(row)
        ]
        found.append(OnTime(*numbers))  # type: ignore[arg-type]
    return tuple(found)


_SECONDS = {"startup": "startup_ns", "interval": "interval_ns", "cooldown": "cooldown_ns"}
_NAMES = {**_SECONDS, "min": "least", "max": "most"}
_NAMES |= {name: name for name in ("target", "rule", "schedule")}


def read_autoscaling(spec: object) -> Autoscaling:
    """Return the rule of a text (``min=1,max=8,target=0.7,startup=40``, seconds) or a mapping."""
    if isinstance(spec, Autoscaling):
        return spec
    if isinstance(spec, str):
        spec = read_list_of_pairs(spec, "autoscale")
    remedy = "e.g. min=1,max=8,target=0.7,startup=40,interval=10,cooldown=60"
    if not isinstance(spec, Mapping):
        raise InputError(
            f"{printed(spec)} is not a specification", field="autoscale", remedy=remedy
        )
    values: dict[str, Any] = {}
    for name, value in spec.items():
        if name not in _NAMES:
            raise InputError(f"unknown setting {printed(name)}", field="autoscale", remedy=remedy)
        values[_NAMES[name]] = seconds_to_ns(value, name) if name in _SECONDS else value
    if "startup_ns" not in values:
        raise InputError("startup is missing", field="autoscale", remedy=remedy)
    try:
        return Autoscaling(**values)
    except InputError as error:
        own = {theirs: name for name, theirs in _NAMES.items()}
        field = own.get(str(error.field), error.field)
        raise InputError(error.problem, field=field, remedy=error.remedy) from None
