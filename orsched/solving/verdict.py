"""What a method said of its schedule, kept in the schedule's run block for reports and files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.data.schedule_classes import FEATURES, ScheduleClass

if TYPE_CHECKING:
    from orsched.data.schedule import Schedule
    from orsched.solving.result import Result

VERDICT_KEY = "verdict"
"""Its place in the ``run`` block."""

_STATUS = ("optimal", "feasible")


class Verdict(NamedTuple):
    """What is proven of a schedule, for which objective, and why its method ended.

    Attributes:
        objective: name of what was minimised.
        status: ``optimal`` or ``feasible``.
        certified: whether a certificate proves the optimum. Without one a search did, which the
            checker cannot repeat.
        termination: why the method ended.
        features: of the class of schedules of which this one is the best; None: of none.
    """

    objective: str
    status: str
    certified: bool
    termination: str
    features: list[str] | None = None

    @property
    def by_search(self) -> bool:
        """Whether a search alone proved the optimum."""
        return self.status == "optimal" and not self.certified

    @property
    def words(self) -> str:
        """The status with its class, with the objective if not the makespan, and who proved it."""
        by = ", by search without a certificate" if self.by_search else ""
        of = "" if self.objective == "makespan" else f" for {self.objective}"
        known = self.features is not None
        among = f" among {ScheduleClass(frozenset(self.features or ()))}" if known else ""
        return f"{self.status}{of}{among}{by}"

    @property
    def closes_gap(self) -> bool:
        """Whether no shorter schedule is possible by a search, so that the makespan's gap is 0."""
        return self.by_search and self.objective == "makespan"


def verdict_block(result: Result) -> dict[str, Any]:
    """Return what the ``run`` block of a result's schedule has."""
    return Verdict(
        result.objective.name,
        result.status.value,
        result.certified,
        result.termination.value,
        None if result.best_of is None else result.best_of.names,
    )._asdict()


def verdict_of(schedule: Schedule) -> Verdict | None:
    """Return the verdict of a schedule, or None where its file has none that can be read."""
    found = schedule.run.get(VERDICT_KEY)
    if not isinstance(found, dict):
        return None
    values = [found.get(name) for name in Verdict._fields]
    objective, status, certified, termination, features = values
    texts = all(isinstance(value, str) for value in (objective, status, termination))
    if not texts or status not in _STATUS or not isinstance(certified, bool):
        return None
    if not isinstance(features, list) or not all(each in list(FEATURES) for each in features):
        features = None
    return Verdict(str(objective), str(status), certified, str(termination), features)
