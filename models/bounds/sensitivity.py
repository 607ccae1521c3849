"""How a proven bound changes with the clients, the prefill cap and the memory of the workers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.columns import frame
from orsched.common.errors import InfeasibleError, InputError
from orsched.common.registry import attached
from orsched.common.scalars import require_number
from orsched.common.stop import MaxRuntime
from orsched.models.bounds.bounds import bound

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from orsched.data.instance import Instance
    from orsched.data.workers import Worker
    from orsched.models.bounds.bounds import Bound

FACTORS = (0.5, 0.75, 1.0, 1.5, 2.0)
MOST_FACTORS = 100
FIELDS = ("clients", "prefill_cap_tokens", "memory_blocks")


class Changed(NamedTuple):
    """A bound with one thing changed on all workers."""

    field: str  # one of ``FIELDS``
    factor: float
    value: int  # of the first worker
    bound_ns: int | None  # None where a request does not fit any more
    bound: str  # its kind
    change: float | None  # relative to the bound as the workers are


@dataclass(frozen=True)
class Sensitivity:
    """A bound as it is, and with what the workers have changed; ``rows`` by field and factor."""

    objective: str
    bound_ns: int
    rows: tuple[Changed, ...] = field(repr=False)

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame with the rows."""
        columns = zip(*self.rows, strict=True) if self.rows else ([] for _ in Changed._fields)
        return frame(dict(zip(Changed._fields, columns, strict=True)))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the bound over the factor, a line for each field; return the axes."""
        drawn: Axes = attached("sensitivity_chart")(self, ax)
        return drawn


def sensitivity(
    instance: Instance,
    objective: str = "makespan",
    factors: Iterable[float] = FACTORS,
    time_limit: float | None = None,
    allows: Iterable[str] = (),
) -> Sensitivity:
    """Return proven bounds with clients, prefill cap and memory times some factors, one at a time.

    What no worker has, a cap or a memory, is left out. Products are rounded to the nearest whole
    number, at least 1. No schedule of the changed workers ends before the new bound. A bound that
    stays says that more of this alone takes no schedule below it.

    >>> import orsched
    >>> found = sensitivity(orsched.load("pang-100x20"), factors=[2])
    >>> [(row.field, row.value) for row in found.rows if row.bound_ns < found.bound_ns]
    [('clients', 40)]

    Args:
        instance: one or several workers.
        objective, allows: as ``bound`` has them.
        factors: above 0.
        time_limit: seconds for each bound.

    Raises:
        InputError: as ``bound``, or a factor is not a number above 0.
        InfeasibleError: no request fits onto any worker as it is.
    """
    if time_limit is not None:
        MaxRuntime(time_limit)  # validates
    given = factors if isinstance(factors, Iterable) else [factors]
    chosen = [require_number(factor, "factors", 1e-6, 1e6) for factor in given]
    if not 0 < len(chosen) <= MOST_FACTORS:
        raise InputError(
            f"{len(chosen)} factors", field="factors", remedy=f"give 1 to {MOST_FACTORS}"
        )
    allowed = tuple(allows)
    instance = instance.admitted()
    base = bound(instance, objective, time_limit, allowed)
    rows: list[Changed] = []
    for name in FIELDS:
        for factor in sorted(chosen):
            workers = [_changed(worker, name, factor) for worker in instance.workers]
            value = _value(workers[0], name)
            if all(_value(worker, name) is None for worker in instance.workers):
                break
            changed = instance.replace(workers=workers)
            same = changed.workers == instance.workers
            found = base if same else _bound(changed, objective, time_limit, allowed)
            ns, kind = (None, "") if found is None else (found.value_ns, found.name)
            change = ns / base.value_ns - 1 if ns is not None and base.value_ns else None
            rows.append(Changed(name, factor, value or 0, ns, kind, change))
    return Sensitivity(objective, base.value_ns, tuple(rows))


def _bound(instance: Instance, *given: Any) -> Bound | None:
    """Return the bound of an instance, None where a request fits onto no worker."""
    try:
        fits = len(instance.admitted()) == len(instance)
        return bound(instance, *given) if fits else None
    except InfeasibleError:
        return None


def _value(worker: Worker, name: str) -> int | None:
    if name == "memory_blocks":
        return None if worker.memory is None else worker.memory.blocks
    found: int | None = getattr(worker, name)
    return found


def _changed(worker: Worker, name: str, factor: float) -> Worker:
    value = _value(worker, name)
    if value is None:
        return worker
    new = max(1, round(value * Fraction(factor)))
    if name == "memory_blocks":
        assert worker.memory is not None
        return replace(worker, memory=replace(worker.memory, blocks=new))
    changed: dict[str, Any] = {name: new}
    return replace(worker, **changed)
