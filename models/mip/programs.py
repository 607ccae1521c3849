"""The programs as linear models with named columns, and the way from and to schedules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import require_one_of
from orsched.data.instance import require_instance
from orsched.data.schedule_classes import PLAIN_SCHEDULES, WITHOUT_PAUSES
from orsched.models.full_mip.aim import TimesAim
from orsched.models.full_mip.formulation import FORMULATIONS, FullMip
from orsched.models.full_mip.latency_mip import LatencyMip, bins_that_suffice
from orsched.models.full_mip.objectives import NONZEROS_A_BIN
from orsched.models.full_mip.pauses import pauses_cannot_help
from orsched.models.full_mip.plan import plan_of, schedule_of
from orsched.models.full_mip.problem import read_problem
from orsched.models.full_mip.size import Size, full_mip_size, windows_mip_size
from orsched.models.full_mip.windows_mip import WindowsMip
from orsched.solving.objectives import minimised

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.schedule_classes import ScheduleClass
    from orsched.models.full_mip.linear import LinearModel
    from orsched.models.full_mip.plan import Plan
    from orsched.models.mip.changed import Changed
    from orsched.solving.objectives import Objective


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
    "latency-mip": (
        ("s_i_k, f_i_k", "0-1: request i is prefilled in bin k, is done at the end of bin k"),
        ("on_i_k, w_i_k", "0-1: it is on a client in bin k; its rounds there"),
        ("c_i_k", "0-1: its first round is in bin k"),
        ("first_i, finish_i", "when its first and its last token come, where they count"),
        ("u_k, y_k_l, r_k", "0-1: bin k is used, its prefill is at level l; its rounds"),
        ("ts_k, tp_k, te_k", "when bin k begins, ends its prefill, ends"),
        ("tmax", "makespan, where it counts"),
        ("rows s_i, f_i, w_i, on_i_k, done_i_k, w0_i_k, w1_i_k, w2_i_k", "windows and rounds"),
        ("rows clients_k, m_k, cap_k, one_k, some_k, a_i_k", "clients, memory, caps, arrivals"),
        ("rows tp_k, te_k, ts_k, end_k", "times of bins"),
        ("rows first_i_k, finish_i_k, c_i, c0_i_k, c1_i_k", "times of tokens"),
        ("rows u0_k, u1_k, u2_k, u3_k, u4_k", "symmetry: used bins first"),
        ("rows same_i_j", "symmetry: equal requests in order"),
    ),
}
"""What the names of columns and rows mean; i request, j client, k stage or round, l level."""


PROGRAMS = ("full-mip", "window-mip", "latency-mip")
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
        schedule_of: from values of the columns to a checked schedule.
        values_of: from a valid schedule to values of the columns.
        divisor: see ``measures``.
        schedules: the class of schedules of which its optimum is the best.
        changed: returns what was changed of the MathOpt model that was built of it, for files;
            None without one.
    """

    name: str
    instance: Instance
    model: LinearModel
    unit_ns: int
    constant_ns: int
    measures: str
    schedule_of: Callable[[Sequence[float]], Schedule]
    values_of: Callable[[Schedule], list[int]]
    divisor: int = 1
    schedules: ScheduleClass = PLAIN_SCHEDULES
    changed: Callable[[], Changed | None] | None = field(default=None, repr=False, compare=False)

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
    formulation: str = "compact",
    symmetry_breaking: bool = True,
    max_nonzeros: int = MAX_NONZEROS,
) -> Program:
    """Return a program of an instance as a linear model.

    Args:
        instance: the problem; one worker whose times map into the programs.
        program: ``full-mip``, ``window-mip`` or ``latency-mip``.
        objective: of the latency MIP, a sum of times: ``jct_mean`` (default), ``ttft_mean``,
            ``weighted_jct_mean``, ``makespan`` or a weighted sum of them.
        stages: K of the full and the window MIP, bins of the latency MIP; default: as many as
            suffice whatever the objective and with all further rows.
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
    if program != "latency-mip" and objective is not None:
        raise InputError(
            f"{program} has no other objective than the makespan",
            field="objective",
            remedy="leave it out, or give the program latency-mip",
        )
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
        raise InputError(
            "an instance without requests has no means",
            field="instance",
            remedy="give an instance with requests",
        )
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
        PLAIN_SCHEDULES if pauses_cannot_help(problem, aim) else WITHOUT_PAUSES,
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
