"""Atomic writing: a file is there in full or not at all."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

from orsched.common.errors import InputError, MissingDependencyError, ResourceError, is_of_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


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
