"""Policies and methods that a command runs: names, users' own code, errors and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from orsched.cli.ending import (
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    EXIT_INVALID,
    EXIT_MACHINE,
    EXIT_TIME_LIMIT,
)
from orsched.cli.output import say, show_lines
from orsched.common.errors import InputError, OrschedError, is_of_machine
from orsched.common.own_code import code_in, is_own, origin_of, own_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import TracebackType

    from orsched.solving.comparison import Comparison, Failure


def working_folder_last(names: Iterable[str]) -> None:
    """Let imports find modules in the working folder if one of the names is ``module:Class``.

    It comes last: a ``json.py`` there is not part of Python or of a package.
    """
    folder = os.getcwd()
    if any(":" in name for name in names) and folder not in sys.path and "" not in sys.path:
        sys.path.append(folder)


def parameters_in(name: str | None) -> dict[str, Any]:
    """Return the parameters in a method's specification; none in the user's own or no name."""
    if name is None or "+" not in name or is_own(name):
        return {}
    from orsched.solving.method_choice import read_spec

    return read_spec(name).parameters


@contextmanager
def own_code(names: Iterable[str], parameters: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Run what may be code of the user's own, if a name or a parameter is ``module:Class``.

    It may lie in the working folder; its errors are shown as its own; prints go to stderr.
    """
    named = list(names)
    own = [name for name in named if is_own(name)]
    for given in (parameters or {}, *map(parameters_in, named)):
        own += code_in(given)
    if not own:
        yield
        return
    working_folder_last(own)
    with blamed_on(*own), redirect_stdout(sys.stderr):
        yield


def require_named(source: str, information: str | None, parameters: dict[str, Any]) -> None:
    """Refuse, before anything is loaded, names that are unknown or given twice."""
    from orsched.solving.method_choice import require_choice

    said_once(source, information, parameters)
    require_choice(source, information, parameters)


def require_search(methods: Iterable[str], options: dict[str, object]) -> None:
    """Refuse options that end a search, by their names, where none of the methods searches."""
    from orsched.solving.method_choice import method_named, read_spec

    given = next((name for name, value in options.items() if value is not None), None)
    if given is None:
        return
    named = [name for name in methods if not is_own(name)]  # the user's own are policies
    if any(not getattr(method_named(read_spec(name).name), "live", False) for name in named):
        return
    raise InputError(
        f"{', '.join(methods)}: a policy makes one schedule, and no search ends by this",
        field=given,
        remedy="leave it out, or name a method that searches, such as hybrid or latency_search",
    )


def said_once(method: str, information: str | None, parameters: dict[str, Any]) -> None:
    """Refuse a setting that the method's specification and an option both give."""
    from orsched.solving.method_choice import read_spec

    spec = read_spec(method)
    twice = ["--information"] if spec.information and information else []
    twice += [f"--param {name}" for name in parameters if name in spec.parameters]
    if twice:
        raise InputError(f"{method!r} already says this", field=twice[0], remedy="give it once")


@contextmanager
def blamed_on(*targets: str) -> Iterator[None]:
    """Show an error that some policies' code raised, with that part of its traceback.

    Others pass: they are bugs in orsched. A policy that asks Python to exit has failed, too.
    """
    try:
        yield
    except (OrschedError, KeyboardInterrupt):
        raise
    except BaseException as error:
        target = targets[0] if len(targets) == 1 else _solving(error) or ", ".join(targets)
        start = own_part(error, target)
        # A source that is no text has no file name.
        in_syntax = isinstance(error, SyntaxError) and error.filename in (origin_of(target), None)
        if start is None and not in_syntax:
            raise
        show_traceback(error, start)
        raise InputError(
            f"{target!r} raised {type(error).__name__}: {error}".rstrip(": "),
            field="policy",
            remedy="see the lines above",
        ) from None


def show_traceback(error: BaseException, start: TracebackType | None) -> None:
    """Print an error with a part of its traceback on stderr."""
    lines = traceback.TracebackException(type(error), error, start).format(chain=False)
    show_lines("".join(lines))


def _show_failure(failure: Failure) -> None:
    """Print the user's part of a traceback on stderr if a method failed in code of the user's."""
    if not isinstance(failure.error, (OrschedError, ImportError)):
        start = own_part(failure.error, failure.target)
        if start is not None:
            show_traceback(failure.error, start)


def _solving(error: BaseException) -> str | None:
    """Return the name of the method that ``solve`` was running, if it had one."""
    from orsched.solving.solver import solve

    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is solve.__code__:
            method = frame.f_locals["method"]
            return method if isinstance(method, str) else None
    return None


def exit_code_of(results: Comparison, where: str = "") -> int:
    """Name the methods that made no schedule; return the exit code.

    It is 130 after Ctrl-C, 1 after a schedule that the checker refused, 71 where the machine
    failed, 2 after other failures, 3 where all of them ran out of time.
    """
    from orsched.solving.result import Termination

    for failure in results.failed:
        _show_failure(failure)
        say(f"{where}{failure}")
    if any(r.termination is Termination.INTERRUPTED for r in results):
        return EXIT_INTERRUPTED
    if any(failure.invalid for failure in results.failed):
        return EXIT_INVALID
    if any(is_of_machine(failure.error) for failure in results.failed):
        return EXIT_MACHINE
    if any(not failure.timed_out for failure in results.failed):
        return EXIT_INPUT
    return EXIT_TIME_LIMIT if results.failed else 0
