"""What generators read from files: part of a cell's content, so that a change makes new cells."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def read_by(generator: str, arguments: Mapping[str, Any]) -> list[Path]:
    """Return the files that a generator reads with these arguments; none for most.

    Raises ``InputError`` when the directory of the data sets is not known.
    """
    from orsched.instances.sources import mix_files

    mix = arguments.get("mix")
    return mix_files(mix) if generator == "sources" and isinstance(mix, str) else []


def data_hash(generator: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the SHA-256 over the files that a generator reads, None when it reads none.

    Raises ``InputError`` for a file that cannot be read.
    """
    files = read_by(generator, arguments)
    if not files:
        return None
    together = hashlib.sha256()
    for path in files:
        try:
            together.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError as error:
            raise InputError(
                f"cannot be read: {error.strerror or error}",
                file=str(path),
                field="instances.mix",
                remedy="see orsched data: which data sets there are, and where they lie",
            ) from None
    return together.hexdigest()
