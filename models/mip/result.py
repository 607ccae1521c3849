"""What a solve of a researcher's model returns, and what its callback sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orsched.data.schedule import Schedule

MipStatus = Literal["optimal", "feasible", "infeasible", "unbounded", "unknown"]
MipTermination = Literal["finished", "limit", "stopped", "interrupted", "died"]


class MipStep(NamedTuple):
    """What is known at a moment of the search; a callback gets it, and the history keeps it.

    Attributes:
        elapsed_s: seconds since the call.
        objective: of the best solution so far, in the model's units, or None.
        bound: the solver's bound on the objective, or None.
    """

    elapsed_s: float
    objective: float | None
    bound: float | None


@dataclass(frozen=True)
class MipResult:
    """The answer of a solver.

    Attributes:
        status: ``optimal`` (within the solver's tolerance), ``feasible``, ``infeasible``,
            ``unbounded``, or ``unknown``: no solution yet.
        termination: ``finished``; ``limit`` of time or of the parameters; ``stopped`` by the
            callback; ``interrupted`` by Ctrl-C; ``died``: the solver's process ended.
        objective, bound: of the model as it was solved, in its units; None where there is none.
        values: value of each variable by its name, empty without a solution.
        schedule: what the values decide, carried out as early as possible and accepted by the
            checker; None without a solution.
        history: better objectives and bounds in time.
        seconds: of the call, building included.
        notes: remarks: rows that do not hold in the schedule, and the solver's own words.
        solver: its name.
        solver_result: MathOpt's own answer, where the solver came to one.
    """

    status: MipStatus
    termination: MipTermination
    objective: float | None
    bound: float | None
    values: Mapping[str, float] = field(repr=False)
    schedule: Schedule | None
    history: tuple[MipStep, ...] = field(repr=False)
    seconds: float = field(compare=False)
    solver: str = ""
    notes: tuple[str, ...] = ()
    solver_result: Any = field(default=None, repr=False, compare=False)

    @property
    def gap(self) -> float | None:
        """``|objective - bound| / |objective|``, or None."""
        if self.objective is None or self.bound is None:
            return None
        difference = abs(self.objective - self.bound)
        return difference / abs(self.objective) if self.objective else (difference and None)
