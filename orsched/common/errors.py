"""Errors that orsched raises on purpose; each says what to do about it.

Of an unknown name it tells the nearest that is known.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_MOST_FILES = 2000
"""Of a folder with more, only so many are looked at."""


def nearest(name: object, known: Iterable[str], most: int = 1) -> list[str]:
    """Return the known names that are closest to one, the best first; case and - do not count."""
    from difflib import get_close_matches  # not needed unless something is wrong

    names = list(known)
    plain: dict[str, str] = {}
    for each in names:
        plain.setdefault(_plain(each), each)
    try:
        wanted = _plain(str(name)[:100])
    except ValueError:  # Python prints no number beyond its limit of digits
        return []
    close = get_close_matches(wanted, plain, n=most)
    begun = [each for each in plain if len(wanted) > 1 and each.startswith(wanted)]
    return [plain[each] for each in [*close, *(b for b in begun if b not in close)][:most]]


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return "did you mean NAME?" with the nearest known name, or nothing where none is near."""
    near = nearest(name, known)
    return f"did you mean {near[0]}?" if near else ""


def known_names(name: object, known: Iterable[str], label: str = "known: ", none: str = "") -> str:
    """Return the remedy for an unknown name: the nearest one, then all, or ``none`` without any."""
    names = list(known)
    listed = label + ", ".join(names) if names else none
    return " ".join(text for text in (did_you_mean(name, names), listed) if text)


def file_hint(path: object, suffix: str = "", otherwise: str = "check the path") -> str:
    """Return the remedy for a missing file: the nearest in its folder with the suffix, if any."""
    import os

    folder, name = os.path.split(str(path))
    try:
        with os.scandir(folder or ".") as entries:
            there = [entry.name for entry, _ in zip(entries, range(_MOST_FILES), strict=False)]
    except (OSError, ValueError):
        return otherwise
    near = nearest(name, sorted(each for each in there if each.endswith(suffix)))
    return f"did you mean {os.path.join(folder, near[0])}?" if near else otherwise


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_")


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
