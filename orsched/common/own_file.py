"""A Python file of the user's own, loaded from its path alone."""

from __future__ import annotations

import hashlib
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

from orsched.common.errors import InputError
from orsched.common.near_names import file_hint

if TYPE_CHECKING:
    from types import CodeType, ModuleType

_DIGEST = "__source_sha256__"
_FROM = "give the path from the working folder, or from the file that names it"


def module_at(path: str, what: str = "policy") -> ModuleType:
    """Return the module in a file, loaded under a private name.

    It is loaded from that file and no other, hides no module, and can be told from one of the same
    name elsewhere. A file that has changed since is loaded again.

    Raises:
        InputError: there is no such file, it is no Python, or imports what is not there. What else
            its code raises passes through.
    """
    source = _read(path, what)
    real = os.path.realpath(path)
    name = f"_orsched_file_{_hash(os.fsencode(real))[:16]}_{Path(real).stem}"
    known = sys.modules.get(name)
    if known is not None and vars(known).get(_DIGEST) == _hash(source):
        return known
    # Compiled here: a file of bytecode can be older than a change within the same second.
    code = _compiled(source, path, real, what)
    spec = spec_from_file_location(name, real)
    if spec is None:
        raise InputError(
            "is not a Python file", file=path, field=what, remedy="name a file that ends in .py"
        )
    module = module_from_spec(spec)
    vars(module)[_DIGEST] = _hash(source)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(code, vars(module))
    except BaseException as error:
        del sys.modules[name]
        if known is not None:
            sys.modules[name] = known
        if isinstance(error, ImportError):
            raise _not_imported(error, path, real, what) from None
        raise
    return module


def classes_in(path: str, what: str = "policy") -> str:
    """Return the names of the classes in a file, which does not run, with ``or`` in between."""
    import ast

    try:
        found = ast.parse(_read(path, what)).body
    except (SyntaxError, ValueError):
        found = []
    names = [item.name for item in found if isinstance(item, ast.ClassDef)]
    return " or ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names) or "Class"


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read(path: str, what: str) -> bytes:
    if "\0" in path or not os.path.isfile(path):
        problem = "is a folder, no Python file" if os.path.isdir(path) else "no such file"
        remedy = file_hint(path, ".py", _FROM)
        raise InputError(problem, file=path, field=what, remedy=remedy)
    try:
        return Path(path).read_bytes()
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise InputError(problem, file=path, field=what, remedy="check its permissions") from None


def _compiled(source: bytes, path: str, real: str, what: str) -> CodeType:
    try:
        return compile(source, real, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise InputError(
            f"is not valid Python: {error.msg}",
            file=path,
            row=error.lineno,
            field=what,
            remedy="correct the file",
        ) from None
    except ValueError as error:  # a source with null bytes, in older versions of Python
        raise InputError(
            f"is not valid Python: {error}", file=path, field=what, remedy="correct the file"
        ) from None


def _not_imported(error: ImportError, path: str, real: str, what: str) -> InputError:
    """Return what to raise for a file that imports what is not there, with the line."""
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == real:
            line = trace.tb_lineno
        trace = trace.tb_next
    return InputError(
        f"cannot be imported: {error}",
        file=path,
        row=line,
        field=what,
        remedy="install it; a module beside the file is found where the file is named as "
        "module:Class",
    )
