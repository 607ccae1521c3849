"""The programs in a researcher's hands: every solver, changed models, schedules back."""

import pytest

import orsched
from orsched.common.errors import InputError, MissingDependencyError
from orsched.instances.catalog import KNOWN_OPTIMA, generate, load_named
from orsched.metrics.summary import summarise
from orsched.models.full_mip import solve_full_mip
from orsched.models.full_mip.linear_solvers import BINARY, CONTINUOUS, INTEGER, LinearModel
from orsched.models.full_mip.mathopt_solvers import _HIGHS_LINE
from orsched.models.mip import (
    FORMATS,
    PROGRAMS,
    Program,
    available_solvers,
    build,
    file_lines,
    read_program,
)
from orsched.solving.objectives import minimised
from tests.brute_force import optimum_ns
from tests.models.full_mip.small import random_instance

mo = pytest.importorskip("ortools.math_opt.python.mathopt")
SOLVERS = ("scip", "highs", "cpsat")
MIPS = ("full-mip", "window-mip")


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("program", MIPS)
@pytest.mark.parametrize("name", ["gate", "with-arrivals"])
def test_known_optima(name, program, solver):
    assert solver in available_solvers()
    instance = load_named(name)
    mip = build(instance, program)
    result = mip.solve(solver, time_limit=600)
    assert (result.status, result.termination) == ("optimal", "finished")
    least = KNOWN_OPTIMA[name].makespan_ns
    assert round(mip.program.to_ns(result.objective)) == result.schedule.makespan_ns == least
    assert result.bound == pytest.approx(result.objective)
    assert result.gap == pytest.approx(0, abs=1e-6)
    assert orsched.check(instance, result.schedule) == []
    assert result.makespan == least / 1e9
    assert repr(result).startswith(f"MipResult of {solver}: optimal (finished), makespan ")


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


def gsm8k(requests):
    """A case of three clients; from ten requests on, more than a test can wait for."""
    return build(generate("gsm8k", seed=0, requests=requests, clients=3))


def test_a_row_on_times_that_the_schedule_does_not_keep_is_named():
    """What starts as early as possible cannot wait for nothing."""
    mip = build(load_named("gate"))
    mip.model.add_linear_constraint(mip.variable("tsp", 0) >= 5, name="wait")
    result = mip.solve("highs")
    assert result.status == "optimal"
    assert "does not keep wait" in result.notes[-1]
    assert result.schedule.makespan_ns <= round(mip.program.to_ns(result.objective))


def test_another_objective():
    """Least rounds, then least stages: a weighted sum of the program's variables."""
    mip = build(load_named("packing"))
    sums = [mo.fast_sum(mip.variables(name).values()) for name in ("r", "y")]

    def counts(rounds_weigh, stages_weigh):
        mip.model.minimize(rounds_weigh * sums[0] + stages_weigh * sums[1])
        steps = mip.solve("cpsat").schedule.steps
        return int((steps.phase == 0).sum()), int(steps.rounds[steps.phase != 0].sum())

    by_rounds, by_stages = counts(100, 1), counts(1, 100)
    assert by_stages[0] < by_rounds[0]
    assert by_stages[1] > by_rounds[1]


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
    result = gsm8k(9).solve(solver, time_limit=3, callback=lambda step: seen.append(step))
    assert seen
    assert tuple(seen) == result.history
    objectives = [s.objective for s in result.history if s.objective is not None]
    bounds = [s.bound for s in result.history if s.bound is not None]
    assert objectives == sorted(objectives, reverse=True)
    assert bounds == sorted(bounds)
    assert bounds[-1] <= objectives[-1] + 1e-6 * abs(objectives[-1])
    assert [s.elapsed_s for s in seen] == sorted(s.elapsed_s for s in seen)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_time_limit_ends_with_a_bound_and_a_callback_with_what_is_known(solver):
    result = gsm8k(14).solve(solver, time_limit=1)
    assert result.termination == "limit"
    assert result.status in ("feasible", "unknown")
    if solver == "cpsat":
        result = gsm8k(10).solve("cpsat", callback=lambda step: step.objective is not None)
        assert (result.status, result.termination) == ("feasible", "stopped")
        assert result.schedule is not None


@pytest.mark.full
def test_a_warm_start_is_the_first_solution():
    mip = gsm8k(12)
    start = orsched.solve(mip.program.instance, "hybrid").schedule
    known = mip.values_of(start)[mip.variable("tmax")]
    assert round(mip.program.to_ns(known)) == start.makespan_ns
    one_node = mo.SolveParameters(node_limit=1)
    result = mip.solve("scip", start=start, parameters=one_node)
    assert result.objective <= known


@pytest.mark.full
def test_parameters_reach_the_solver():
    mip = gsm8k(8)
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
    assert mip.variable("p", 1, 0, 2) is mip.variable("p_1_0_2") is mip.variables("p")[1, 0, 2]
    assert mip.variables("tmax") == {(): mip.variable("tmax")}
    assert mip.row("e18", 0).name == "e18_0"
    for call, what in (
        (lambda: mip.variable("q", 1), "variable 'q_1'"),
        (lambda: mip.variables("q"), "family 'q'"),
        (lambda: mip.row("e99"), "row 'e99'"),
    ):
        with pytest.raises(InputError, match=f"unknown {what}"):
            call()
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


WRONG = (
    ("program", {"program": "mip"}), ("stages", {"stages": 0}),
    ("formulation", {"formulation": "terse"}), ("objective", {"objective": "jct_mean"}),
    ("max_nonzeros", {"max_nonzeros": 10}),
    ("objective", {"program": "latency-mip", "objective": "slo_attainment"}),
    ("objective", {"program": "latency-mip", "objective": "speed"}),
    ("max_nonzeros", {"program": "latency-mip", "max_nonzeros": 10}),
)  # fmt: skip


@pytest.mark.parametrize(("field", "options"), WRONG)
def test_wrong_options_are_named(field, options):
    with pytest.raises(InputError) as caught:
        build(load_named("gate"), **options)
    assert caught.value.field == field


def test_what_is_refused():
    instance = load_named("gate")
    with pytest.raises(InputError, match="'gurobbi' is unknown"):
        build(instance).solve("gurobbi")
    if "gurobi" not in available_solvers():
        with pytest.raises(MissingDependencyError, match="licence"):
            build(instance).solve("gurobi")
    with pytest.raises(InputError, match=r"the schedule has .* prefill stages, the model 1"):
        build(instance, stages=1).solve(start=orsched.solve(instance, "fcfs").schedule)
    for wrong in (None, 5, "gate"):
        with pytest.raises(InputError, match="is not an Instance"):
            build(wrong)
    assert PROGRAMS == ("full-mip", "window-mip", "latency-mip", "packing")


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


def written(program, style, folder):
    path = folder / f"model.{style}"
    path.write_text("".join(file_lines(program, style)), encoding="utf-8")
    return path


def by_scip(path):
    """The optimum that SCIP finds in a file."""
    scip = pytest.importorskip("pyscipopt").Model()
    scip.hideOutput()
    scip.setParam("misc/catchctrlc", False)
    scip.readProblem(str(path))
    scip.optimize()
    assert scip.getStatus() == "optimal"
    return scip.getObjVal()


def by_ortools(path):
    """The optimum that CP-SAT finds in a file that OR-Tools reads."""
    builder = pytest.importorskip("ortools.linear_solver.python.model_builder")
    model = builder.Model()
    read = model.import_from_lp_file if path.suffix == ".lp" else model.import_from_mps_file
    assert read(str(path))
    solver = builder.Solver("scip")
    assert solver.solve(model) == builder.SolveStatus.OPTIMAL
    return solver.objective_value


def optima_in(path):
    """What SCIP finds in a file, and CP-SAT where OR-Tools reads it whole."""
    return [read(path) for read in ((by_scip, by_ortools) if path.suffix == ".mps" else (by_scip,))]


@pytest.mark.parametrize("style", FORMATS)
@pytest.mark.parametrize("name", ["gate", "with-arrivals"])
@pytest.mark.parametrize("mip", ["full-mip", "window-mip"])
def test_the_optimum_of_the_file_is_that_of_the_instance(mip, name, style, tmp_path):
    program = read_program(load_named(name), mip)
    for least in optima_in(written(program, style, tmp_path)):
        assert round(least * program.unit_ns) == KNOWN_OPTIMA[name].makespan_ns


@pytest.mark.parametrize("style", FORMATS)
def test_a_file_of_means(style, tmp_path):
    instance = random_instance(11, most=3)
    program = read_program(instance, "latency-mip", objective="jct_mean")
    path = written(program, style, tmp_path)
    found = build(instance, "latency-mip").solve("cpsat")
    mean_ns = program.to_ns(round(found.objective))
    assert by_scip(path) * program.unit_ns / program.divisor == pytest.approx(mean_ns)


def odd():
    """Rows of every kind, kinds of every sort, a column in no row, a constant that is no unit."""
    model = LinearModel()
    x, y, z = model.add("x", INTEGER, 10), model.add("y", BINARY, 1), model.add("z", CONTINUOUS, 7)
    model.add("unused", INTEGER, 5, lower=2)
    model.add("fixed", BINARY, 0)
    model.row("between", [(x, 2), (y, -3)], least=-1, most=9)
    model.row("same", [(x, 1), (z, 1)], least=6, most=6)
    model.row("at_least", [(z, 1), (y, 5)], least=3)
    model.row("empty", [(x, 0)], most=4)
    model.row("free", [(x, -1)])
    model.minimise([(x, -3), (y, 4), (z, 1)])
    instance = load_named("gate")
    return Program("full-mip", instance, model, 4, 10, "makespan", lambda _: None, lambda _: [])


@pytest.mark.parametrize("style", FORMATS)
def test_rows_of_every_kind(style, tmp_path):
    """INV: by trying all whole x and y; z follows from the row ``same``."""
    least = min(
        -3 * x + 4 * y + (6 - x)
        for x in range(7)
        for y in (0, 1)
        if -1 <= 2 * x - 3 * y <= 9 and (6 - x) + 5 * y >= 3
    )
    for found in optima_in(written(odd(), style, tmp_path)):
        assert found == pytest.approx(least + 10 / 4)


@pytest.mark.parametrize(("style", "mark"), [("mps", "* "), ("lp", "\\ ")])
def test_a_file_says_what_it_holds(style, mark, tmp_path):
    program = read_program(load_named("gate"), "full-mip")
    lines = written(program, style, tmp_path).read_text().splitlines()
    text = "\n".join(line for line in lines if line.startswith(mark))
    assert f"x {program.unit_ns} ns = makespan" in text
    assert "p_i_j_k: 0-1: and is prefilled in stage k" in text
    assert load_named("gate").sha256 in text
    assert max(len(line) for line in lines) <= 255


def one_prefill_a_stage(mip):
    for k in range(len(mip.variables("r"))):
        starts = [u for (i, a, b), u in mip.variables("u").items() if a == k]
        mip.model.add_linear_constraint(mo.LinearSum(starts) <= 1, name=f"one at {k}")


def fewer_rounds(mip):
    mip.variable("r", 0).upper_bound = 1


def dear_stages(mip):
    stages = mo.LinearSum(mip.variables("y").values())
    mip.model.minimize(mip.own_objective + 100.5 * stages + 7)


def most_rounds_at_first(mip):
    mip.model.maximize(mip.variable("r", 0) - 0.25 * mip.variable("tmax"))


def a_variable_of_their_own(mip):
    late = mip.model.add_variable(name="2 late")
    mip.model.add_linear_constraint(late - mip.variable("tmax") >= -8.5)
    mip.model.minimize(late)


def without_a_row(mip):
    for row in list(mip.model.linear_constraints()):
        if row.name.startswith(("s1_", "s2_")):
            mip.model.delete_linear_constraint(row)


def names_that_files_read_otherwise(mip):
    names = ("free", "inf", "st", "e1", "constant", "objective", "1e5", "a b", "a_b")
    own = [mip.model.add_variable(lb=n + 0.5, ub=99, name=name) for n, name in enumerate(names)]
    own.append(mip.model.add_variable(lb=0.25, ub=99, name=f"a_b_{own[-1].id}"))
    for variable, name in zip(own[:3], ("objective", "RHS", "e2"), strict=True):
        mip.model.add_linear_constraint(variable >= 3.5, name=name)
    mip.model.minimize(mip.own_objective + mo.LinearSum(own))


CHANGES = [
    one_prefill_a_stage, fewer_rounds, dear_stages, most_rounds_at_first, a_variable_of_their_own,
    pytest.param(without_a_row, marks=pytest.mark.full), names_that_files_read_otherwise,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes_are_what_is_written(change, tmp_path):
    mip = build(load_named("packing"), "window-mip")
    program = read_program(load_named("packing"), "window-mip")
    before = {style: "".join(file_lines(mip, style)) for style in FORMATS}
    assert before == {style: "".join(file_lines(program, style)) for style in FORMATS}
    change(mip)
    paths = {style: written(mip, style, tmp_path) for style in FORMATS}
    solved = mip.solve("scip").objective
    for style, path in paths.items():
        text, found = path.read_text(), solved
        assert text == "".join(file_lines(mip.program, style)) != before[style]
        if "an objective that is not the program's" not in text:
            found = mip.program.to_ns(solved) / mip.program.unit_ns
        least = by_scip(path)
        assert (-least if "the negative of" in text else least) == pytest.approx(found)


def test_what_no_linear_file_can_hold_is_refused():
    mip = build(load_named("gate"), "window-mip")
    tmax = mip.variable("tmax")

    def lines(objective, least):
        mip.model.minimize(objective)
        tmax.lower_bound = least
        return list(file_lines(mip, "lp"))

    with pytest.raises(InputError, match="more than linear rows"):
        lines(tmax * tmax, 0)
    with pytest.raises(InputError, match="not a number"):
        lines(tmax, float("nan"))
    with pytest.raises(InputError, match=r"an object of Instance is not a program \(give build"):
        list(file_lines(load_named("gate"), "lp"))
