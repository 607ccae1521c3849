"""What all native documents share: versions, cost models, and writing in full or not at all."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import shown, whole_number
from orsched.common.errors import InputError, MissingDependencyError, ResourceError, is_of_machine
from orsched.files.text import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from orsched.costs import CostModel


@contextmanager
def opened(path: str | os.PathLike[str], *, binary: bool = False) -> Iterator[IO[Any]]:
    """Open a stream (UTF-8 text, or bytes) that becomes the file when the block succeeds.

    It goes to a temporary file in the same folder. When the block raises, that file is removed and
    an old file under ``path`` stays untouched. Links are followed; pipes and devices are written
    directly. Lines end with a line feed on every system. Raises ``InputError`` when the file cannot
    be written, ``ResourceError`` if the disk fails.
    """
    name = os.fspath(path)
    try:
        mode = _mode(name)
        if mode is not None and not stat.S_ISREG(mode):
            with _stream(name, "w", binary) as direct:
                yield direct
            return
    except OSError as error:
        raise _unwritable(name, name, error) from None
    target = os.path.realpath(name)
    try:
        temporary, stream = _temporary(os.path.dirname(target), mode, binary)
    except OSError as error:
        raise _unwritable(name, str(error.filename), error) from None
    try:
        with stream:
            yield stream
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise _unwritable(name, temporary, error) from None
        raise


def write_bytes(path: str | os.PathLike[str], chunks: bytes | Iterable[bytes]) -> None:
    """Write bytes, whole or in chunks, atomically; raises ``InputError`` as ``opened`` does."""
    with opened(path, binary=True) as stream:
        for chunk in (chunks,) if isinstance(chunks, bytes) else chunks:
            stream.write(chunk)


def write_text(path: str | os.PathLike[str], chunks: str | Iterable[str]) -> None:
    """Write UTF-8 text, whole or in chunks, atomically; raises ``InputError`` as ``opened``."""
    with opened(path) as stream:
        for chunk in (chunks,) if isinstance(chunks, str) else chunks:
            stream.write(chunk)


def hold(held: int | IO[bytes], folder: str | os.PathLike[str], does: str) -> None:
    """Lock an open file or folder for this process, until it closes it or ends; ``InputError``
    where another process holds it, with what that ``does``."""
    try:
        import fcntl
    except ImportError:
        raise MissingDependencyError("this needs the file locks of a POSIX system") from None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            f"another process {does}",
            file=os.fspath(folder),
            remedy="wait for it, or choose another folder",
        ) from None


def _mode(name: str) -> int | None:
    """Mode of what lies there now (links followed), or None."""
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError:
        return None
    except ValueError as error:  # a zero byte in the name
        raise InputError(
            f"no such file name: {error}", file=repr(name), remedy="choose another name"
        ) from None
    if stat.S_ISDIR(mode):
        raise InputError("is a folder", file=name, remedy="name a file in it")
    return mode


def _temporary(folder: str, mode: int | None, binary: bool) -> tuple[str, IO[Any]]:
    """Make a file of an unused name, from the start with the final permissions to read.

    Processes on one folder may have the same number (in containers), and files be left behind.
    """
    allowed = 0o666 if mode is None else stat.S_IMODE(mode)

    def made(path: str, flags: int) -> int:
        descriptor = os.open(path, flags, allowed)
        if mode is not None and stat.S_IMODE(os.fstat(descriptor).st_mode) != allowed:
            try:
                os.chmod(path, allowed)  # what the umask took away
            except BaseException:
                os.close(descriptor)
                os.unlink(path)
                raise
        return descriptor

    while True:
        path = os.path.join(folder, f".orsched-{os.urandom(8).hex()}.tmp")
        with suppress(FileExistsError):
            return path, _stream(path, "x", binary, made)


def _stream(
    name: str, mode: str, binary: bool, opener: Callable[[str, int], int] | None = None
) -> IO[Any]:
    if binary:
        return open(name, mode + "b", opener=opener)
    return open(name, mode, encoding="utf-8", newline="\n", opener=opener)


def _unwritable(name: str, temporary: str, error: OSError) -> Exception:
    """Turn an error of the target into an ``InputError``; leave others as they are."""
    ours = error.filename is None or os.fspath(error.filename) in (name, temporary)
    if not ours or isinstance(error, BrokenPipeError):
        return error
    problem = f"cannot be written: {error.strerror or error}"
    if is_of_machine(error):
        return ResourceError(f"{name}: {problem} (free some space, or choose another disk)")
    return InputError(
        problem,
        file=name,
        remedy="choose a folder that exists and may be written to",
    )


VERSION = 1
"""Version of the native formats."""

READERS = {
    "orsched/instance": "load_instance",
    "orsched/schedule": "load_schedule",
    "orsched/trace": "load_schedule",
    "orsched/cost": "load_cost",
    "orsched/predictor": "predict.load_predictor",
}


_INSTEAD = {
    ("orsched/schedule", "orsched/instance"): "give the instance that the schedule was made for; ",
    ("orsched/trace", "orsched/instance"): "give the instance that was run; ",
    ("orsched/instance", "orsched/schedule"): "give a schedule for this instance; ",
}
"""What to give in the place of a file of another kind."""

_OF_OTHERS = {
    "orsched/instance": "; write the requests of another tool as CSV with prompt_tokens, "
    "output_tokens and arrival_s"
}
"""What to do with a file of another tool."""


def require_format(document: object, *formats: str) -> dict[str, Any]:
    """Return the document if it is an object of one of the formats, in a version we read."""
    if not isinstance(document, dict):
        raise InputError("must be a JSON object", remedy="see the file formats")
    found = document.get("format")
    if found not in formats:
        if isinstance(found, str) and found in READERS:
            problem = f"is {found!r}, not {formats[0]!r}"
            remedy = f"{_INSTEAD.get((found, formats[0]), '')}use {READERS[found]} in Python"
        else:
            problem = f"{shown(found)} is not a format of orsched"
            remedy = f'give "format": "{formats[0]}"'
            if found is None:
                problem = "is missing: this is not a file of orsched"
                remedy += _OF_OTHERS.get(formats[0], "")
        raise InputError(problem, field="format", remedy=remedy)
    version = whole_number(
        document.get("version"), "version", minimum=1, remedy=f'give "version": {VERSION}'
    )
    if version > VERSION:
        raise InputError(
            f"written by a newer orsched (version {version}; this one reads up to {VERSION})",
            field="version",
            remedy="upgrade orsched",
        )
    return document


def text_field(values: dict[str, Any], name: str, default: str = "", owner: str = "") -> str:
    """Return a text of a mapping; raises ``InputError`` for anything else."""
    value = values.get(name, default)
    if not isinstance(value, str):
        raise InputError(
            f"must be a text, not {kind(value)}", field=owner + name, remedy="put it in quotes"
        )
    return value


def column_field(values: dict[str, Any], name: str, owner: str = "") -> Any:
    """Return a column (a list or an array); raises ``InputError`` for anything else."""
    value = values[name]
    if not isinstance(value, (list, np.ndarray)):
        raise InputError(
            f"must be a list, not {kind(value)}", field=owner + name, remedy="one value per row"
        )
    return value


def object_field(values: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object of a mapping, {} when it is absent; ``InputError`` for anything else."""
    return require_object(values.get(name, {}), name)


def require_object(value: object, field: str) -> dict[str, Any]:
    """Return the value if it is an object; raises ``InputError`` for anything else."""
    if not isinstance(value, dict):
        raise InputError(
            f"must be an object, not {kind(value)}", field=field, remedy="see the file formats"
        )
    return value


def column_lists(table: object, names: Iterable[str]) -> dict[str, Any]:
    """Return the named columns of an object as lists."""
    return {name: getattr(table, name).tolist() for name in names}


def at_field(error: InputError, field: str | None, remedy: str | None = None) -> InputError:
    """Return the same error at another field, with a remedy if it had none."""
    return InputError(
        error.problem, file=error.file, row=error.row, field=field, remedy=error.remedy or remedy
    )


def kind(value: object) -> str:
    """Return what JSON calls a value."""
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text"}
    return names.get(type(value), "an object" if isinstance(value, dict) else "a list")


FORMAT = "orsched/cost"
HEADER = ("format", "version", "model", "fit")


def cost_class(name: str) -> Any:
    """Return the class of a cost model; raises ``InputError`` with the known names."""
    from orsched.common.registry import cost_model

    try:
        return cost_model(name)
    except InputError as error:
        raise at_field(error, "cost.model") from None


def cost_document(cost: CostModel, fit: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the document of a cost model, with the report of its fit if there is one."""
    parameters = plain(cost.to_dict(), "cost")
    for name in parameters:
        if name in HEADER:
            raise InputError(
                "the name is taken by the file format", field=name, remedy="rename the parameter"
            )
    document = {"format": FORMAT, "version": VERSION, "model": cost.model}
    document |= {name: parameters[name] for name in cost.to_dict()}
    return document if fit is None else document | {"fit": plain(fit, "fit")}


def cost_from_document(document: object) -> tuple[CostModel, dict[str, Any] | None]:
    """Inverse of ``cost_document``: the model and the report of its fit or None."""
    values = require_format(document, FORMAT)
    if "model" not in values:
        raise InputError("is missing", field="model", remedy="name the cost model")
    name = text_field(values, "model")
    fit = object_field(values, "fit") if "fit" in values else None
    try:
        owner = cost_class(name)
    except InputError as error:
        raise at_field(error, "model") from None
    cost = owner.from_dict({key: item for key, item in values.items() if key not in HEADER})
    return cost, None if fit is None else plain(fit, "fit")
