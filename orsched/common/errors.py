"""Errors that orsched raises on purpose; each says what to do about it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class OrschedError(Exception):
    """Base of all errors that orsched raises on purpose."""


class InputError(OrschedError, ValueError):
    """Input data are wrong; names file, row, field and remedy where they are known.

    Rows count from 0 in columnar data and from 1 in text files, where they are line numbers.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | None = None,
        row: int | None = None,
        field: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.problem = problem
        self.file = file
        self.row = row
        self.field = field
        self.remedy = remedy
        super().__init__(problem)

    def __str__(self) -> str:
        where = [] if self.file is None else [self.file]
        if self.row is not None:
            where.append(f"row {self.row}")
        if self.field is not None:
            where.append(f"field '{self.field}'")
        text = ", ".join(where) + ": " + self.problem if where else self.problem
        return text if self.remedy is None else f"{text} ({self.remedy})"

    def located(self, *, file: str | None = None, row: int | None = None) -> InputError:
        """Return the same error with the file (and row) where it was found."""
        return InputError(
            self.problem,
            file=file if self.file is None else self.file,
            row=row if self.row is None else self.row,
            field=self.field,
            remedy=self.remedy,
        )


class InfeasibleError(OrschedError):
    """No schedule exists for the instance; names the request and the limit."""


class PolicyError(OrschedError):
    """A policy asked for a step that its worker cannot take."""


class InvalidScheduleError(OrschedError):
    """A schedule failed the independent checker; ``violations`` holds the findings."""

    def __init__(self, message: str, violations: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.violations = tuple(violations)


class TimeLimitError(OrschedError):
    """The time limit ended before there was a schedule."""


class ResourceError(OrschedError):
    """The machine failed, not the input: memory, a disk, or a process that was killed."""


class MissingDependencyError(OrschedError, ImportError):
    """An optional package is missing; the message names the extra to install."""


class UnloadableError(MissingDependencyError, ResourceError):
    """A package is installed, but cannot be loaded."""


_OF_THE_PATH = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError,
                PermissionError)  # fmt: skip
_OF_THE_NAME = (errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EXDEV, errno.EROFS)


def is_of_machine(error: BaseException) -> bool:
    """Whether the machine failed, by lack of memory or space say, and not what was asked of it."""
    if isinstance(error, OSError):
        return not isinstance(error, _OF_THE_PATH) and error.errno not in (None, *_OF_THE_NAME)
    starved = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    return starved or isinstance(error, (MemoryError, ResourceError))


def unavailable(error: ImportError, missing: str) -> MissingDependencyError:
    """Return what to raise where a package cannot be imported.

    ``missing`` is for one that is not installed; one that is there may fail to load all the same.
    """
    if isinstance(error, ModuleNotFoundError):
        return MissingDependencyError(missing)
    return UnloadableError(
        f"a package is installed, but cannot be loaded: {error} "
        "(not enough memory, or a damaged installation)"
    )
