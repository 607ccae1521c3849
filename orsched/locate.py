"""``load``: an instance by name or by path."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orsched.errors import InputError

if TYPE_CHECKING:
    import os

    from orsched.instance import Instance


def load(source: str | os.PathLike[str]) -> Instance:
    """Return the instance in a file (native JSON or Parquet), or a shipped one by its name.

    A text with a suffix or a folder in it is a path; everything else is a name.

    Raises:
        InputError: there is no such file or name, or the file is wrong.
    """
    path = Path(source)
    if _is_path(source):
        from orsched.files import load_instance

        return load_instance(path)
    from orsched.instances.catalog import load_named

    try:
        return load_named(str(source))
    except InputError as error:
        raise InputError(
            error.problem,
            field="instance",
            remedy=f"{error.remedy}; or give the path of an instance file"
            if error.remedy
            else "give a shipped name or the path of an instance file",
        ) from None


def is_native(source: str | os.PathLike[str]) -> bool:
    """Whether ``load`` is meant for this source: a shipped name, or a native instance file."""
    from orsched.instances.catalog import names

    path = Path(source)
    if path.suffix == ".parquet":
        return True
    if path.is_file():
        with path.open("rb") as stream:
            return b'"orsched/' in stream.read(4096)
    return str(source) in names()


def _is_path(source: str | os.PathLike[str]) -> bool:
    path = Path(source)
    return path.suffix in (".json", ".parquet") or path.name != str(source) or path.exists()
