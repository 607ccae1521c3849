"""The compact model: the optimum of the full MIP, on instances of every kind that maps."""

import pytest

import orsched
from orsched.instances.catalog import KNOWN_OPTIMA, load_named
from orsched.models.exact_search.stage_plan import plan_of, read_problem, schedule_of
from orsched.models.full_mip import solve_full_mip
from orsched.models.full_mip.interval_model import IntervalModel
from orsched.models.full_mip.linear_solvers import cp_model
from orsched.models.full_mip.solve import stages_that_suffice
from tests.brute_force import optimum_ns
from tests.models.full_mip.small import random_instance
from tests.refusals import refused
from tests.seeds import seeds


def solved(instance, stages, least=None):
    """Return the optimum of the model, read back through the checker."""
    sent = []
    model = IntervalModel(read_problem(instance), stages, least)
    assert model.solve(None, 0, sent.append)["status"] == "optimal"
    objective, plan, exact = [value for kind, value in sent if kind == "solution"][-1]
    bounds = [value for kind, value in sent if kind == "bound"]
    assert exact
    assert bounds == sorted(bounds)
    assert bounds[-1] == objective
    schedule = schedule_of(instance, plan)
    assert schedule.makespan_ns == model.problem.to_ns(objective)
    return schedule.makespan_ns


@pytest.mark.parametrize("seed", seeds(12, 300))
def test_it_agrees_with_exhaustive_search(seed):
    instance = random_instance(seed, most=4 if seed < 60 else 5)
    least = optimum_ns(instance)
    assert solved(instance, len(instance)) == least
    enough, _ = stages_that_suffice(read_problem(instance), least)
    assert solved(instance, enough) == least


@pytest.mark.parametrize("name", KNOWN_OPTIMA)
def test_known_optima(name):
    instance = load_named(name)
    result = orsched.solve(instance, "exact", parameters={"search": "cp"})
    assert result.schedule.makespan_ns == KNOWN_OPTIMA[name].makespan_ns
    assert result.status == "optimal"


@pytest.mark.parametrize("seed", seeds(6, 12))
def test_it_agrees_with_the_full_mip_and_any_plan_is_a_solution(seed):
    """A schedule's plan, written into the model with its variables fixed, has its makespan."""
    instance = random_instance(500 + seed, most=6)
    full, compact = (
        solve_full_mip(instance, "cpsat", formulation=kind, alone=True)
        for kind in ("compact", "intervals")
    )
    assert full.status == compact.status == "optimal"
    assert full.makespan_ns == compact.makespan_ns == compact.bound_ns
    schedule = orsched.solve(instance, "fcfs").schedule
    plan = plan_of(instance, schedule)
    model = IntervalModel(read_problem(instance), len(plan.rounds))
    for i, stage in enumerate(plan.stage):
        for k in range(len(plan.rounds) + 1):
            model.cp.add(model.before[i][k] == int(stage < k))
    for k in range(len(plan.rounds)):
        model.cp.add(model.at[k] == sum(plan.rounds[:k]))
    solver = cp_model().CpSolver()
    solver.parameters.catch_sigint_signal = False  # it would leave the default handler behind
    solver.parameters.num_workers = 1
    if len(set(zip(*_kinds(model.problem), strict=True))) == len(instance):  # no order is broken
        assert solver.solve(model.cp) == cp_model().OPTIMAL
        assert model.problem.to_ns(round(solver.objective_value)) <= schedule.makespan_ns


def _kinds(problem):
    return problem.prompts, problem.needed, problem.blocks, problem.arrivals


def test_fewer_stages_than_suffice_prove_no_bound():
    result = solve_full_mip(load_named("packing"), "cpsat", stages=3, formulation="intervals")
    assert (result.status, result.bound_ns) == ("optimal_for_K", None)


@pytest.mark.parametrize(("parameters", "objective"), [
    ({"search": "cp", "backend": "scip"}, "makespan"), ({"search": "cp"}, "jct_mean"),
])  # fmt: skip
def test_it_is_for_the_makespan_in_cpsat(parameters, objective):
    refused("search=cp is for the makespan", orsched.solve, load_named("gate"), "exact", objective,
            parameters=parameters)  # fmt: skip


def test_a_backend_that_has_no_intervals_is_refused():
    refused("cpsat", solve_full_mip, load_named("gate"), "scip", formulation="intervals")
