"""Opening of text files: anything but UTF-8 is refused, with a guess at what it is."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from orsched.common.errors import InputError
from orsched.common.near_names import file_hint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

HEAD_BYTES = 65_536

_MAGIC = {
    b"\x1f\x8b": ("gzip-compressed", "unpack it with gunzip first"),
    b"BZh": ("bzip2-compressed", "unpack it with bunzip2 first"),
    b"\xfd7zXZ": ("xz-compressed", "unpack it with unxz first"),
    b"\x28\xb5\x2f\xfd": ("zstd-compressed", "unpack it with unzstd first"),
    b"PK\x03\x04": ("a ZIP archive or a spreadsheet", "unpack it, or save the sheet as CSV"),
    b"PAR1": ("a Parquet file", "convert it to CSV, or load it with orsched.load"),
    b"\xff\xfe": ("UTF-16 text", "save it as UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "save it as UTF-8"),
}


def head_of(path: str | PathLike[str]) -> str:
    """Return the first 64 KiB of a text file.

    Raises:
        InputError: there is no such file, or it is empty, compressed, binary or not UTF-8.
    """
    file = str(path)
    try:
        with Path(path).open("rb") as stream:
            head = stream.read(HEAD_BYTES)
    except FileNotFoundError:
        raise InputError("there is no such file", file=file, remedy=file_hint(file)) from None
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}",
            file=file,
            remedy="check the path and the permissions",
        ) from None
    for magic, (what, remedy) in _MAGIC.items():
        if head.startswith(magic):
            raise InputError(f"is {what}, not UTF-8 text", file=file, remedy=remedy)
    if b"\0" in head:
        raise InputError("holds NUL bytes: not text", file=file, remedy="save it as UTF-8 text")
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4 or len(head) < HEAD_BYTES:
            raise _not_utf8(path) from None
        text = head[: error.start].decode("utf-8-sig")
    if not text.strip():
        raise InputError("is empty", file=file, remedy="give a file with at least one request")
    return text


@contextmanager
def open_text(path: str | PathLike[str]) -> Iterator[TextIO]:
    """Open a UTF-8 text file (a byte-order mark is skipped); raises as ``head_of``."""
    head_of(path)
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as stream:
            yield stream
    except UnicodeDecodeError:
        raise _not_utf8(path) from None


def _not_utf8(path: str | PathLike[str]) -> InputError:
    """Name the first line that is not UTF-8."""
    with Path(path).open("rb") as stream:
        good = 0
        for raw in stream:
            try:
                raw.decode()
            except UnicodeDecodeError:
                break
            good += 1
    return InputError("is not UTF-8 text", file=str(path), row=good + 1, remedy="save it as UTF-8")
