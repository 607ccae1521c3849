"""The three programs as linear models with named columns, and the way from and to schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orsched.columns import whole_number
from orsched.costs.unit_rounds import ROUND_NS
from orsched.errors import InputError
from orsched.models.full_mip.formulation import FORMULATIONS, FullMip
from orsched.models.full_mip.plan import plan_of, schedule_of
from orsched.models.full_mip.problem import read_problem
from orsched.models.full_mip.size import Size, full_mip_size, windows_mip_size
from orsched.models.full_mip.windows_mip import WindowsMip
from orsched.models.mip.starts import schedule_of_starts, starts_of_schedule
from orsched.models.unit_rounds_mip import UnitRoundsMip, require_unit_rounds
from orsched.scalars import require_one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.instance import Instance
    from orsched.models.full_mip.linear import LinearModel
    from orsched.models.full_mip.plan import Plan
    from orsched.schedule import Schedule

PROGRAMS = ("full-mip", "window-mip", "unit-rounds")
MAX_NONZEROS = 10_000_000
"""Larger models are refused: in Python they would take minutes to build, and gigabytes."""

Legend = tuple[tuple[str, str], ...]
_STAGES: Legend = (
    ("y_k_l", "0-1: prefill stage k is at level l"),
    ("r_k", "rounds of decode stage k"),
    ("tsp_k, np_k", "start and length of prefill stage k"),
    ("tsd_k, nd_k", "start and length of decode stage k"),
    ("tmax", "makespan"),
    ("rows e2_k .. e7_k, e8t_k", "times, levels and caps, by Pang's equations (2) to (8)"),
    ("rows a_i_k, m_k", "arrivals, memory"),
    ("rows s1_k, s2_k", "symmetry: used stages come first"),
)
COLUMNS: dict[str, Legend] = {
    "full-mip": (
        ("x_i_j", "0-1: request i is on client j"),
        ("p_i_j_k", "0-1: and is prefilled in stage k"),
        ("d_i_j_k", "0-1: and is on the client in decode stage k"),
        ("w_i_j_k", "tokens of request i in decode stage k"),
        *_STAGES,
        ("rows e8_.. to e18_..", "assignment and windows, by Pang's equations (8) to (18)"),
        ("rows w_i_j_k", "tokens only where the request is on the client"),
        ("rows s3_i_j", "symmetry: clients are numbered by their first request"),
        ("rows c1, c2", "rounds and stages that all tokens need"),
    ),
    "window-mip": (
        ("u_i_a_b", "0-1: request i is prefilled in stage a and done by the end of stage b"),
        ("w_i_k", "tokens of request i in decode stage k, where they count"),
        *_STAGES,
        ("rows one_i, long_i_a_b", "one window each, with rounds enough"),
        ("rows clients_k", "windows over stage k, at most the clients"),
        ("rows all_i, in_i_k, on_i_k", "tokens of request i, where they count"),
    ),
    "unit-rounds": (
        ("s_i_k", "0-1: request i starts in round k"),
        ("s_i_later", "0-1: it starts after all these rounds, in no memory: a relaxation"),
        ("rows one_i", "one start each"),
        ("rows m_t", "memory in round t"),
    ),
}
"""What the names of columns and rows mean; i request, j client, k stage or round, l level."""


@dataclass(frozen=True)
class Program:
    """A program of an instance: its linear model, and what its values mean.

    Attributes:
        name: one of ``PROGRAMS``.
        instance: the problem.
        model: columns, rows and objective, in whole numbers.
        unit_ns: nanoseconds in a unit of the objective.
        constant_ns: nanoseconds that the objective leaves out.
        measures: what unit times objective plus constant is.
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

    def to_ns(self, objective: float) -> float:
        """Return what a value of the objective stands for, in nanoseconds."""
        return self.constant_ns + self.unit_ns * objective

    @property
    def legend(self) -> Legend:
        """Names of columns and rows, with their meaning."""
        return COLUMNS[self.name]


def read_program(
    instance: Instance,
    program: str = "full-mip",
    *,
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
        program: ``full-mip``, ``window-mip`` or ``unit-rounds``.
        stages: K of the two MIPs; default: one for each request, which suffices for every
            objective and with all further rows.
        rounds: rounds of ``unit-rounds`` in which a request may start; default: those up to the
            last end if all run one after the other, in which nobody starts later.
        formulation: of the full MIP, ``compact`` or ``printed``.
        symmetry_breaking: leave it out where rows name clients or stages of their own.
        max_nonzeros: a larger model is refused before it is built.

    Raises:
        InputError: an argument is wrong, the instance does not map into the program, or the model
            is too large. InfeasibleError: no schedule exists; names the request and the limit.
    """
    require_one_of(program, "program", PROGRAMS)
    require_one_of(formulation, "formulation", FORMULATIONS)
    if program == "unit-rounds":
        _refuse(stages, "stages", "it counts rounds: leave it out, or give rounds")
        return _unit_rounds(instance, rounds, max_nonzeros)
    _refuse(rounds, "rounds", "it counts stages: leave it out, or give stages")
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
            f"the model would have {size.variables:,} variables, {size.rows:,} rows and "
            f"{size.nonzeros:,} nonzeros, more than {max_nonzeros:,}",
            field="instance",
            remedy="take fewer requests or stages, or raise max_nonzeros",
        )
