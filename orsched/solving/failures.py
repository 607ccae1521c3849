"""Methods of a comparison that made no schedule: each with its reason, none the others' end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orsched.common.errors import (
    InputError,
    InvalidScheduleError,
    MissingDependencyError,
    OrschedError,
    PolicyError,
    TimeLimitError,
)
from orsched.common.own_trace import own_part, where

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.solving.method_choice import Chosen
    from orsched.solving.result import Result


@dataclass(frozen=True)
class Failure:
    """A method of a comparison without a schedule.

    Attributes:
        method: what it is called in the comparison.
        reason: why, in full.
        short: why, for a table, which cuts it: without the remedy, an error's place first.
        position: its place among the methods that were asked for, from 0.
        error: what was raised.
        target: the name of the method itself.
        information: what it was to know of output lengths, where the policy itself does not say it.
    """

    method: str
    reason: str
    short: str
    position: int = 0
    error: BaseException = field(default_factory=Exception, repr=False, compare=False)
    target: str = ""
    information: str | None = None

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
    """Return what a method makes, or why it makes nothing.

    A bug in the library passes through, and Ctrl-C.
    """
    try:
        return solve(chosen)
    except (OrschedError, ImportError) as error:
        return _failure(chosen, position, error, str(error), _short(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        trace = own_part(error, chosen.method.name)
        if trace is None:
            raise
        raised = f"{type(error).__name__}: {_words(error)}".rstrip(": ")
        reason, short = f"raised {raised} ({where(trace)})", f"{where(trace)}: {raised}"
        return _failure(chosen, position, error, reason, short)


def _words(error: BaseException) -> str:
    """Return an error's text on one line; its own ``__str__`` may fail, too."""
    try:
        return " ".join(str(error).split())
    except Exception:
        return "its text cannot be read"


def _failure(
    chosen: Chosen, position: int, error: BaseException, reason: str, short: str
) -> Failure:
    method = chosen.method
    told = str(chosen.information) if method.information else None
    return Failure(chosen.label, reason, short, position, error, method.name, told)


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


def failed_row(failure: Failure, names: list[str], *, short: bool = False) -> dict[str, Any]:
    """Return the row of a method that failed: its reason under ``error``, and no figures."""
    who = {"method": failure.method, "information": failure.information}
    reason = failure.short if short else failure.reason
    return {**dict.fromkeys(names), **who, "error": reason}


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
