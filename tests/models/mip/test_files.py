"""MPS and LP files: other programs read them and find the same optimum."""

from __future__ import annotations

import pytest

from orsched.common.errors import InputError
from orsched.instances.catalog import KNOWN_OPTIMA, load_named
from orsched.models.full_mip.linear_solvers import BINARY, CONTINUOUS, INTEGER, LinearModel
from orsched.models.mip import FORMATS, Program, build, file_lines, read_program
from tests.models.full_mip.small import random_instance


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


@pytest.mark.parametrize("style", FORMATS)
@pytest.mark.parametrize("name", ["gate", "with-arrivals"])
@pytest.mark.parametrize("mip", ["full-mip", "window-mip"])
def test_the_optimum_of_the_file_is_that_of_the_instance(mip, name, style, tmp_path):
    program = read_program(load_named(name), mip)
    path = written(program, style, tmp_path)
    least = KNOWN_OPTIMA[name].makespan_ns
    assert round(by_scip(path) * program.unit_ns) == least
    if style == "mps":
        assert round(by_ortools(path) * program.unit_ns) == least


@pytest.mark.parametrize("style", FORMATS)
def test_means(style, tmp_path):
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
    path = written(odd(), style, tmp_path)
    assert by_scip(path) == pytest.approx(least + 10 / 4)
    if style == "mps":
        assert by_ortools(path) == pytest.approx(least + 10 / 4)


@pytest.mark.parametrize(("style", "mark"), [("mps", "* "), ("lp", "\\ ")])
def test_a_file_says_what_it_holds(style, mark, tmp_path):
    program = read_program(load_named("gate"), "full-mip")
    lines = written(program, style, tmp_path).read_text().splitlines()
    head = [line for line in lines if line.startswith(mark)]
    text = "\n".join(head)
    assert f"x {program.unit_ns} ns = makespan" in text
    assert "p_i_j_k: 0-1: and is prefilled in stage k" in text
    assert load_named("gate").sha256 in text
    assert max(len(line) for line in lines) <= 255


def one_prefill_a_stage(mip, mo):
    for k in range(len(mip.variables("r"))):
        starts = [u for (i, a, b), u in mip.variables("u").items() if a == k]
        mip.model.add_linear_constraint(mo.LinearSum(starts) <= 1, name=f"one at {k}")


def fewer_rounds(mip, mo):
    mip.variable("r", 0).upper_bound = 1


def dear_stages(mip, mo):
    stages = mo.LinearSum(mip.variables("y").values())
    mip.model.minimize(mip.own_objective + 100.5 * stages + 7)


def most_rounds_at_first(mip, mo):
    mip.model.maximize(mip.variable("r", 0) - 0.25 * mip.variable("tmax"))


def a_variable_of_their_own(mip, mo):
    late = mip.model.add_variable(name="2 late")
    mip.model.add_linear_constraint(late - mip.variable("tmax") >= -8.5)
    mip.model.minimize(late)


def without_a_row(mip, mo):
    for row in list(mip.model.linear_constraints()):
        if row.name.startswith(("s1_", "s2_")):
            mip.model.delete_linear_constraint(row)


def names_that_files_read_otherwise(mip, mo):
    names = ("free", "inf", "st", "e1", "constant", "objective", "1e5", "a b", "a_b")
    own = [mip.model.add_variable(lb=n + 0.5, ub=99, name=name) for n, name in enumerate(names)]
    own.append(mip.model.add_variable(lb=0.25, ub=99, name=f"a_b_{own[-1].id}"))
    for variable, name in zip(own[:3], ("objective", "RHS", "e2"), strict=True):
        mip.model.add_linear_constraint(variable >= 3.5, name=name)
    mip.model.minimize(mip.own_objective + mo.LinearSum(own))


CHANGES = [
    one_prefill_a_stage, fewer_rounds, dear_stages, most_rounds_at_first, a_variable_of_their_own,
    without_a_row, names_that_files_read_otherwise,
]  # fmt: skip


@pytest.mark.parametrize("style", FORMATS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes_are_what_is_written(change, style, tmp_path):
    from ortools.math_opt.python import mathopt

    mip = build(load_named("packing"), "window-mip")
    before = "".join(file_lines(mip, style))
    assert before == "".join(file_lines(read_program(load_named("packing"), "window-mip"), style))
    change(mip, mathopt)
    path = written(mip, style, tmp_path)
    assert path.read_text() == "".join(file_lines(mip.program, style)) != before
    found = mip.solve("scip").objective
    if "an objective that is not the program's" not in path.read_text():
        found = mip.program.to_ns(found) / mip.program.unit_ns
    least = by_scip(path)
    assert (-least if "the negative of" in path.read_text() else least) == pytest.approx(found)


def test_what_no_linear_file_can_hold_is_refused():
    mip = build(load_named("gate"), "window-mip")
    mip.model.minimize(mip.variable("tmax") * mip.variable("tmax"))
    with pytest.raises(InputError, match="more than linear rows"):
        list(file_lines(mip, "lp"))
    mip.model.minimize(mip.variable("tmax"))
    mip.variable("tmax").lower_bound = float("nan")
    with pytest.raises(InputError, match="not a number"):
        list(file_lines(mip, "lp"))
    with pytest.raises(InputError, match=r"an object of Instance is not a program \(give build"):
        list(file_lines(load_named("gate"), "lp"))
