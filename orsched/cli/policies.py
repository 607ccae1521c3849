"""Policies of users: found in the working folder; their own errors are shown as theirs."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from orsched.cli.output import show_lines
from orsched.errors import InputError, OrschedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType


def working_folder_last(names: Iterable[str]) -> None:
    """Let imports find modules in the working folder if one of the names is ``module:Class``.

    It comes last: a ``json.py`` that lies there is no part of Python or of a package.
    """
    folder = os.getcwd()
    if any(":" in name for name in names) and folder not in sys.path and "" not in sys.path:
        sys.path.append(folder)


@contextmanager
def blamed_on(target: str) -> Iterator[None]:
    """Show an error that a policy's code raised with the user's part of its traceback.

    What comes from elsewhere passes through: it is a bug in orsched. A policy that asks Python to
    exit has failed, too: an exit code of its choice would say something else.
    """
    try:
        yield
    except (OrschedError, KeyboardInterrupt):
        raise
    except BaseException as error:
        origin = _origin(target)
        start = _first_own(error.__traceback__, origin)
        # A source that is no text has no file name.
        in_syntax = isinstance(error, SyntaxError) and error.filename in (origin, None)
        if start is None and not in_syntax:
            raise
        lines = traceback.TracebackException(type(error), error, start).format(chain=False)
        show_lines("".join(lines))
        raise InputError(
            f"{target!r} raised {type(error).__name__}: {error}".rstrip(": "),
            field="policy",
            remedy="see the lines above",
        ) from None


def _origin(target: str) -> str | None:
    """Return the file of the policy's module."""
    try:
        spec = find_spec(target.partition(":")[0])
    except Exception:  # of the packages around the module, which this imports
        return None
    return None if spec is None else spec.origin


def _first_own(trace: TracebackType | None, origin: str | None) -> TracebackType | None:
    """Return the traceback from the first frame in the user's code on, or None."""
    paths = sysconfig.get_paths()
    others = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    others.append(str(Path(__file__).parents[1]))
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        elsewhere = name.startswith("<") or any(Path(name).is_relative_to(f) for f in others)
        if name == origin or not elsewhere:
            return trace
        trace = trace.tb_next
    return None
