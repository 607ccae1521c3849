"""Fresh interpreters for work beside this process.

A child imports what this process would import, and nothing from the working folder that this
process would not: its paths of imports are set before its first import. It imports the function
that it calls by name; unlike ``multiprocessing``'s spawn it never imports the caller's
``__main__``, so scripts need no guard.
"""

from __future__ import annotations

import os
import sys


def interpreter(function: str, *arguments: int) -> list[str]:
    """Return the command line of a fresh interpreter that calls a function.

    Args:
        function: ``module:name``.
        arguments: whole numbers, for example file descriptors.
    """
    module, _, name = function.partition(":")
    call = f"from {module} import {name}; {name}(*{arguments!r})"
    code = f"import sys; sys.path[:] = sys.argv[1:]; {call}"
    return [sys.executable, *_flags(), "-c", code, *import_paths()]


def import_paths() -> list[str]:
    """Return the paths of imports, the working folder by its name."""
    try:
        here = [os.getcwd()]
    except FileNotFoundError:  # it was removed
        here = []
    return [entry for path in sys.path for entry in ([path] if path else here)]


def _flags() -> list[str]:
    """Return this interpreter's isolation; ``-c`` alone would look into the working folder first.

    ``-I`` is not for all: it would leave out the user's packages, whose ``.pth`` files make
    editable installs importable.
    """
    if sys.flags.isolated:
        return ["-I"]
    own = {"-E": sys.flags.ignore_environment, "-s": sys.flags.no_user_site}
    return ["-P", *(flag for flag, is_set in own.items() if is_set)]
