"""Code of the user's own, named as ``module:Class`` or ``path/to/own.py:Class``.

Importing a module runs it, whatever it holds. A name that is given on the command line or by a
program is consent to that; a name that stands in a file is not.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError, file_hint, known_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import CodeType, ModuleType, TracebackType


_DIGEST, _SUFFIX = "__source_sha256__", ".py"
_FROM = "give the path from the working folder, or from the file that names it"


def module_at(path: str, what: str = "policy") -> ModuleType:
    """Return the module in a file, loaded under a private name.

    It is loaded from that file and no other, hides no module, and can be told from one of the same
    name elsewhere. A file that has changed since is loaded again. Raises ``InputError`` if there is
    no such file, it is no Python, or imports what is not there; other errors of its code pass
    through.
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
    except (SyntaxError, ValueError) as error:  # a source with null bytes, in older versions
        said, row = getattr(error, "msg", error), getattr(error, "lineno", None)
        problem = f"is not valid Python: {said}"
        remedy = "correct the file"
        raise InputError(problem, file=path, row=row, field=what, remedy=remedy) from None


def _not_imported(error: ImportError, path: str, real: str, what: str) -> InputError:
    """Return what to raise for a file that imports what is not there, with the line."""
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == real:
            line = trace.tb_lineno
        trace = trace.tb_next
    remedy = "install it; a module beside the file is found where the file is named as module:Class"
    return InputError(
        f"cannot be imported: {error}", file=path, row=line, field=what, remedy=remedy
    )


def is_own(name: str) -> bool:
    """Whether a policy's name is ``module:Class`` or a path, no registered one with parameters."""
    return path_in(name) is not None or ":" in name.partition("+")[0]


NAMING_CODE = ("gate",)
"""Parameters of methods that may be ``module:Class``."""


def code_in(parameters: Mapping[str, object]) -> list[str]:
    """Return the values among a method's parameters that name code of the user's own."""
    values = (parameters.get(name) for name in NAMING_CODE)
    return [value for value in values if isinstance(value, str) and ":" in value]


def path_in(name: str) -> str | None:
    """Return the path in ``path/to/own.py:Class``, whatever stands behind the class, or None."""
    end = name.find(f"{_SUFFIX}:")
    if end < 0:
        return None
    path = name[: end + len(_SUFFIX)]
    # In vllm+name=x.py:y the text is a parameter's value.
    return None if "=" in path and not os.path.isfile(path) else path


def at_path(name: str, base: str | os.PathLike[str]) -> str:
    """Return a name whose path, if it has one, is taken from a folder, as an absolute path."""
    path = path_in(name)
    if path is None:
        return name
    return os.path.abspath(os.path.join(base, path)) + name[len(path) :]


def class_of(target: str, base: type, what: str = "policy") -> Any:
    """Return the class derived from ``base`` that ``target`` names; its module is imported."""
    path = path_in(target)
    if path is None:
        module, _, attribute = target.partition(":")
        found = _imported(module, target, base, what)
    else:
        attribute = target[len(path) + 1 :]
        found = module_at(path, what)
    try:
        cls = getattr(found, attribute)
    except AttributeError as error:
        problem = f"{path} has no class {attribute!r}" if attribute else "no class is named"
        problem = str(error) if path is None else problem
        raise InputError(
            f"cannot load {target!r}: {problem}",
            field=what,
            remedy=_near(found, attribute, base),
        ) from None
    require_class(cls, base, target, what)
    return cls


def _imported(module: str, target: str, base: type, what: str) -> ModuleType:
    try:
        return import_module(module)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        remedy = f"give module:Class of a class derived from {base.__name__}"
        if os.path.isfile(f"{module}{_SUFFIX}") and "/" in module:
            remedy = f"give {module}{_SUFFIX}:{target.partition(':')[2]}"
        raise InputError(f"cannot load {target!r}: {error}", field=what, remedy=remedy) from None


def _near(module: ModuleType, name: str, base: type) -> str:
    """Return which classes of a module could have been meant."""
    known = [
        each
        for each, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, base)
        and value.__module__ == module.__name__
    ]
    if not known:
        return f"it has no class derived from {base.__name__}"
    return known_names(name, known, "it has: ")


def require_class(found: object, base: type, target: str, what: str = "policy") -> None:
    """Raise ``InputError`` unless what a name stands for is a class derived from ``base``."""
    if not (isinstance(found, type) and issubclass(found, base)):
        raise InputError(
            f"{target!r} is not a subclass of {base.__name__}",
            field=what,
            remedy=f"give module:Class of a class derived from {base.__name__}",
        )


def source_of(target: str) -> Path | None:
    """Return the file that holds the module of ``target``, or None; nothing is imported."""
    path = path_in(target)
    if path is not None:
        return Path(path) if os.path.isfile(path) else None
    name, *parts = target.partition(":")[0].split(".")
    try:
        spec = find_spec(name)
        for part in parts:
            name = f"{name}.{part}"
            places = None if spec is None else spec.submodule_search_locations
            spec = None if places is None else PathFinder.find_spec(name, list(places))
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return None
    return Path(spec.origin)


def require_consent(targets: Iterable[str], field: str, allowed: bool) -> None:
    """Raise ``InputError`` that says whose code a file names, unless that is allowed."""
    named = [f"{target} ({source_of(target) or 'not found'})" for target in targets]
    if named and not allowed:
        raise InputError(
            f"the file names code to run: {', '.join(named)}",
            field=field,
            remedy="look at it, then add --allow-code; in Python allow_code=True",
        )


def own_part(error: BaseException, target: str | None = None) -> TracebackType | None:
    """Return the traceback from the first frame in the user's code (``target``) on, or None."""
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
