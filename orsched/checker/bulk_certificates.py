"""Re-derivation of bounds on bulk work and on attainment, in whole numbers and without a solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.certificates.budget import DEFAULT_BUDGET, Budget
from orsched.certificates.bulk_program import BulkProgram, Question
from orsched.certificates.fields import require_bulk
from orsched.checker.malformed import proving

if TYPE_CHECKING:
    from orsched.data.instance import Instance


@proving
def bulk_violations(
    instance: Instance, bound: dict[str, Any], budget: int | None = DEFAULT_BUDGET
) -> list[str]:
    """Return what is wrong with a bound on bulk work or attainment; [] means it is proven.

    The program is built anew from the instance and the windows, and the prices are multiplied out
    (``Program.proven``). ``budget``: cells of tables that may be filled; None: any number.
    """
    require_bulk(bound)
    certificate = bound["certificate"]
    question = Question.read(instance, certificate)
    program = BulkProgram(instance, question, Budget(budget))
    value = program.proven(map(tuple, certificate["prices"]))
    found = []
    if certificate["value"] != value:
        found.append(f"value is {certificate['value']}, re-derived {value}")
    claimed = value if certificate["bound"] == "bulk" else 0
    if bound["value"] != claimed:
        found.append(f"the bound's value is {bound['value']}, re-derived {claimed}")
    return found
