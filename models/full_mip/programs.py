"""Which MIP is made of an instance, its size and names, and the way from and to schedules."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import require_one_of
from orsched.data.instance import require_instance
from orsched.data.schedule_classes import PLAIN_SCHEDULES, WITHOUT_PAUSES
from orsched.models.exact_search.aims import TimesAim, pauses_cannot_help
from orsched.models.exact_search.stage_plan import Plan, plan_of, read_problem, schedule_of
from orsched.models.full_mip.formulation import FORMULATIONS, FullMip, WindowsMip
from orsched.models.full_mip.latency_mip import LatencyMip, bins_that_suffice
from orsched.models.full_mip.linear_solvers import BINARY, INTEGER, LinearModel
from orsched.solving.objectives import minimised

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.schedule_classes import ScheduleClass
    from orsched.models.exact_search.aims import Terms
    from orsched.models.exact_search.stage_plan import Problem
    from orsched.models.full_mip.mathopt_solvers import Changed
    from orsched.solving.objectives import Objective


class PackingMip:
    """Min t with each request on one client, ``sum_j x_ij = 1``, and no client with more than t
    decode rounds, ``sum_i r_i x_ij <= t``. ``symmetry_breaking``: request i is on one of the
    clients 0..i. A schedule of a solution serves each client's requests in their order."""

    name = "packing"

    def __init__(self, instance: Instance, symmetry_breaking: bool = True) -> None:
        self.instance, self.symmetry_breaking = instance, symmetry_breaking
        worker = instance.require_stages("packing", paged=False)
        self.rounds = instance.rounds_needed.tolist()
        self.model = model = LinearModel()
        clients = range(worker.clients)
        self.x = [
            [model.add(f"x_{i}_{j}", BINARY, int(not symmetry_breaking or j <= i)) for j in clients]
            for i in range(len(self.rounds))
        ]
        self.load = model.add("t", INTEGER, sum(self.rounds))
        model.minimise([(self.load, 1)])
        for i, columns in enumerate(self.x):
            model.row(f"one_{i}", [(column, 1) for column in columns], least=1, most=1)
        for j in clients:
            taken = [(columns[j], -due) for columns, due in zip(self.x, self.rounds, strict=True)]
            model.row(f"load_{j}", [(self.load, 1), *taken], least=0)

    def schedule_of(self, values: Sequence[float]) -> Schedule:
        """Return the checked schedule of the clients in a solution."""
        client = [max(range(len(own)), key=lambda j: values[own[j]]) for own in self.x]
        plan = packed_plan(read_problem(self.instance), client)
        return schedule_of(self.instance, plan, self.name)

    def values_of(self, schedule: Schedule) -> list[int]:
        """Return the values of the columns that stand for the clients of a schedule."""
        client = plan_of(self.instance, schedule).client
        assert client is not None
        label: dict[int, int] = {}
        values, loads = [0] * len(self.model.names), [0] * self.instance.worker.clients
        for i, own in enumerate(client):
            j = label.setdefault(own, len(label)) if self.symmetry_breaking else own
            values[self.x[i][j]] = 1
            loads[j] += self.rounds[i]
        values[self.load] = max(loads, default=0)
        return values


def packed_plan(problem: Problem, client: Sequence[int]) -> Plan:
    """Return the plan in which each client serves its own requests in their order, prefilled as
    soon as it is free and the stage and memory have room."""
    queues = [[i for i, own in enumerate(client) if own == j][::-1] for j in range(problem.clients)]
    stage, rounds = [0] * len(client), list[int]()
    left: dict[int, int] = {}  # rounds of each request on a client
    while any(queues) or left:
        busy, tokens = {client[i] for i in left}, 0
        held = sum(problem.blocks[i] for i in left)
        started: list[int] = []
        for j, queue in enumerate(queues):
            if j in busy or not queue:
                continue
            i = queue[-1]
            fits = (
                problem.memory_blocks is None or held + problem.blocks[i] <= problem.memory_blocks
            )
            if fits and tokens + problem.prompts[i] <= problem.levels[-1][0]:
                started.append(queue.pop())
                tokens, held = tokens + problem.prompts[i], held + problem.blocks[i]
        if started:
            for i in started:
                stage[i] = len(rounds)
            rounds.append(0)
            left |= {i: problem.needed[i] for i in started if problem.needed[i]}
        elif not left:
            raise InputError("a request fits nowhere", field="instance", remedy="leave it out")
        passed = min(left.values(), default=0)
        rounds[-1] += passed
        left = {i: due - passed for i, due in left.items() if due > passed}
    return Plan(tuple(stage), tuple(client), tuple(rounds))


MODELS = (*FORMULATIONS, "windows")  # of the makespan; the one of other objectives is ``latency``

INTERVALS = "intervals"
"""The compact model, for CP-SAT only; it is not a linear model."""

NONZEROS_A_BIN = 40
"""Of each request in each bin, at most: what a latency MIP is refused by before it is built."""


class ModelSpec(NamedTuple):
    """A model: one of ``MODELS``, or ``latency`` with the terms of its objective."""

    formulation: str
    stages: int
    symmetry_breaking: bool
    terms: Terms | None = None
    first_in_round: bool = False

    def build(self, problem: Problem) -> FullMip | WindowsMip | LatencyMip:
        """Return the model of a problem."""
        if self.terms is not None:
            first, broken = self.first_in_round, self.symmetry_breaking
            return LatencyMip(problem, self.stages, self.terms, first, broken)
        if self.formulation == "windows":
            return WindowsMip(problem, self.stages, self.symmetry_breaking)
        return FullMip(problem, self.stages, self.formulation, self.symmetry_breaking)

    def size(self, problem: Problem) -> Size:
        """Return its size; of the latency MIP the nonzeros alone, at most."""
        if self.terms is not None:
            return Size(0, 0, len(problem) * self.stages * NONZEROS_A_BIN)
        if self.formulation == "windows":
            return windows_mip_size(problem, self.stages, self.symmetry_breaking)
        if self.formulation == INTERVALS:  # in round figures: its literals, and what they enforce
            pairs = len(problem) * self.stages
            late = sum(map(bool, problem.arrivals)) * self.stages * (2 * len(problem) + self.stages)
            return Size(3 * pairs, 6 * pairs, 20 * pairs + late)
        return full_mip_size(problem, self.stages, self.formulation, self.symmetry_breaking)


class Size(NamedTuple):
    """Size of a model, known before it is built."""

    variables: int
    rows: int
    nonzeros: int


def stages_size(problem: Problem, stages: int, starts: int, tokens: int) -> Size:
    """Return the size of what ``Stages`` holds: eq. (2)-(7) and the length of decode stages.
    ``starts`` and ``tokens`` count the columns that enter eq. (5)-(6) and the lengths, in all
    bins."""
    k, levels = stages, len(problem.levels)
    costly = sum(1 for _, time in problem.levels if time)
    nonzeros = 9 * k - 3  # (2)-(4)
    nonzeros += k * (1 + costly) + (problem.prompt_token > 0) * starts  # (5)
    nonzeros += starts + 2 * k * levels  # (6), (7)
    nonzeros += k * (1 + (problem.round_fixed > 0)) + (problem.round_client > 0) * tokens
    return Size(k * (levels + 5) + 1, 7 * k - 1, nonzeros)


def symmetry_size(problem: Problem, stages: int) -> Size:
    """Return the size of ``Stages.used_first``."""
    levels = len(problem.levels)
    rounds = stages * (1 + levels * (problem.most_rounds > 0))
    return Size(0, 2 * stages - 1, (stages - 1) * 2 * levels + rounds)


def full_mip_size(
    problem: Problem, stages: int, formulation: str = "compact", symmetry_breaking: bool = True
) -> Size:
    """Return variables, rows and nonzeros of ``FullMip`` without building it. With n requests, J
    clients, K bins and L levels the families p, d and w have nJK variables each; the printed eq.
    (10) and (11) have nJ(K-1)^2 rows and about nJK^3/6 nonzeros."""
    n, clients, k = len(problem), problem.clients, stages
    nj, njk = n * clients, n * clients * k
    decoding = sum(1 for due in problem.needed if due) * clients  # with a term of x in (14)
    late = sum(1 for arrival in problem.arrivals if arrival)
    parts = [
        stages_size(problem, k, njk, njk),
        Size(nj + 3 * njk, 3 * clients * k, 3 * njk + clients * k),  # (8), (12), (16)
        Size(0, late * k, late * k * (1 + clients)),
        Size(0, 2 * njk, 3 * njk + decoding * k),  # (9), w <= d
        Size(0, 2 * nj + 2 * n, 3 * njk + 2 * nj + decoding),  # (14), (17), (15), (18)
    ]
    if problem.memory_blocks is not None:
        parts.append(Size(0, k, njk))
    if formulation == "compact":
        parts.append(Size(0, njk + 2, 3 * njk - nj + k + k * len(problem.levels)))
    else:
        spans = sum((k - gap) * (gap + 1) for gap in range(2, k))
        parts.append(Size(0, nj * (k - 1) ** 2, nj * (k * (k - 1) + spans)))
    if symmetry_breaking:
        most = [min(i, clients - 1) for i in range(1, n)]  # clients 1..most, for request i
        terms = sum(m * (i + 2) - m * (m + 1) // 2 for i, m in enumerate(most, 1))
        parts += [symmetry_size(problem, k), Size(0, sum(most), terms)]
    return Size(*(sum(column) for column in zip(*parts, strict=True)))


def windows_mip_size(problem: Problem, stages: int, symmetry_breaking: bool = True) -> Size:
    """Return variables, rows and nonzeros of ``WindowsMip`` without building it."""
    n, k = len(problem), stages
    windows = k * (k + 1) // 2
    covered = k * (k + 1) * (k + 2) // 6  # bins in all windows together
    decoding = sum(1 for due in problem.needed if due)
    arriving = sum(1 for arrival in problem.arrivals if arrival)
    tokens = n * k if problem.round_client else 0
    parts = [
        stages_size(problem, k, n * windows, tokens),
        Size(n * windows, k, n * covered),  # clients
        Size(0, arriving * k, arriving * (k + windows)),
        Size(0, n * (windows + 1), n * (windows + covered) + decoding * windows),
    ]
    if problem.memory_blocks is not None:
        parts.append(Size(0, k, n * covered))
    if tokens:
        parts.append(Size(tokens, n + 2 * tokens, 4 * tokens + decoding * covered))
    if symmetry_breaking:
        parts.append(symmetry_size(problem, k))
    return Size(*(sum(column) for column in zip(*parts, strict=True)))


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
    "packing": (
        ("x_i_j", "0-1: request i is served by client j"),
        ("t", "decode rounds of the client with the most"),
        ("rows one_i, load_j", "Pang eq. (27) and (28): one client each; the load of a client"),
    ),
}
"""What the names of columns and rows mean; i request, j client, k stage or round, l level."""


PROGRAMS = ("full-mip", "window-mip", "latency-mip", "packing")
MAX_NONZEROS = 10_000_000
"""Larger models are refused: in Python they would take minutes to build, and gigabytes."""


@dataclass(frozen=True)
class Program:
    """A program of an instance: its linear model, and what its values mean.

    Attributes:
        name: one of ``PROGRAMS``.
        instance: the problem.
        model: columns, rows and objective, in whole numbers.
        unit_ns: nanoseconds in a unit of the objective; 0 where it is not a time (packing).
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
        """Return what a value of the objective stands for, in nanoseconds; ``InputError`` where it
        is not a time."""
        if not self.unit_ns:
            raise InputError(
                f"the objective of {self.name} counts {self.measures}",
                field="program",
                remedy="take the objective itself",
            )
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
        program: ``full-mip``, ``window-mip``, ``latency-mip`` or ``packing``.
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
    instance = instance.admitted()
    require_one_of(program, "program", PROGRAMS)
    require_one_of(formulation, "formulation", FORMULATIONS)
    if program != "latency-mip" and objective is not None:
        raise InputError(
            f"{program} has no other objective than the makespan",
            field="objective",
            remedy="leave it out, or give the program latency-mip",
        )
    if program == "packing":
        return _packing(instance, stages, symmetry_breaking, max_nonzeros)
    if program == "latency-mip":
        aim = minimised("jct_mean" if objective is None else objective)
        return _latency(instance, aim, stages, symmetry_breaking, max_nonzeros)
    problem = read_problem(instance)
    count = max(1, len(problem))
    count = count if stages is None else whole_number(stages, "stages", minimum=1)
    kind = formulation if program == "full-mip" else "windows"
    spec = ModelSpec(kind, count, symmetry_breaking)
    return _program(instance, problem, spec, max_nonzeros)


def _packing(
    instance: Instance, stages: int | None, symmetry_breaking: bool, max_nonzeros: int
) -> Program:
    if stages is not None:
        raise InputError("packing has no stages", field="stages", remedy="leave it out")
    _require_size(Size(0, 0, (2 * len(instance) + 1) * instance.worker.clients), max_nonzeros)
    mip = PackingMip(instance, symmetry_breaking)
    return Program(
        mip.name, instance, mip.model, 0, 0, "decode rounds of the client with the most",
        mip.schedule_of, mip.values_of,
    )  # fmt: skip


def _latency(
    instance: Instance,
    objective: Objective,
    stages: int | None,
    symmetry_breaking: bool,
    max_nonzeros: int,
) -> Program:
    if not objective.is_linear:
        raise InputError(
            f"{objective.name} is not a sum of times",
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
    in_round = instance.first_token != "prefill"
    spec = ModelSpec("latency", count, symmetry_breaking, aim.terms, in_round)
    found = _program(instance, problem, spec, max_nonzeros)
    return replace(
        found,
        constant_ns=aim.of_units(0),
        measures=objective.name,
        divisor=aim.times.denominator,
        schedules=PLAIN_SCHEDULES if pauses_cannot_help(problem, aim) else WITHOUT_PAUSES,
    )


def _program(instance: Instance, problem: Problem, spec: ModelSpec, max_nonzeros: int) -> Program:
    """Return the program of a model with the makespan as it is, unless it is too large."""
    _require_size(spec.size(problem), max_nonzeros)
    mip = spec.build(problem)
    return Program(
        mip.name,
        instance,
        mip.model,
        problem.unit_ns,
        problem.to_ns(0),
        "makespan",
        lambda values: schedule_of(instance, mip.plan_of(values), mip.name),
        lambda schedule: mip.values_of(_plan(instance, schedule, spec.stages)),
    )


def _require_size(size: Size, max_nonzeros: int) -> None:
    """Refuse a model that is too large before it is built."""
    if size.nonzeros > whole_number(max_nonzeros, "max_nonzeros"):
        sized = f"{size.variables:,} variables, {size.rows:,} rows and {size.nonzeros:,} nonzeros"
        if not size.rows:  # those of the latency MIP are estimated, and nothing else of it
            sized = f"up to {size.nonzeros:,} nonzeros"
        raise InputError(
            f"the model would have {sized}, more than {max_nonzeros:,}",
            field="max_nonzeros",
            remedy="take fewer requests or stages, or raise it",
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
