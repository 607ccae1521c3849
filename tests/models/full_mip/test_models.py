"""The models themselves: equal optima, sizes known before, sufficient K, files that read back."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import given, settings

import orsched
from orsched import InputError, LevelsCost, Requests, Worker
from orsched.instances.catalog import KNOWN_OPTIMA, load_named
from orsched.models.exact_search.stage_plan import plan_of, read_problem, schedule_of
from orsched.models.full_mip import write_full_mip
from orsched.models.full_mip.formulation import FullMip, WindowsMip
from orsched.models.full_mip.linear_solvers import BACKENDS as SOLVERS
from orsched.models.full_mip.linear_solvers import INTEGER, LinearModel
from orsched.models.full_mip.programs import Size, full_mip_size, windows_mip_size
from orsched.models.full_mip.solve import least_makespan_ns, stages_that_suffice
from tests.brute_force import optimum_ns
from tests.in_order import in_order
from tests.models.full_mip.small import instances, random_instance

QUICK = [0, 1, 2, 3, 5, 8, 11, 12, 15, 17, 20, 22, 25, 28, 31]


def optimum(instance, model, solver):
    """The optimum of a model, read back through the checker, with its bound and hint tested."""
    solutions, bounds = [], []
    found = SOLVERS[solver].solve(
        model.model,
        None,
        None,
        0,
        lambda values, objective: solutions.append((objective, model.plan_of(values))),
        bounds.append,
    )
    assert found["status"] == "optimal"
    objective, plan = solutions[-1]
    schedule = schedule_of(instance, plan)
    assert schedule.makespan_ns == model.problem.to_ns(objective)
    assert bounds == sorted(bounds)
    assert bounds[-1] == objective
    values = model.values_of(plan_of(instance, schedule))
    assert model.model.violation(values) is None
    assert model.model.value(values) == objective
    return schedule.makespan_ns


def models(problem, stages):
    return {
        "compact": FullMip(problem, stages),
        "compact, no symmetry": FullMip(problem, stages, symmetry_breaking=False),
        "printed": FullMip(problem, stages, "printed"),
        "as Pang": FullMip(problem, stages, "printed", symmetry_breaking=False),
        "windows": WindowsMip(problem, stages),
        "windows, no symmetry": WindowsMip(problem, stages, symmetry_breaking=False),
    }


@pytest.mark.parametrize("solver", SOLVERS)
def test_back_ends_leave_ctrl_c_to_python(solver):
    """INV: Python's own handler acts after a solve in the same process."""
    instance = load_named("gate")
    optimum(instance, FullMip(read_problem(instance), 3), solver)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", KNOWN_OPTIMA)
def test_known_optima(name, solver):
    instance = load_named(name)
    problem = read_problem(instance)
    full = FullMip(problem, len(instance))
    assert optimum(instance, full, solver) == KNOWN_OPTIMA[name].makespan_ns


@pytest.mark.parametrize("seed", QUICK)
def test_full_mip_window_mip_and_exhaustive_search_agree(seed):
    """INV: one optimum, in both back ends and with the K that is proven to suffice."""
    agree(random_instance(seed, most=4), ["compact", "windows"], ["as Pang"])


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1000, 1240))
def test_all_models_agree_on_240_instances(seed):
    agree(random_instance(seed), ["compact"], ["compact, no symmetry", "printed", "windows"])
    agree(random_instance(seed, most=4), ["as Pang", "windows"], ["windows, no symmetry"])


def agree(instance, in_both, in_cpsat):
    problem = read_problem(instance)
    least = optimum_ns(instance)
    built = models(problem, len(instance))
    for name in in_both:
        for solver in SOLVERS:
            assert optimum(instance, built[name], solver) == least, (name, solver)
    for name in in_cpsat:
        assert optimum(instance, built[name], "cpsat") == least, name
    enough, _ = stages_that_suffice(problem, orsched.solve(instance, "fcfs").makespan_ns)
    assert optimum(instance, FullMip(problem, enough), "cpsat") == least


@given(instances(most=6))
def test_sizes_are_known_before_the_model_is_built(instance):
    problem = read_problem(instance)
    for stages in (1, len(instance)):
        for symmetry in (False, True):
            for formulation in ("compact", "printed"):
                model = FullMip(problem, stages, formulation, symmetry).model
                built = Size(len(model.names), len(model.rows), model.nonzeros)
                assert built == full_mip_size(problem, stages, formulation, symmetry)
            model = WindowsMip(problem, stages, symmetry).model
            built = Size(len(model.names), len(model.rows), model.nonzeros)
            assert built == windows_mip_size(problem, stages, symmetry)


def test_the_size_of_pangs_main_case():
    """INV: 1,319 requests, 200 clients, 45 bins: twelve million p, 261 million rows of (10)."""
    size = full_mip_size(read_problem(load_named("gsm8k-llama65b")), 45, "printed", False)
    assert size.variables > 3 * 11_871_000
    assert size.rows > 2 * 1319 * 200 * 45 * 44 // 2 - 1319 * 200 * 45


@settings(max_examples=25)
@given(instances(most=6))
def test_plans_and_schedules_are_two_forms_of_one_thing(instance):
    """INV: a schedule's plan gives a schedule that is as short, and a solution of each model."""
    problem = read_problem(instance)
    for method in ("fcfs", "hybrid"):
        schedule = orsched.solve(instance, method, iterations=2).schedule
        plan = plan_of(instance, schedule)
        again = schedule_of(instance, plan)
        assert again.makespan_ns <= schedule.makespan_ns
        assert plan_of(instance, again) == plan
        stages = len(plan.rounds)
        assert least_makespan_ns(problem, stages) <= schedule.makespan_ns
        assert stages <= stages_that_suffice(problem, schedule.makespan_ns)[0] <= len(instance)
        for model in models(problem, stages).values():
            values = model.values_of(plan)
            assert model.model.violation(values) is None
            read = model.plan_of(values)
            assert schedule_of(instance, read).makespan_ns == again.makespan_ns
            assert problem.to_ns(model.model.value(values)) == again.makespan_ns


def test_fewer_bins_where_the_incumbent_proves_it():
    """A stage of 1,000 and rounds of 1 each: three stages take longer than two and all rounds."""
    cost = in_order(orsched.AffineCost, 1000, 0, 1, 0)
    instance = orsched.Instance(
        Requests([1] * 4, [2, 3, 4, 5]), Worker(2, cost), first_token="decode"
    )
    problem = read_problem(instance)
    assert stages_that_suffice(problem, None)[0] == 4
    known = optimum_ns(instance)
    assert known == 2 * 1000 + 3 + 5
    enough, reason = stages_that_suffice(problem, known)
    assert enough == 2
    assert "3 stages with the least number of rounds take at least 3007 ns" in reason


def test_levels_bound_the_number_of_stages_together_with_the_tokens():
    cost = LevelsCost(levels=((4, 10), (8, 20), (12, 30)), round_fixed_ns=1)
    problem = read_problem(
        orsched.Instance(Requests([4, 4, 4], [1, 1, 1]), Worker(3, cost), first_token="decode")
    )
    assert least_makespan_ns(problem, 1) >= 10 + 1
    assert least_makespan_ns(problem, 3) == 3 * 10 + 1


@pytest.mark.parametrize("suffix", [".mps", ".lp", ".MPS"])
@pytest.mark.parametrize("name", ["gate", "with-arrivals"])
def test_an_exported_model_reads_back_with_the_same_optimum(tmp_path, name, suffix):
    from pyscipopt import Model

    path = tmp_path / f"model{suffix}"
    unit = write_full_mip(load_named(name), path, 4)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    scip = Model()
    scip.hideOutput()
    scip.setParam("misc/catchctrlc", False)
    scip.readProblem(str(path), extension=suffix[1:].lower())
    scip.optimize()
    assert scip.getStatus() == "optimal"
    assert round(scip.getObjVal() * unit) == KNOWN_OPTIMA[name].makespan_ns


def test_exports_are_refused_with_a_reason(tmp_path):
    instance = load_named("packing")
    with pytest.raises(InputError, match="not a suffix"):
        write_full_mip(instance, tmp_path / "model.txt")
    with pytest.raises(InputError, match="cannot write"):
        write_full_mip(instance, tmp_path / "missing" / "model.mps")
    with pytest.raises(InputError, match="nonzeros"):
        write_full_mip(load_named("gsm8k-llama65b"), tmp_path / "model.mps", 45)
    with pytest.raises(InputError, match="'windows' is unknown"):
        write_full_mip(instance, tmp_path / "model.mps", formulation="windows")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_objective_is_a_sum_of_several_variables(solver):
    """2 x + 3 y - z with x + y >= 4, x <= 3 and z <= 5: x = 3, y = 1, z = 5."""
    model = LinearModel()
    x, y, z = (model.add(name, INTEGER, most) for name, most in (("x", 3), ("y", 9), ("z", 5)))
    model.row("due", [(x, 1), (y, 1)], least=4)
    model.minimise([(x, 2), (y, 3), (z, -1)])
    assert model.objective_upper == 2 * 3 + 3 * 9
    found = []
    SOLVERS[solver].solve(model, None, None, 0, lambda *seen: found.append(seen), lambda _: None)
    values, objective = found[-1]
    assert [round(value) for value in values] == [3, 1, 5]
    assert objective == model.value([3, 1, 5]) == 4
