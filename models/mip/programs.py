"""The three programs as linear models with named columns, and the way from and to schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orsched.columns import whole_number
from orsched.costs.unit_rounds import ROUND_NS
from orsched.errors import InputError
from orsched.instance import require_instance
from orsched.models.full_mip.aim import TimesAim
from orsched.models.full_mip.formulation import FORMULATIONS, FullMip
from orsched.models.full_mip.latency_mip import LatencyMip, bins_that_suffice
from orsched.models.full_mip.objectives import NONZEROS_A_BIN
from orsched.models.full_mip.plan import plan_of, schedule_of
from orsched.models.full_mip.problem import read_problem
from orsched.models.full_mip.size import Size, full_mip_size, windows_mip_size
from orsched.models.full_mip.windows_mip import WindowsMip
from orsched.models.mip.legend import COLUMNS, Legend
from orsched.models.mip.starts import schedule_of_starts, starts_of_schedule
from orsched.models.unit_rounds_mip import UnitRoundsMip, require_unit_rounds
from orsched.objectives import minimised
from orsched.scalars import require_one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.instance import Instance
    from orsched.models.full_mip.linear import LinearModel
    from orsched.models.full_mip.plan import Plan
    from orsched.objectives import Objective
    from orsched.schedule import Schedule

PROGRAMS = ("full-mip", "window-mip", "latency-mip", "unit-rounds")
MAX_NONZEROS = 10_000_000
"""Larger models are refused: in Python they would take minutes to build, and gigabytes."""


@dataclass(frozen=True)
class Program:
    """A program of an instance: its linear model, and what its values mean.

    Attributes:
        name: one of ``PROGRAMS``.
        instance: the problem.
        model: columns, rows and objective, in whole numbers.
        unit_ns: nanoseconds in a unit of the objective.
        constant_ns: nanoseconds that the objective leaves out.
        measures: what unit times objective plus constant is, divided by ``divisor``.
        schedule_of: from values of the columns to a checked schedule; None where they say none.
        values_of: from a valid schedule to values of the columns.
    """

    name: str
    instance: Instance
    model: LinearModel
    unit_ns: int
    constant_ns: int
    measures: str
    schedule_of: Callable[[Sequence[float]], Schedule | None]
    values_of: Callable[[Schedule], list[int]]
    divisor: int = 1

    def to_ns(self, objective: float) -> float:
        """Return what a value of the objective stands for, in nanoseconds."""
        return (self.constant_ns + self.unit_ns * objective) / self.divisor

    @property
    def legend(self) -> Legend:
        """Names of columns and rows, with their meaning."""
        return COLUMNS[self.name]


def read_program(
    instance: Instance,
    program: str = "full-mip",
    *,
    objective: str | Objective | None = None,
    stages: int | None = None,
    rounds: int | None = None,
    formulation: str = "compact",
    symmetry_breaking: bool = True,
    max_nonzeros: int = MAX_NONZEROS,
) -> Program:
    """Return a program of an instance as a linear model.

    Args:
        instance: the problem; the full and the window MIP take one worker whose times map into
            them, ``unit-rounds`` an instance of that model.
        program: ``full-mip``, ``window-mip``, ``latency-mip`` or ``unit-rounds``.
        objective: of the latency MIP, a sum of times: ``jct_mean`` (default), ``ttft_mean``,
            ``weighted_jct_mean``, ``makespan`` or a weighted sum of them.
        stages: K of the full and the window MIP, bins of the latency MIP; default: as many as
            suffice whatever the objective and with all further rows.
        rounds: rounds of ``unit-rounds`` in which a request may start; default: those up to the
            last end if all run one after the other, in which nobody starts later.
        formulation: of the full MIP, ``compact`` or ``printed``.
        symmetry_breaking: leave it out where rows name clients or stages of their own.
        max_nonzeros: a larger model is refused before it is built.

    Raises:
        InputError: an argument is wrong, the instance does not map into the program, or the model
            is too large. InfeasibleError: no schedule exists; names the request and the limit.
    """
    require_instance(instance)
    require_one_of(program, "program", PROGRAMS)
    require_one_of(formulation, "formulation", FORMULATIONS)
    if program != "latency-mip":
        _refuse(objective, "objective", "it has its own: latency-mip takes others")
    if program == "unit-rounds":
        _refuse(stages, "stages", "it counts rounds: leave it out, or give rounds")
        return _unit_rounds(instance, rounds, max_nonzeros)
    _refuse(rounds, "rounds", "it counts stages: leave it out, or give stages")
    if program == "latency-mip":
        aim = minimised("jct_mean" if objective is None else objective)
        return _latency(instance, aim, stages, symmetry_breaking, max_nonzeros)
    problem = read_problem(instance)
    count = max(1, len(problem))
    count = count if stages is None else whole_number(stages, "stages", minimum=1)
    mip: FullMip | WindowsMip
    if program == "full-mip":
        _limit(full_mip_size(problem, count, formulation, symmetry_breaking), max_nonzeros)
        mip = FullMip(problem, count, formulation, symmetry_breaking)
    else:
        _limit(windows_mip_size(problem, count, symmetry_breaking), max_nonzeros)
        mip = WindowsMip(problem, count, symmetry_breaking)
    return Program(
        program,
        instance,
        mip.model,
        problem.unit_ns,
        problem.to_ns(0),
        "makespan",
        lambda values: schedule_of(instance, mip.plan_of(values), program),
        lambda schedule: mip.values_of(_plan(instance, schedule, count)),
    )


def _latency(
    instance: Instance,
    objective: Objective,
    stages: int | None,
    symmetry_breaking: bool,
    max_nonzeros: int,
) -> Program:
    if not objective.is_linear:
        raise InputError(
            f"{objective.name} is no sum of times",
            field="objective",
            remedy="give jct_mean, ttft_mean, weighted_jct_mean or a weighted sum",
        )
    if not len(instance):
        raise InputError("an instance without requests has no means", field="instance")
    problem = read_problem(instance, exact=True)
    aim = TimesAim(instance, problem, objective)
    count = bins_that_suffice(problem)
    count = count if stages is None else whole_number(stages, "stages", minimum=1)
    _limit(Size(0, 0, len(problem) * count * NONZEROS_A_BIN), max_nonzeros)
    in_round = instance.first_token != "prefill"
    mip = LatencyMip(problem, count, aim.terms, in_round, symmetry_breaking)
    divisor = aim.times.denominator
    return Program(
        "latency-mip",
        instance,
        mip.model,
        problem.unit_ns,
        aim.of_units(0),
        objective.name,
        lambda values: schedule_of(instance, mip.plan_of(values), "latency-mip"),
        lambda schedule: mip.values_of(_plan(instance, schedule, count)),
        divisor,
    )


def _plan(instance: Instance, schedule: Schedule, stages: int) -> Plan:
    plan = plan_of(instance, schedule)
    if len(plan.rounds) > stages:
        raise InputError(
            f"the schedule has {len(plan.rounds)} prefill stages, the model {stages}",
            field="start",
            remedy="build it with more stages",
        )
    return plan


def _unit_rounds(instance: Instance, rounds: int | None, max_nonzeros: int) -> Program:
    require_unit_rounds(instance)
    requests = instance.requests
    first = (requests.arrival_ns // ROUND_NS).tolist()
    outputs = requests.output_tokens.tolist()
    if rounds is None:
        count = max(first, default=0) + sum(outputs)
    else:
        count = whole_number(rounds, "rounds", minimum=max(first, default=0) + 1)
    columns = [count - each + 1 for each in first]
    entries = sum((c - 1) * o + c for c, o in zip(columns, outputs, strict=True))
    _limit(Size(sum(columns), len(first) + count + max(outputs, default=0), entries), max_nonzeros)
    mip = UnitRoundsMip(instance, count)

    def schedule(values: Sequence[float]) -> Schedule | None:
        starts = mip.starts_of(values)
        return None if starts is None else schedule_of_starts(instance, starts)

    return Program(
        "unit-rounds",
        instance,
        mip.model,
        ROUND_NS,
        mip.constant * ROUND_NS,
        "total latency",
        schedule,
        lambda schedule: mip.values_of(starts_of_schedule(instance, schedule)),
    )


def _refuse(value: object, field: str, remedy: str) -> None:
    if value is not None:
        raise InputError("this program has none", field=field, remedy=remedy)


def _limit(size: Size, max_nonzeros: int) -> None:
    if size.nonzeros > whole_number(max_nonzeros, "max_nonzeros"):
        raise InputError(
            f"the model would have {_sized(size)}, more than {max_nonzeros:,}",
            field="max_nonzeros",
            remedy="take fewer requests or stages, or raise it",
        )


def _sized(size: Size) -> str:
    """Return a size in words; of the latency MIP only the nonzeros are estimated."""
    if not size.rows:
        return f"up to {size.nonzeros:,} nonzeros"
    return f"{size.variables:,} variables, {size.rows:,} rows and {size.nonzeros:,} nonzeros"
