"""The full MIP as an MPS or LP file."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from orsched.common.errors import InputError
from orsched.common.scalars import require_suffix

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.data.instance import Instance

SUFFIXES = (".mps", ".lp")


def write_full_mip(
    instance: Instance,
    path: str | os.PathLike[str],
    stages: int | None = None,
    *,
    formulation: str = "compact",
    symmetry_breaking: bool = True,
    max_nonzeros: int = 10_000_000,
) -> int:
    """Write the full MIP with K = ``stages`` bins (default: n) and return its unit of time in ns.

    The suffix says the format: ``.mps`` or ``.lp``. The objective, its constant included, times
    the unit is the makespan in nanoseconds. The file is replaced as a whole.

    Raises:
        InputError: the suffix or the formulation is unknown, the instance does not map, the model
            is larger than ``max_nonzeros``, or the file cannot be written.
    """
    from orsched.models.mip.files import file_lines
    from orsched.models.mip.programs import read_program

    target = Path(path)
    suffix = require_suffix(target, SUFFIXES)
    program = read_program(
        instance,
        "full-mip",
        stages=stages,
        formulation=formulation,
        symmetry_breaking=symmetry_breaking,
        max_nonzeros=max_nonzeros,
    )
    _write(target, suffix, file_lines(program, suffix.removeprefix(".")))
    return program.unit_ns


def _write(target: Path, suffix: str, lines: Iterable[str]) -> None:
    """Write beside the target, then put the file in its place."""
    try:
        folder = Path(mkdtemp(prefix=".orsched-", dir=target.parent or "."))
    except OSError as error:
        raise InputError(
            f"cannot write: {error.strerror}",
            file=str(target),
            remedy="choose a folder that exists and may be written to",
        ) from None
    made = folder / f"model{suffix}"
    try:
        with made.open("w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(lines)
        os.replace(made, target)
    except OSError as error:
        raise InputError(
            f"cannot write: {error.strerror}",
            file=str(target),
            remedy="choose a folder that exists and may be written to",
        ) from None
    finally:
        with contextlib.suppress(OSError):
            made.unlink()
        folder.rmdir()
