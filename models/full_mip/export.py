"""Export of the full MIP to MPS and LP files, through SCIP."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from orsched.errors import InputError
from orsched.models.full_mip.formulation import FORMULATIONS, FullMip
from orsched.models.full_mip.problem import read_problem
from orsched.models.full_mip.scip_backend import load
from orsched.models.full_mip.size import full_mip_size
from orsched.scalars import require_one_of, require_suffix

if TYPE_CHECKING:
    from orsched.instance import Instance

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
    target = Path(path)
    suffix = require_suffix(target, SUFFIXES)
    require_one_of(formulation, "formulation", FORMULATIONS)
    problem = read_problem(instance)
    count = max(1, len(problem)) if stages is None else stages
    size = full_mip_size(problem, count, formulation, symmetry_breaking)
    if size.nonzeros > max_nonzeros:
        raise InputError(
            f"the model has {size.variables} variables, {size.rows} rows, {size.nonzeros} nonzeros",
            field="instance",
            remedy="take fewer requests or stages, or raise max_nonzeros",
        )
    model = FullMip(problem, count, formulation, symmetry_breaking)
    scip, _ = load(model.model, instance.name)
    offset = problem.to_ns(0) / problem.unit_ns
    if offset:
        scip.addObjoffset(offset)
    _write(scip, target, suffix)
    return problem.unit_ns


def _write(scip: object, target: Path, suffix: str) -> None:
    """Write beside the target, then put the file in its place."""
    try:
        folder = Path(mkdtemp(prefix=".orsched-", dir=target.parent or "."))
    except OSError as error:
        raise InputError(f"cannot write: {error.strerror}", file=str(target)) from None
    made = folder / f"model{suffix}"
    try:
        scip.writeProblem(str(made), verbose=False)  # type: ignore[attr-defined]
        os.replace(made, target)
    except OSError as error:
        raise InputError(f"cannot write: {error.strerror}", file=str(target)) from None
    finally:
        with contextlib.suppress(OSError):
            made.unlink()
        folder.rmdir()
