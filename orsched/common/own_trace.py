"""Whose error it was: that of a policy of the user's own, or one in the library."""

from __future__ import annotations

import os
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from orsched.common.own_code import path_in

if TYPE_CHECKING:
    from types import TracebackType


def own_part(error: BaseException, target: str | None = None) -> TracebackType | None:
    """Return the traceback from the first frame in the user's code on, or None.

    ``target`` is the ``module:Class`` that was asked for, if it has such a name.
    """
    trace, origin = error.__traceback__, origin_of(target)
    paths = sysconfig.get_paths()
    others = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    library = find_spec("orsched")
    others += [] if library is None else library.submodule_search_locations or []
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        elsewhere = name.startswith("<") or any(Path(name).is_relative_to(f) for f in others)
        if name == origin or not elsewhere:
            return trace
        trace = trace.tb_next
    return None


def origin_of(target: str | None) -> str | None:
    """Return the file of the module that ``module:Class`` or a path names, or None."""
    if target is None:
        return None
    path = path_in(target)
    if path is not None:
        return os.path.realpath(path)
    try:
        spec = find_spec(target.partition(":")[0])
    except Exception:  # of the packages around the module, which this imports
        return None
    return None if spec is None else spec.origin


def where(trace: TracebackType) -> str:
    """Return file and line of the last frame that is in the same file as the first."""
    file, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
    following: TracebackType | None = trace
    while following is not None:
        if following.tb_frame.f_code.co_filename == file:
            line = following.tb_lineno
        following = following.tb_next
    return f"{os.path.basename(file)}, line {line}"
