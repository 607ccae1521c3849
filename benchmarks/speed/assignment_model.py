"""The assignment model, Pang (26)-(30), in SCIP and in CP-SAT: an oracle of packings.

min t with each job on one client and every client's load at most t. Its n J binaries are
interchangeable between clients; PCMAX with 1,319 jobs is out of its reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Reference(NamedTuple):
    """The best packing (None: none found), its makespan, the solver's bound, whether it is done."""

    assignment: list[int] | None
    makespan: int | None
    bound: int
    optimal: bool


def solve_assignment(
    jobs: Sequence[int], clients: int, solver: str = "cp-sat", time_limit: float = 60.0
) -> Reference:
    """Solve (26)-(30) of jobs on J clients with one thread by ``cp-sat`` or ``scip``, whose own
    proof it is, in a number of seconds."""
    if not jobs:
        return Reference([], 0, 0, True)
    solve = _cp_sat if solver == "cp-sat" else _scip
    return solve([int(job) for job in jobs], clients, time_limit)


def _cp_sat(jobs: list[int], clients: int, time_limit: float) -> Reference:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    on = [[model.new_bool_var("") for _ in range(clients)] for _ in jobs]
    makespan = model.new_int_var(0, sum(jobs), "t")
    for row in on:
        model.add_exactly_one(row)
    for client in range(clients):
        load = sum(job * row[client] for job, row in zip(jobs, on, strict=True))
        model.add(load <= makespan)
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.catch_sigint_signal = False  # it would leave the default handler behind
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = time_limit
    status = solver.solve(model)
    bound = max(0, round(solver.best_objective_bound))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Reference(None, None, bound, False)
    assignment = [next(c for c, v in enumerate(row) if solver.boolean_value(v)) for row in on]
    return _checked(jobs, clients, assignment, bound, status == cp_model.OPTIMAL)


def _scip(jobs: list[int], clients: int, time_limit: float) -> Reference:
    from pyscipopt import Model, quicksum

    model = Model("assignment")
    model.hideOutput()
    model.setParam("limits/time", time_limit)
    on = [[model.addVar(vtype="B") for _ in range(clients)] for _ in jobs]
    makespan = model.addVar(vtype="I", lb=0, ub=sum(jobs))
    for row in on:
        model.addCons(quicksum(row) == 1)
    for client in range(clients):
        load = quicksum(job * row[client] for job, row in zip(jobs, on, strict=True))
        model.addCons(load <= makespan)
    model.setObjective(makespan, "minimize")
    model.optimize()
    bound = max(0, round(model.getDualbound()))
    if model.getNSols() == 0:
        return Reference(None, None, bound, False)
    best: Any = model.getBestSol()
    assignment = []
    for row in on:
        shares = [best[variable] for variable in row]
        assignment.append(shares.index(max(shares)))
    return _checked(jobs, clients, assignment, bound, model.getStatus() == "optimal")


def _checked(
    jobs: list[int], clients: int, assignment: list[int], bound: int, optimal: bool
) -> Reference:
    """Return the packing with the makespan that it has in integers."""
    loads = [0] * clients
    for job, client in zip(jobs, assignment, strict=True):
        loads[client] += job
    return Reference(assignment, max(loads), min(bound, max(loads)), optimal)
