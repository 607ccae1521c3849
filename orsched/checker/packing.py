"""Verification of a makespan packing and of its certificate, in integers and without a solver."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from orsched.certificates.budget import DEFAULT_BUDGET, Budget, BudgetError
from orsched.certificates.fields import require_packing
from orsched.certificates.packing import proven
from orsched.common.errors import TimeLimitError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Packed(Protocol):
    """What is read of a result: ``orsched.models.packing.PackingResult`` has it."""

    @property
    def makespan(self) -> int: ...  # noqa: D102
    @property
    def bound(self) -> int: ...  # noqa: D102
    @property
    def optimal(self) -> bool: ...  # noqa: D102
    @property
    def assignment(self) -> Sequence[int]: ...  # noqa: D102
    @property
    def certificate(self) -> Mapping[str, Any]: ...  # noqa: D102


def packing_violations(
    jobs: Sequence[int], clients: int, result: Packed, budget: int | None = DEFAULT_BUDGET
) -> list[str]:
    """Return what is wrong with a packing result; empty if everything it says is proven.

    ``budget``: cells of tables that may be filled to verify the certificate; None: any number.
    """
    if len(result.assignment) != len(jobs):
        return ["not one client for each job"]
    if not all(type(c) is int and 0 <= c < clients for c in result.assignment):
        return ["a job is on no client"]
    loads: Counter[int] = Counter()
    for job, client in zip(jobs, result.assignment, strict=True):
        loads[client] += int(job)
    found = []
    if type(result.makespan) is not int or max(loads.values(), default=0) != result.makespan:
        found.append("the makespan is not the largest load")
    try:
        require_packing(result.certificate)
        value = proven([int(job) for job in jobs], clients, result.certificate, Budget(budget))
    except BudgetError as error:
        return [*found, str(error)]
    except TimeLimitError:  # the command's deadline, which may ring anywhere
        raise
    except Exception as error:  # whatever is wrong with it, it proves nothing
        return [*found, f"the certificate cannot be read: {error!r}"]
    if type(result.bound) is not int or result.bound > value:
        found.append(f"the certificate proves {value}, not {result.bound!r:.80}")
    if result.optimal != (result.bound == result.makespan):
        found.append("optimal is not what bound and makespan say")
    return found
