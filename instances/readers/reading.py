"""A trace read by its format's reader."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from orsched.common import registry
from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.instances.readers.detection import detect
from orsched.instances.readers.formats import FORMATS, format_names

if TYPE_CHECKING:
    from os import PathLike

    from orsched.instances.readers.report import Trace


def read(
    path: str | PathLike[str],
    format: str | None = None,
    *,
    drop_empty: bool = False,
    **options: Any,
) -> Trace:
    """Read the requests of a trace in a foreign format.

    Args:
        path: the file.
        format: a name of ``format_names()``; None: recognised by the header or the field names.
        drop_empty: leave out, and count, requests without prompt or output tokens (failed ones);
            without it they are an error.
        options: of the format's reader (``block_tokens`` for Mooncake).

    Returns:
        ``Trace(requests, report)``: arrivals in nanoseconds after the earliest one in the file,
        rows in the order of the file.

    Raises:
        InputError: the format is unknown or the file is wrong; names file, row (the line number
            from 1), field and remedy.
    """
    name = detect(path) if format is None else format
    if name in FORMATS:
        module, _, attribute = FORMATS[name].reader.partition(":")
        reader = getattr(import_module(module), attribute)
    elif name in registry.names("readers"):
        reader = registry.resolve("readers", name)
    else:
        raise InputError(
            f"there is no format {name!r}",
            field="format",
            remedy=known_names(name, format_names()),
        )
    trace: Trace = reader(path, drop_empty=drop_empty, **options)
    return trace
