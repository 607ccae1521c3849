"""Atomic writing: a file is there in full or not at all."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from itertools import count
from typing import IO, TYPE_CHECKING, Any

from orsched.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_serial = count()


@contextmanager
def opened(path: str | os.PathLike[str], *, binary: bool = False) -> Iterator[IO[Any]]:
    """Open a stream (UTF-8 text, or bytes) that becomes the file when the block succeeds.

    The stream goes to a temporary file in the same folder. When the block raises, that file is
    removed and an old file under ``path`` stays untouched. Links are followed; pipes and devices
    are written directly. Lines end with a line feed on every system.

    Raises ``InputError`` when the file cannot be written.
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
    temporary = os.path.join(os.path.dirname(target), f".orsched-{os.getpid()}-{next(_serial)}.tmp")
    try:
        with _stream(temporary, "x", binary) as stream:
            yield stream
        if mode is not None:
            os.chmod(temporary, stat.S_IMODE(mode))
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


def _mode(name: str) -> int | None:
    """Mode of what lies there now (links followed), or None."""
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError:
        return None
    except ValueError as error:  # a zero byte in the name
        raise InputError(f"no such file name: {error}", file=repr(name)) from None
    if stat.S_ISDIR(mode):
        raise InputError("is a folder", file=name, remedy="name a file in it")
    return mode


def _stream(name: str, mode: str, binary: bool) -> IO[Any]:
    if binary:
        return open(name, mode + "b")
    return open(name, mode, encoding="utf-8", newline="\n")


def _unwritable(name: str, temporary: str, error: OSError) -> Exception:
    """Turn an error of the target into an ``InputError``; leave others as they are."""
    ours = error.filename is None or os.fspath(error.filename) in (name, temporary)
    if not ours or isinstance(error, BrokenPipeError):
        return error
    return InputError(
        f"cannot be written: {error.strerror or error}",
        file=name,
        remedy="choose a folder that exists and may be written to",
    )
