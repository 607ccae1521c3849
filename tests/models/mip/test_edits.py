"""What is edited is solved, handed out and written: other solvers find the same optimum."""

import random

import pytest

import orsched
from orsched.instances.catalog import load_named
from orsched.models.mip import build
from tests.models.full_mip.small import random_instance
from tests.seeds import seeds

mo = pytest.importorskip("ortools.math_opt.python.mathopt")
pyscipopt = pytest.importorskip("pyscipopt")


def row(mip, rng, names, known):
    """A sum of a few variables, which the known schedule keeps, sometimes with nothing to spare."""
    chosen = {name: rng.randint(1, 3) for name in rng.sample(names, min(len(names), 5))}
    total = mo.LinearSum(weight * mip.variable(name) for name, weight in chosen.items())
    value = sum(weight * known[name] for name, weight in chosen.items())
    below, above = rng.choice(((0, 1), (2, 0), (0, 0)))
    mip.model.add_linear_constraint(lb=value - below, ub=value + above, expr=total)


def objective(mip, rng, names, known):
    """Weights on a few variables beside the own objective, sometimes of a model that maximises."""
    extra = mo.LinearSum(rng.randint(-4, 9) * mip.variable(name) for name in rng.sample(names, 3))
    aim = mip.own_objective + extra + rng.randint(-5, 5)
    mip.model.objective.is_maximize = rng.random() < 0.3
    mip.model.objective.set_to_linear_expression(-aim if mip.model.objective.is_maximize else aim)


def fixed(mip, rng, names, known):
    """A variable at its value in the known schedule."""
    name = rng.choice(names)
    mip.variable(name).lower_bound = mip.variable(name).upper_bound = known[name]


def edited(seed):
    """A model of a small instance with one to three edits of random kinds, and their names."""
    rng = random.Random(seed)
    case = random_instance(seed, 3) if seed % 2 else load_named("two-by-two")
    mip = build(case, rng.choice(("full-mip", "window-mip")))
    names = [v.name for v in mip.model.variables() if v.integer and v.lower_bound < v.upper_bound]
    if len(names) < 3:
        return edited(seed + 1000)
    start = mip.values_of(orsched.simulate(case, rng.choice(("fcfs", "online"))))
    known = {variable.name: value for variable, value in start.items()}
    edits = rng.choices((row, objective, fixed), k=rng.randint(1, 3))
    for edit in edits:
        edit(mip, rng, names, known)
    return mip, edits


def by_highs(path):
    """The optimum that HiGHS finds in an MPS file."""
    builder = pytest.importorskip("ortools.linear_solver.python.model_builder")
    model, solver = builder.Model(), builder.Solver("highs")
    assert model.import_from_mps_file(str(path))
    assert solver.solve(model) == builder.SolveStatus.OPTIMAL
    return solver.objective_value


def by_scip(model):
    """The optimum that SCIP finds in a model."""
    model.hideOutput()
    model.setParam("misc/catchctrlc", False)
    model.optimize()
    assert model.getStatus() == "optimal"
    return model.getObjVal()


def read_by_scip(path):
    model = pyscipopt.Model()
    model.hideOutput()
    model.readProblem(str(path))
    return by_scip(model)


@pytest.mark.parametrize("seed", seeds(8, 20))
def test_an_edited_model_has_one_optimum_wherever_it_is_solved(seed, tmp_path):
    mip, _ = edited(seed)
    result = mip.solve("cpsat", time_limit=600)
    assert result.status == "optimal"
    assert by_scip(mip.scip()) == pytest.approx(result.objective)
    for style, solved in (("mps", by_highs), ("lp", read_by_scip)):
        path = tmp_path / f"edited.{style}"
        mip.write(path)
        text = path.read_text()
        own = "not the program's" not in text
        constant = mip.program.constant_ns / mip.program.unit_ns if own else 0
        sign = -1 if "the negative of" in text else 1
        assert sign * (solved(path) - constant) == pytest.approx(result.objective), style


def test_the_edits_are_of_every_kind():
    made = [edit for seed in range(20) for edit in edited(seed)[1]]
    assert {edit: made.count(edit) > 4 for edit in (row, objective, fixed)} == dict.fromkeys(
        (row, objective, fixed), True
    )
