"""The files of a profile of kernels, as LLMServingSim publishes them, and where they lie.

A variant's folder has a folder ``tp<N>`` for each degree of tensor parallelism, with the tables
``dense.csv``, ``attention.csv``, ``per_sequence.csv`` and, for mixtures of experts, ``moe.csv``.
All-reduce times are measured once a machine, in ``hardware.yaml`` some folders above, or stand in
``all_reduce.csv`` beside the tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orsched.common.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

TABLES = ("dense", "attention", "per_sequence", "moe", "all_reduce")
_NEEDED = ("dense", "attention")
_ABOVE = 6
"""Folders above the tables in which ``hardware.yaml`` is looked for."""

LAYOUT = "DIR/tp1/dense.csv and DIR/tp1/attention.csv"


@dataclass(frozen=True)
class ProfileFiles:
    """The tables of one profile; None: not there.

    Attributes:
        tensor_parallel: GPUs that share each layer.
        unused: files of the layout that no cost is made of.
    """

    dense: Path
    attention: Path
    per_sequence: Path | None = None
    moe: Path | None = None
    all_reduce: Path | None = None
    hardware: Path | None = None
    tensor_parallel: int = 1
    unused: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, str]:
        """Return the tables by name, for reports."""
        found = {name: getattr(self, name) for name in (*TABLES, "hardware")}
        return {name: str(path) for name, path in found.items() if path is not None}


def find_profile(folder: Path, tensor_parallel: int = 1) -> ProfileFiles:
    """Return the tables in a variant's folder, in one above it with no choice, or in ``tp<N>``.

    Raises:
        InputError: no such tables, more than one profile, or none of this tensor parallelism.
    """
    if not folder.is_dir():
        raise InputError("is not a directory", file=str(folder), remedy=LAYOUT)
    own = re.fullmatch(r"tp(\d+)", folder.resolve().name)
    if (folder / "dense.csv").is_file():
        if own is not None and int(own[1]) != tensor_parallel:
            raise _other(folder, tensor_parallel, [folder])
        return _tables(folder, tensor_parallel)
    variants = sorted({path.parent.parent for path in _dense(folder, "**/")})
    if len(variants) > 1:
        names = ", ".join(str(path.relative_to(folder)) for path in variants[:4])
        raise InputError(
            f"holds {len(variants)} profiles: {names}{', ...' if len(variants) > 4 else ''}",
            file=str(folder),
            remedy="give the folder of one of them",
        )
    if not variants:
        raise InputError("holds no profile", file=str(folder), remedy=LAYOUT)
    chosen = variants[0] / f"tp{tensor_parallel}"
    if not (chosen / "dense.csv").is_file():
        raise _other(folder, tensor_parallel, [path.parent for path in _dense(variants[0])])
    return _tables(chosen, tensor_parallel)


def _dense(folder: Path, above: str = "") -> list[Path]:
    return [path for path in folder.glob(f"{above}tp*/dense.csv") if path.is_file()]


def _tables(folder: Path, tensor_parallel: int) -> ProfileFiles:
    found = {name: folder / f"{name}.csv" for name in TABLES}
    for name in _NEEDED:
        if not found[name].is_file():
            raise InputError("is not there", file=str(found[name]), remedy=LAYOUT)
    known = {name: path for name, path in found.items() if path.is_file()}
    above = (parent / "hardware.yaml" for parent in folder.resolve().parents[:_ABOVE])
    unused = sorted(p.name for p in folder.glob("*.csv") if p.stem not in TABLES)
    return ProfileFiles(
        **known,
        hardware=next((path for path in above if path.is_file()), None),
        tensor_parallel=tensor_parallel,
        unused=tuple(unused),
    )


def _other(folder: Path, wanted: int, there: list[Path]) -> InputError:
    names = ", ".join(sorted(path.resolve().name for path in there))
    return InputError(
        f"has no tp{wanted}, but {names}", file=str(folder), field="tp", remedy="--tp of those"
    )
