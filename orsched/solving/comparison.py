"""Results of several methods on one instance; of those that failed the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orsched.common.errors import (
    InputError,
    InvalidScheduleError,
    MissingDependencyError,
    OrschedError,
    PolicyError,
    TimeLimitError,
    did_you_mean,
)
from orsched.common.own_code import own_part, where
from orsched.common.registry import attached
from orsched.solving.objectives import Objective, fitting_objective, objective_named
from orsched.solving.result import Result, short_time

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from matplotlib.figure import Figure

    from orsched.data.instance import Instance
    from orsched.solving.method_choice import Chosen


@dataclass(frozen=True)
class Failure:
    """A method of a comparison without a schedule."""

    method: str  # what it is called in the comparison
    reason: str  # why, in full
    short: str  # why, for a table, which cuts it: without the remedy, an error's place first
    position: int = 0  # its place among the methods that were asked for, from 0
    error: BaseException = field(default_factory=Exception, repr=False, compare=False)  # raised
    target: str = ""  # the name of the method itself
    information: str | None = None  # what it was to know, where the policy itself does not say it

    @property
    def timed_out(self) -> bool:
        """Whether its time ended before it had a schedule."""
        return isinstance(self.error, TimeLimitError)

    @property
    def invalid(self) -> bool:
        """Whether the checker refused its schedule: a bug in the method."""
        return isinstance(self.error, InvalidScheduleError)

    def __str__(self) -> str:
        return f"{self.method}: {self.reason}"


def attempted(chosen: Chosen, position: int, solve: Callable[[Chosen], Result]) -> Result | Failure:
    """Return what a method makes, or why nothing; bugs of the library and Ctrl-C pass through."""
    try:
        return solve(chosen)
    except KeyboardInterrupt:
        raise
    except (OrschedError, ImportError) as error:
        failed: BaseException = error
        reason, short = str(error), _short(error)
    except BaseException as error:
        trace = own_part(error, chosen.method.name)
        if trace is None:
            raise
        failed = error
        raised = f"{type(error).__name__}: {_words(error)}".rstrip(": ")
        reason, short = f"raised {raised} ({where(trace)})", f"{where(trace)}: {raised}"
    method = chosen.method
    told = str(chosen.information) if method.information else None
    return Failure(chosen.label, reason, short, position, failed, method.name, told)


def _words(error: BaseException) -> str:
    """Return an error's text on one line; its own ``__str__`` may fail, too."""
    try:
        return " ".join(str(error).split())
    except Exception:
        return "its text cannot be read"


def _short(error: Exception) -> str:
    """Return a reason in a few words, without the place and the remedy."""
    if isinstance(error, TimeLimitError):
        return "time limit"
    if isinstance(error, InvalidScheduleError):
        return "schedule not valid"
    if isinstance(error, ImportError) and not isinstance(error, MissingDependencyError):
        return f"needs {error.name}" if error.name else "a package is missing"
    text = error.problem if isinstance(error, InputError) else str(error)
    if isinstance(error, PolicyError):
        text = text.rpartition(" ns: ")[2]  # which policy, step and worker come before
    return " ".join(text.split())


def require_any(failures: list[Failure], results: list[Result]) -> None:
    """Raise what ended the methods if there are some and none made a schedule."""
    if results or not failures:
        return
    text = "; ".join(map(str, failures))
    if all(failure.timed_out for failure in failures):
        raise TimeLimitError(text)
    if len(failures) == 1:
        raise failures[0].error
    raise OrschedError(f"no method made a schedule: {text}")


_SHOWN = 20  # results that are named in the short text of a comparison


@dataclass(frozen=True)
class Comparison(Sequence[Result]):
    """Results of several methods on one instance.

    Attributes:
        results: one for each method that made a schedule, in the order of the methods.
        failed: the methods that made none, each with the reason.
        instance: the problem.
        asked: the objective that ``compare`` was given, or None.
    """

    results: tuple[Result, ...]
    failed: tuple[Failure, ...] = ()
    instance: Instance | None = field(default=None, compare=False)
    asked: Objective | None = None

    @property
    def timed_out(self) -> tuple[str, ...]:
        """The methods that had no schedule when their time ended, each with the reason."""
        return tuple(str(failure) for failure in self.failed if failure.timed_out)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: Any) -> Any:
        """Return results by place or slice, or the one of a method by its name or label."""
        if not isinstance(index, str):
            return self.results[index]
        labels = [result.label or result.schedule.method for result in self.results]
        for names in (labels, [result.schedule.method for result in self.results]):
            if index in names:
                return self.results[names.index(index)]
        for failure in self.failed:
            if index == failure.method:
                raise InputError(
                    f"{index} made no schedule: {failure.reason}",
                    field="method",
                    remedy="take another method of the comparison",
                )
        raise InputError(
            f"{index!r} is not a method of the comparison",
            field="method",
            remedy=did_you_mean(index, labels) or f"known: {', '.join(labels)}",
        )

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def best(self, objective: str | Objective | None = None) -> Result:
        """Return the best result by an objective, the first of several, whatever it knew.

        Tables and reports mark the best of each class of information instead.

        Args:
            objective: e.g. ``jct_mean``, ``ttft_p99``, ``slo_attainment``; None: the one that fits
                the instance (``fitting_objective``). Equals are told apart by mean JCT, then by
                makespan.

        Raises:
            InputError: no such objective, or no result has the figure: there were no limits, say.
        """
        chosen = self.objective if objective is None else objective_named(objective)
        left = list(range(len(self.results)))
        for each in (chosen, objective_named("jct_mean"), objective_named("makespan")):
            found = each.best(self.results[place] for place in left)
            if not found and each is chosen:
                raise InputError(
                    f"no result has the figure {chosen.column}",
                    field="objective",
                    remedy="give limits: slo=SLO(ttft_s=2)" if chosen.of_limits else None,
                )
            left = [left[place] for place in found] or left
        return self.results[left[0]]

    @property
    def objective(self) -> Objective:
        """The objective that was asked for, or that fits: with limits the attainment (the mean JCT
        where all attain them equally, as in tables and reports), with arrivals the mean JCT, else
        the makespan."""
        if self.asked is not None or self.instance is None:
            return self.asked or objective_named("makespan")
        return fitting_objective(self.instance, self.results)

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per method, as ``orsched compare --format json`` prints. A method
        that failed has its reason, in full, under ``error`` and None elsewhere."""
        return self.with_failed([result.to_row() for result in self.results])

    def with_failed(
        self, rows: Sequence[dict[str, Any]], *, short: bool = False
    ) -> list[dict[str, Any]]:
        """Return rows of the results with those of the failed methods between them; ``short``: with
        reasons in a few words, for a table."""
        names = list(rows[0]) if rows else ["method"]
        found = [{**row, "error": None} for row in rows]
        for failure in self.failed:
            who = {"method": failure.method, "information": failure.information}
            reason = failure.short if short else failure.reason
            row = {**dict.fromkeys(names), **who, "error": reason}
            found.insert(failure.position, row)
        return found

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a data frame."""
        import pandas as pd

        return pd.DataFrame(self.to_rows())

    def plot(self, kind: str = "latency", **options: Any) -> Figure:
        """Return a matplotlib figure with a line for each result.

        Args:
            kind: ``latency`` (distributions, and the attainment over multiples of the limits),
                ``timeline`` (running and waiting requests, KV blocks) or ``history`` (value and
                bound over the time of each search).
            options: of ``orsched.latency``, ``orsched.timeline_chart`` or
                ``orsched.views.figures.history_chart``.
        """
        names = [result.label or result.schedule.method for result in self.results]
        schedules = [result.schedule for result in self.results]
        figure: Figure = attached("figure_of")(
            self.instance, schedules, kind, {"names": names, **options}
        )
        return figure

    def __repr__(self) -> str:
        if not self.results:
            return "Comparison(no results)"
        name, objective = self.results[0].schedule.instance_name, self.objective
        classes = objective.best_by_information(self.results)
        best = {
            place: f"  ({objective.words}{f', information {known}' if len(classes) > 1 else ''})"
            for known, places in classes
            for place in places[:1]
        }
        lines = [f"Comparison of {len(self.results)} methods on {name!r}:"]
        for place, result in enumerate(self.results[:_SHOWN]):
            mark, told = best.get(place, ""), result.information
            who = result.label or result.schedule.method
            known = "" if f"@{told}" in who else f" [{told}]"
            lines.append(f"  {who}{known}: {short_time(result)}{mark}")
        if len(self.results) > _SHOWN:
            lines.append(f"  and {len(self.results) - _SHOWN} more")
        lines += [f"  {failure.method}: failed, {failure.short}" for failure in self.failed]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return str(self.to_pandas().to_html(index=False))
