"""Pang's full MIP, eq. (1)-(25), as read and repaired, and the window MIP of the same optimum.
Variables by request i, client j and bin k: x_ij, p_ijk, d_ijk, tokens w_ijk N^d_i in the place of
w_ijk, y_kl, start and length of each stage, and the whole number of rounds of a decode stage. The
page *The full MIP* gives each repair with its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from orsched.common.columns import frame
from orsched.common.errors import InputError, TimeLimitError
from orsched.common.scalars import require_one_of
from orsched.common.stop import MaxRuntime
from orsched.models.exact_search.stage_plan import Plan, plan_times, with_lowest_clients
from orsched.models.full_mip.linear_solvers import BINARY, CONTINUOUS, INTEGER, LinearModel
from orsched.models.full_mip.mathopt_solvers import GRACE_S, Job, mathopt, name_of, parsed, run_job
from orsched.models.killable_call import run_in_child

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from orsched.models.exact_search.stage_plan import Problem


@dataclass(frozen=True)
class Relaxation:
    """The optimum of a program whose variables need not be whole.

    Attributes:
        value: of the objective, in the model's units: no solution of whole numbers is better.
        values: value of each variable by its name.
        reduced_costs: by variable: how much the value changes with a unit of it, others re-chosen.
        duals: by row: how much the value changes with a unit of the row's side.
        activities: by row: its left side at these values.
    """

    value: float
    values: Mapping[str, float] = field(repr=False)
    reduced_costs: Mapping[str, float] = field(repr=False)
    duals: Mapping[str, float] = field(repr=False)
    activities: Mapping[str, float] = field(repr=False)

    def to_pandas(self, of: Literal["rows", "variables"] = "rows") -> pd.DataFrame:
        """Return a data frame with a line for each row (``row, activity, dual``) or each variable
        (``variable, value, reduced_cost``)."""
        require_one_of(of, "of", ("rows", "variables"))
        if of == "rows":
            columns = {"row": self.duals, "activity": self.activities.values()}
            return frame({**columns, "dual": self.duals.values()})
        columns = {"variable": self.values, "value": self.values.values()}
        return frame({**columns, "reduced_cost": self.reduced_costs.values()})


def relaxed(model: Any, time_limit: float | None = None) -> Relaxation:
    """Return the linear relaxation of a MathOpt model as it is now, solved by GLOP in a child.

    Raises ``InputError`` where it has no optimum, ``TimeLimitError`` where time ends before.
    """
    if time_limit is not None:
        MaxRuntime(time_limit)  # validates
    mo = mathopt()
    proto = model.export_model()
    proto.variables.integers[:] = [False] * len(proto.variables.ids)
    parameters = mo.SolveParameters().to_proto().SerializeToString()
    job = Job("glop", proto.SerializeToString(), parameters, {}, (), time_limit)
    left = None if time_limit is None else time_limit + GRACE_S
    outcome = run_in_child(run_job, job, left, lambda message: False)
    if outcome.reason == "interrupted":
        raise KeyboardInterrupt
    if outcome.reason != "finished":
        raise TimeLimitError("the relaxation was not solved in time")
    found = parsed(model, outcome.value)
    reason = found.termination.reason.name
    if reason != "OPTIMAL":
        if found.termination.limit is not None:
            raise TimeLimitError("the relaxation was not solved in time")
        raise InputError(
            f"the relaxation has no optimum: {reason.lower().replace('_', ' ')}",
            field="model",
            remedy="take back changes of the model: rows that exclude each other, or no bound",
        )
    values, reduced = found.variable_values(), found.reduced_costs()
    duals, rows = found.dual_values(), list(model.linear_constraints())
    sums = {row: row.as_bounded_linear_expression().expression for row in rows}
    activities = {row: mo.evaluate_expression(sums[row], values) for row in rows}
    columns = {name_of(column): column for column in model.variables()}
    named = {name_of(row, "row"): row for row in rows}
    return Relaxation(
        float(found.objective_value()),
        {name: _plain(values[column]) for name, column in columns.items()},
        {name: _plain(reduced[column]) for name, column in columns.items()},
        {name: _plain(duals[row]) for name, row in named.items()},
        {name: _plain(activities[row]) for name, row in named.items()},
    )


def _plain(value: float) -> float:
    return value + 0.0 if math.isfinite(value) else math.nan


FORMULATIONS = ("compact", "printed")


class Stages:
    """What every model of bins shares: levels, times and rounds, eq. (1)-(7)."""

    def __init__(self, problem: Problem, count: int) -> None:
        self.problem, self.count = problem, count
        self.model = model = LinearModel()
        self.horizon = horizon = problem.horizon(count)
        every = range(count)
        self.level = [
            [model.add(f"y_{k}_{number}", BINARY, 1) for number in range(len(problem.levels))]
            for k in every
        ]
        self.rounds = [model.add(f"r_{k}", INTEGER, problem.most_rounds) for k in every]
        self.start_p = [model.add(f"tsp_{k}", CONTINUOUS, horizon) for k in every]
        self.start_d = [model.add(f"tsd_{k}", CONTINUOUS, horizon) for k in every]
        self.length_p = [model.add(f"np_{k}", CONTINUOUS, horizon) for k in every]
        self.length_d = [model.add(f"nd_{k}", CONTINUOUS, horizon) for k in every]
        self.end = model.add("tmax", CONTINUOUS, horizon)
        model.minimise([(self.end, 1)])

    def timeline(self) -> None:
        """Add eq. (2)-(4): stages follow one another."""
        row = self.model.row
        for k in range(self.count):
            ended = [(self.start_d[k], -1), (self.length_d[k], -1)]
            row(f"e2_{k}", [(self.end, 1), *ended], least=0)
            if k + 1 < self.count:
                row(f"e3_{k + 1}", [(self.start_p[k + 1], 1), *ended], least=0)
            prefilled = [(self.start_p[k], -1), (self.length_p[k], -1)]
            row(f"e4_{k}", [(self.start_d[k], 1), *prefilled], least=0)

    def prefills(self, k: int, inside: Sequence[tuple[int, int]]) -> None:
        """Add eq. (5)-(7) and arrivals; ``inside`` are pairs (request, its 0-1 variable)."""
        problem, row = self.problem, self.model.row
        levels = list(zip(self.level[k], problem.levels, strict=True))
        tokens = [(column, problem.prompts[i]) for i, column in inside]
        taken = [(column, problem.prompt_token * size) for column, size in tokens]
        times = [(column, time) for column, (_, time) in levels]
        row(f"e5_{k}", [(self.length_p[k], -1), *times, *taken], least=0, most=0)
        row(f"e6_{k}", [*tokens, *((column, -cap) for column, (cap, _) in levels)], most=0)
        row(f"e7_{k}", [(column, 1) for column, _ in levels], most=1)

    def decodes(self, k: int, tokens: Sequence[int]) -> None:
        """Add the length of decode stage k, the part of eq. (8) with T^d; ``tokens`` columns."""
        problem = self.problem
        served = [(column, problem.round_client) for column in tokens]
        terms = [(self.length_d[k], -1), (self.rounds[k], problem.round_fixed), *served]
        self.model.row(f"e8t_{k}", terms, least=0, most=0)

    def used_first(self) -> None:
        """Add symmetry breaking: used bins come first, and only they have rounds."""
        for k in range(self.count):
            used = [(column, 1) for column in self.level[k]]
            if k + 1 < self.count:
                after = [(column, -1) for column in self.level[k + 1]]
                self.model.row(f"s1_{k}", [*used, *after], least=0)
            rounds = [(column, self.problem.most_rounds) for column in self.level[k]]
            self.model.row(f"s2_{k}", [(self.rounds[k], -1), *rounds], least=0)

    def counts(self) -> None:
        """Add that all tokens fit: sum of rounds and of used bins are at least what is due."""
        problem = self.problem
        n, clients = len(problem), problem.clients
        due = max(problem.most_rounds, -(-sum(problem.needed) // clients))
        self.model.row("c1", [(column, 1) for column in self.rounds], least=due)
        bins = max(-(-n // clients), -(-sum(problem.prompts) // problem.levels[-1][0]))
        used = [(column, 1) for levels in self.level for column in levels]
        self.model.row("c2", used, least=bins)

    def set_times(self, values: list[int], plan: Plan) -> None:
        """Fill in what a plan says of stages."""
        problem = self.problem
        for k, (start_p, length_p, start_d, length_d) in enumerate(plan_times(problem, plan)):
            values[self.rounds[k]] = plan.rounds[k]
            values[self.start_p[k]], values[self.length_p[k]] = start_p, length_p
            values[self.start_d[k]], values[self.length_d[k]] = start_d, length_d
            values[self.end] = max(values[self.end], start_d + length_d)
            tokens = sum(p for p, s in zip(problem.prompts, plan.stage, strict=True) if s == k)
            if tokens:
                fitting = next(n for n, (cap, _) in enumerate(problem.levels) if cap >= tokens)
                values[self.level[k][fitting]] = 1


class FullMip:
    """The full MIP of a problem with ``stages`` bins. ``formulation``: ``printed`` states that a
    request stays on its client as Pang do, with a row for each two bins, eq. (10) and (11);
    ``compact`` states the same with one row a bin. Both hold what was repaired: tokens only in
    stages in which a request decodes, w <= r d, and whole rounds. ``symmetry_breaking``: clients
    are numbered by their first request, used bins come first."""

    name = "full-mip"

    def __init__(
        self,
        problem: Problem,
        stages: int,
        formulation: str = "compact",
        symmetry_breaking: bool = True,
    ) -> None:
        self.problem, self.stages = problem, stages
        self.formulation, self.symmetry_breaking = formulation, symmetry_breaking
        self.base = Stages(problem, stages)
        self.model = self.base.model
        self._variables()
        self.base.timeline()
        self._bins()
        self._requests()
        self._contiguity()
        if symmetry_breaking:
            self.base.used_first()
            self._number_clients()
        if formulation == "compact":
            self.base.counts()

    def _variables(self) -> None:
        problem, add = self.problem, self.model.add
        n, clients = range(len(problem)), range(problem.clients)
        bins = range(self.stages)
        # With numbered clients, request i is on one of the clients 0..i.
        open_ = [[int(not self.symmetry_breaking or j <= i) for j in clients] for i in n]
        self.x = [[add(f"x_{i}_{j}", BINARY, open_[i][j]) for j in clients] for i in n]

        def family(letter: str, kind: str, most: Sequence[int]) -> list[list[list[int]]]:
            return [
                [
                    [add(f"{letter}_{i}_{j}_{k}", kind, most[i] * open_[i][j]) for k in bins]
                    for j in clients
                ]
                for i in n
            ]

        self.p = family("p", BINARY, [1] * len(problem))
        self.d = family("d", BINARY, [1] * len(problem))
        self.w = family("w", CONTINUOUS, problem.needed)

    def _bins(self) -> None:
        """Add eq. (5)-(8), (12), (16), arrivals and memory, bin by bin."""
        problem, base, row = self.problem, self.base, self.model.row
        n, clients = range(len(problem)), range(problem.clients)
        for k in range(self.stages):
            base.prefills(k, [(i, self.p[i][j][k]) for i in n for j in clients])
            base.decodes(k, [self.w[i][j][k] for i in n for j in clients])
            for j in clients:
                tokens = [(self.w[i][j][k], -1) for i in n]
                row(f"e8_{j}_{k}", [(base.rounds[k], 1), *tokens], least=0)
                row(f"e12_{j}_{k}", [(self.d[i][j][k], 1) for i in n], most=1)
                row(f"e16_{j}_{k}", [(self.p[i][j][k], 1) for i in n], most=1)
            for i in n:
                if problem.arrivals[i]:
                    late = [(self.p[i][j][k], -problem.arrivals[i]) for j in clients]
                    row(f"a_{i}_{k}", [(base.start_p[k], 1), *late], least=0)
            if problem.memory_blocks is not None:
                held = [(self.d[i][j][k], problem.blocks[i]) for i in n for j in clients]
                row(f"m_{k}", held, most=problem.memory_blocks)

    def _requests(self) -> None:
        """Add eq. (9), (14), (15), (17), (18) and the repair w <= d."""
        problem, row = self.problem, self.model.row
        bins = range(self.stages)
        for i in range(len(problem)):
            due = problem.needed[i]
            for j in range(problem.clients):
                p, d, w, x = self.p[i][j], self.d[i][j], self.w[i][j], self.x[i][j]
                for k in bins:
                    row(f"e9_{i}_{j}_{k}", [(d[k], 1), (p[k], -1)], least=0)
                    row(f"w_{i}_{j}_{k}", [(d[k], due), (w[k], -1)], least=0)
                row(f"e14_{i}_{j}", [*((w[k], 1) for k in bins), (x, -due)], most=0)
                row(f"e17_{i}_{j}", [*((p[k], 1) for k in bins), (x, -1)], least=0, most=0)
            everywhere = [(w, 1) for client in self.w[i] for w in client]
            row(f"e15_{i}", everywhere, least=due, most=due)
            row(f"e18_{i}", [(x, 1) for x in self.x[i]], least=1, most=1)

    def _contiguity(self) -> None:
        """Add eq. (10) and (11), or what says the same in one row a bin."""
        row, bins = self.model.row, range(self.stages)
        for i in range(len(self.problem)):
            for j in range(self.problem.clients):
                p, d = self.p[i][j], self.d[i][j]
                if self.formulation == "compact":
                    for k in bins:
                        before = [(d[k - 1], -1)] if k else []
                        row(f"e10_{i}_{j}_{k}", [(d[k], 1), (p[k], -1), *before], most=0)
                    continue
                for later in bins:
                    for k in range(later - 1):
                        # M = later - k suffices: with one of the two ends in the sum, it holds.
                        ends = later - k
                        span = [(d[k], 1 - ends), (d[later], 1 - ends)]
                        span += [(d[b], 1) for b in range(k + 1, later)]
                        row(f"e10_{i}_{j}_{k}_{later}", span, least=1 - ends)
                    for k in range(later):
                        row(f"e11_{i}_{j}_{later}_{k}", [(p[later], 1), (d[k], 1)], most=1)

    def _number_clients(self) -> None:
        """Add that client j is used by request i only if an earlier one uses client j - 1."""
        for i in range(1, len(self.problem)):
            for j in range(1, min(i, self.problem.clients - 1) + 1):
                earlier = [(self.x[other][j - 1], -1) for other in range(j - 1, i)]
                self.model.row(f"s3_{i}_{j}", [(self.x[i][j], 1), *earlier], most=0)

    def values_of(self, plan: Plan) -> list[int]:
        """Return the values of all variables that stand for a plan."""
        problem = self.problem
        if self.symmetry_breaking or plan.client is None:
            plan = with_lowest_clients(plan, problem.needed, problem.clients)
        plan = padded(plan, self.stages)
        assert plan.client is not None
        values = [0] * len(self.model.names)
        self.base.set_times(values, plan)
        for i, share in enumerate(plan.tokens(problem.needed)):
            j = plan.client[i]
            values[self.x[i][j]] = values[self.p[i][j][plan.stage[i]]] = 1
            for k, tokens in share.items():
                values[self.d[i][j][k]] = 1
                values[self.w[i][j][k]] = tokens
        return values

    def plan_of(self, values: Sequence[float]) -> Plan:
        """Return the plan in a solution; 0-1 and integer variables are rounded."""
        stage, client = [], []
        for by_client in self.p:
            chosen = [
                (values[column], j, k)
                for j, row in enumerate(by_client)
                for k, column in enumerate(row)
            ]
            _, j, k = max(chosen, key=lambda entry: entry[0])
            stage.append(k)
            client.append(j)
        rounds = tuple(round(values[column]) for column in self.base.rounds)
        return Plan(tuple(stage), tuple(client), rounds)


def padded(plan: Plan, stages: int) -> Plan:
    """Return the plan with empty bins at the end."""
    return Plan(plan.stage, plan.client, plan.rounds + (0,) * (stages - len(plan.rounds)))


class WindowsMip:
    """The window MIP of a problem with ``stages`` bins; same variables for bins as ``FullMip``. One
    0-1 variable u_iab says that request i is prefilled in bin a and done by the end of bin b.
    Requests fit on J clients if and only if no bin is covered more than J times. A reference: the
    optimum is that of the full MIP (the page *The full MIP* has the proof), the size K^2 n / 2."""

    name = "window-mip"

    def __init__(self, problem: Problem, stages: int, symmetry_breaking: bool = True) -> None:
        self.problem, self.stages = problem, stages
        self.base = Stages(problem, stages)
        self.model = self.base.model
        add, bins = self.model.add, range(stages)
        self.windows = [
            {(a, b): add(f"u_{i}_{a}_{b}", BINARY, 1) for a in bins for b in range(a, stages)}
            for i in range(len(problem))
        ]
        self.tokens: list[list[int]] = []
        if problem.round_client:
            self.tokens = [
                [add(f"w_{i}_{k}", CONTINUOUS, due) for k in bins]
                for i, due in enumerate(problem.needed)
            ]
        self.base.timeline()
        self._bins()
        self._windows()
        if symmetry_breaking:
            self.base.used_first()

    def _bins(self) -> None:
        problem, base, row = self.problem, self.base, self.model.row
        for k in range(self.stages):
            starts = [
                (i, column)
                for i, windows in enumerate(self.windows)
                for (a, _), column in windows.items()
                if a == k
            ]
            covering = [
                (i, column)
                for i, windows in enumerate(self.windows)
                for (a, b), column in windows.items()
                if a <= k <= b
            ]
            base.prefills(k, starts)
            base.decodes(k, [tokens[k] for tokens in self.tokens])
            row(f"clients_{k}", [(column, 1) for _, column in covering], most=problem.clients)
            if problem.memory_blocks is not None:
                held = [(column, problem.blocks[i]) for i, column in covering]
                row(f"m_{k}", held, most=problem.memory_blocks)
            for i, arrival in enumerate(problem.arrivals):
                if arrival:
                    late = [(column, -arrival) for other, column in starts if other == i]
                    row(f"a_{i}_{k}", [(base.start_p[k], 1), *late], least=0)

    def _windows(self) -> None:
        problem, row = self.problem, self.model.row
        for i, (windows, due) in enumerate(zip(self.windows, problem.needed, strict=True)):
            row(f"one_{i}", [(column, 1) for column in windows.values()], least=1, most=1)
            for (a, b), column in windows.items():
                inside = [(self.base.rounds[k], 1) for k in range(a, b + 1)]
                row(f"long_{i}_{a}_{b}", [*inside, (column, -due)], least=0)
            if not self.tokens:
                continue
            row(f"all_{i}", [(w, 1) for w in self.tokens[i]], least=due, most=due)
            for k, w in enumerate(self.tokens[i]):
                row(f"in_{i}_{k}", [(self.base.rounds[k], 1), (w, -1)], least=0)
                over = [(c, due) for (a, b), c in windows.items() if a <= k <= b]
                row(f"on_{i}_{k}", [*over, (w, -1)], least=0)

    def values_of(self, plan: Plan) -> list[int]:
        """Return the values of all variables that stand for a plan."""
        plan = padded(plan, self.stages)
        values = [0] * len(self.model.names)
        self.base.set_times(values, plan)
        for i, share in enumerate(plan.tokens(self.problem.needed)):
            values[self.windows[i][plan.stage[i], max(share)]] = 1
            for k, tokens in share.items() if self.tokens else ():
                values[self.tokens[i][k]] = tokens
        return values

    def plan_of(self, values: Sequence[float]) -> Plan:
        """Return the plan in a solution; requests take the lowest free clients."""
        stage = tuple(
            max(windows, key=lambda window, of=windows: values[of[window]])[0]  # type: ignore[misc]
            for windows in self.windows
        )
        return Plan(stage, None, tuple(round(values[column]) for column in self.base.rounds))
