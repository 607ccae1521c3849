"""The programs in a researcher's hands: every solver, changed models, schedules back."""

from __future__ import annotations

import pytest

import orsched
from orsched.common.errors import InputError, MissingDependencyError
from orsched.instances.catalog import KNOWN_OPTIMA, generate, load_named
from orsched.metrics.summary import summarise
from orsched.models.full_mip import solve_full_mip
from orsched.models.full_mip.mathopt_solvers import _HIGHS_LINE
from orsched.models.mip import PROGRAMS, available_solvers, build, read_program
from orsched.solving.objectives import minimised
from tests.brute_force import optimum_ns
from tests.models.full_mip.small import random_instance

mo = pytest.importorskip("ortools.math_opt.python.mathopt")
SOLVERS = ("scip", "highs", "cpsat")
MIPS = ("full-mip", "window-mip")


def test_the_solvers_that_come_with_ortools_are_found():
    assert set(SOLVERS) <= set(available_solvers())


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("program", MIPS)
@pytest.mark.parametrize("name", ["gate", "with-arrivals"])
def test_known_optima(name, program, solver):
    instance = load_named(name)
    mip = build(instance, program)
    result = mip.solve(solver, time_limit=600)
    assert (result.status, result.termination) == ("optimal", "finished")
    assert round(mip.program.to_ns(result.objective)) == KNOWN_OPTIMA[name].makespan_ns
    assert result.schedule.makespan_ns == KNOWN_OPTIMA[name].makespan_ns
    assert result.bound == pytest.approx(result.objective)
    assert result.gap == pytest.approx(0, abs=1e-6)
    assert orsched.check(instance, result.schedule) == []


@pytest.mark.parametrize("seed", [2, 5, 11, 17])
def test_the_optimum_is_that_of_exhaustive_search(seed):
    instance = random_instance(seed, most=4)
    for program, solver in zip(MIPS, ("highs", "scip"), strict=True):
        result = build(instance, program).solve(solver, time_limit=600)
        assert result.schedule.makespan_ns == optimum_ns(instance), (program, solver)


@pytest.mark.parametrize("objective", ["jct_mean", "ttft_mean", "0.5*makespan+0.5*jct_mean"])
def test_means(objective):
    """INV: the value of the schedule is that of the model, and that of the exact search."""
    instance = random_instance(11, most=3)
    mip = build(instance, "latency-mip", objective=objective)
    result = mip.solve("highs", time_limit=600)
    assert result.status == "optimal"
    least = solve_full_mip(instance, "cpsat", objective=objective, time_limit=600)
    assert least.status == "optimal"
    assert mip.program.to_ns(round(result.objective)) == pytest.approx(float(least.value))
    value = minimised(objective).value(summarise(instance, result.schedule))
    assert value * 1e9 == pytest.approx(float(least.value))
    start = mip.values_of(result.schedule)
    assert mo.evaluate_expression(mip.own_objective, start) == pytest.approx(result.objective)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_row_of_ones_own_holds_in_the_schedule(solver):
    """The first request of ``gate`` is kept out of the first stage: that costs time."""
    instance = load_named("gate")
    mip = build(instance, "window-mip")
    free = mip.solve(solver).objective
    late = [v for (i, a, _), v in mip.variables("u").items() if i == 0 and a == 0]
    mip.model.add_linear_constraint(mo.fast_sum(late) <= 0, name="not_first")
    result = mip.solve(solver)
    assert result.status == "optimal"
    assert result.objective >= free
    first = result.schedule.request_times(instance)["prefill_start_ns"]
    assert first[0] > min(first)
    assert not any("does not keep" in note for note in result.notes)


def test_a_row_on_times_that_the_schedule_does_not_keep_is_named():
    """What starts as early as possible cannot wait for nothing."""
    instance = load_named("gate")
    mip = build(instance)
    mip.model.add_linear_constraint(mip.variable("tsp", 0) >= 5, name="wait")
    result = mip.solve("highs")
    assert result.status == "optimal"
    assert "does not keep wait" in result.notes[-1]
    assert result.schedule.makespan_ns <= round(mip.program.to_ns(result.objective))


def test_another_objective():
    """Least rounds, then least stages: a weighted sum of the program's variables."""
    instance = load_named("packing")
    mip = build(instance)
    stages = mo.fast_sum(mip.variables("y").values())
    rounds = mo.fast_sum(mip.variables("r").values())
    mip.model.minimize(100 * rounds + stages)
    by_rounds = mip.solve("cpsat").schedule
    mip.model.minimize(rounds + 100 * stages)
    by_stages = mip.solve("cpsat").schedule

    def counts(schedule):
        prefill = schedule.steps.phase == 0
        return int(prefill.sum()), int(schedule.steps.rounds[~prefill].sum())

    assert counts(by_stages)[0] < counts(by_rounds)[0]
    assert counts(by_stages)[1] > counts(by_rounds)[1]


def test_maximising_keeps_the_better_bound():
    mip = build(load_named("gate"))
    mip.model.maximize(mip.variable("x", 1, 0) + mip.variable("x", 2, 0))
    result = mip.solve("scip")
    assert result.status == "optimal"
    assert result.objective == pytest.approx(2)
    assert result.bound == pytest.approx(2)


@pytest.mark.full
@pytest.mark.parametrize("solver", SOLVERS)
def test_history_and_callback(solver):
    """INV: objectives fall, bounds rise, and they never cross."""
    seen = []
    mip = build(generate("gsm8k", seed=0, requests=9, clients=3))
    result = mip.solve(solver, time_limit=3, callback=lambda step: seen.append(step))
    assert seen
    assert tuple(seen) == result.history
    objectives = [s.objective for s in result.history if s.objective is not None]
    bounds = [s.bound for s in result.history if s.bound is not None]
    assert objectives == sorted(objectives, reverse=True)
    assert bounds == sorted(bounds)
    assert bounds[-1] <= objectives[-1] + 1e-6 * abs(objectives[-1])
    assert [s.elapsed_s for s in seen] == sorted(s.elapsed_s for s in seen)


def test_a_callback_ends_the_search_with_what_is_known():
    mip = build(generate("gsm8k", seed=0, requests=10, clients=3))
    result = mip.solve("cpsat", callback=lambda step: step.objective is not None)
    assert (result.status, result.termination) == ("feasible", "stopped")
    assert result.schedule is not None


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_time_limit_ends_with_a_bound(solver):
    mip = build(generate("gsm8k", seed=0, requests=14, clients=3))
    result = mip.solve(solver, time_limit=1)
    assert result.termination == "limit"
    assert result.status in ("feasible", "unknown")


@pytest.mark.full
def test_a_warm_start_is_the_first_solution():
    instance = generate("gsm8k", seed=0, requests=12, clients=3)
    start = orsched.solve(instance, "hybrid").schedule
    mip = build(instance)
    known = mip.values_of(start)[mip.variable("tmax")]
    assert round(mip.program.to_ns(known)) == start.makespan_ns
    result = mip.solve("scip", start=start, time_limit=2)
    assert result.objective <= known


@pytest.mark.full
def test_parameters_reach_the_solver():
    mip = build(generate("gsm8k", seed=0, requests=8, clients=3))
    result = mip.solve("highs", parameters=mo.SolveParameters(node_limit=1))
    assert result.termination == "limit"
    with pytest.raises(InputError, match=r"cpsat refused the model: .*node_limit"):
        mip.solve("cpsat", parameters=mo.SolveParameters(node_limit=1))


def test_infeasible_rows():
    mip = build(load_named("gate"))
    mip.model.add_linear_constraint(mip.variable("tmax") <= 1)
    result = mip.solve("highs")
    assert (result.status, result.schedule, result.objective) == ("infeasible", None, None)


def test_names():
    mip = build(load_named("gate"))
    assert mip.variable("p", 1, 0, 2) is mip.variable("p_1_0_2")
    assert mip.variables("p")[1, 0, 2] is mip.variable("p_1_0_2")
    assert mip.variables("tmax") == {(): mip.variable("tmax")}
    assert mip.row("e18", 0).name == "e18_0"
    with pytest.raises(InputError, match="there is no variable 'q_1'"):
        mip.variable("q", 1)
    with pytest.raises(InputError, match="there is no family 'q'"):
        mip.variables("q")
    with pytest.raises(InputError, match="there is no row 'e99'"):
        mip.row("e99")
    assert "full-mip" in repr(mip)


def test_every_name_is_explained():
    """INV: the legend has each family of columns and rows, so that files say what they hold."""
    timed = random_instance(2)
    cases = [(timed, p) for p in MIPS] + [(load_named("gate"), "full-mip")]
    cases += [(timed, "latency-mip"), (load_named("gate"), "latency-mip")]
    for instance, name in cases:
        program = read_program(instance, name)
        explained = " ".join(names for names, _ in program.legend).replace(",", " ").split()
        families = {word.split("_")[0] for word in explained}
        families |= {f"e{k}" for k in range(2, 19)} | {"e8t"}
        for word in [*program.model.names, *(row.name for row in program.model.rows)]:
            assert word.split("_")[0] in families, word


def test_what_is_refused():
    instance = load_named("gate")
    for options, field in (
        ({"program": "mip"}, "program"),
        ({"stages": 0}, "stages"),
        ({"objective": "jct_mean"}, "objective"),
        ({"program": "latency-mip", "objective": "slo_attainment"}, "objective"),
        ({"program": "latency-mip", "objective": "speed"}, "objective"),
        ({"program": "latency-mip", "max_nonzeros": 10}, "max_nonzeros"),
        ({"formulation": "terse"}, "formulation"),
        ({"max_nonzeros": 10}, "max_nonzeros"),
    ):
        with pytest.raises(InputError) as caught:
            build(instance, **options)
        assert caught.value.field == field
    with pytest.raises(InputError, match="'gurobbi' is unknown"):
        build(instance).solve("gurobbi")
    if "gurobi" not in available_solvers():
        with pytest.raises(MissingDependencyError, match="licence"):
            build(instance).solve("gurobi")
    with pytest.raises(InputError, match=r"the schedule has .* prefill stages, the model 1"):
        build(instance, stages=1).solve(start=orsched.solve(instance, "fcfs").schedule)


def test_programs_are_those_that_are_documented():
    assert PROGRAMS == ("full-mip", "window-mip", "latency-mip")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (" J       0       0         0   0.00%   -inf            74440              Large       0 ",
         ("-inf", "74440")),
        ("       105       9        30  28.10%   29071           29821              2.52%    1634 ",
         ("29071", "29821")),
        ("  Primal bound      29821", None),
    ],
)  # fmt: skip
def test_lines_of_the_log_of_highs(line, found):
    match = _HIGHS_LINE.match(line)
    assert (match and match.groups()) == found


@pytest.mark.parametrize("wrong", [None, 5, "gate"])
def test_what_is_no_instance_is_said(wrong):
    with pytest.raises(InputError, match="is not an Instance"):
        build(wrong)
