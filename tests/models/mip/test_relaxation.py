"""Linear relaxations: values, duals, reduced costs."""

import numpy as np
import pytest

import orsched
from orsched.common.errors import InputError, TimeLimitError
from tests.refusals import refused


@pytest.fixture
def mip():
    return orsched.full_mip(orsched.load("gate"))


def test_a_relaxation_is_below_the_optimum_and_its_duals_prove_it(mip):
    """Weak duality by hand: sides times duals and bounds times reduced costs are the value."""
    found = mip.relax()
    assert found.value <= mip.solve("cpsat").objective
    columns, rows = list(mip.model.variables()), list(mip.model.linear_constraints())
    total = 0.0
    for row in rows:
        dual = found.duals[row.name]
        side = row.lower_bound if dual > 0 else row.upper_bound
        total += dual * side if abs(dual) > 1e-9 else 0.0
    for column in columns:
        cost = found.reduced_costs[column.name]
        side = column.lower_bound if cost > 0 else column.upper_bound
        total += cost * side if abs(cost) > 1e-9 else 0.0
    assert total == pytest.approx(found.value, abs=1e-6)
    lower = np.array([row.lower_bound for row in rows])
    upper = np.array([row.upper_bound for row in rows])
    activities = np.array([found.activities[row.name] for row in rows])
    assert (activities >= lower - 1e-6).all()
    assert (activities <= upper + 1e-6).all()


def test_changes_of_the_model_are_relaxed_and_it_stays_as_it_is(mip):
    before = mip.relax().value
    mip.model.add_linear_constraint(lb=before + 3, expr=mip.own_objective, name="late")
    found = mip.relax()
    assert found.value == pytest.approx(before + 3)
    assert found.duals["late"] == pytest.approx(1)
    assert any(variable.integer for variable in mip.model.variables())
    assert mip.solve("cpsat").objective >= before + 3


def test_frames_have_a_line_for_each_row_or_variable(mip):
    found = mip.relax()
    rows, columns = found.to_pandas(), found.to_pandas("variables")
    assert list(rows) == ["row", "activity", "dual"]
    assert list(columns) == ["variable", "value", "reduced_cost"]
    assert (len(rows), len(columns)) == (len(found.duals), len(found.values))
    refused("of", found.to_pandas, "cells")


def test_where_there_is_no_optimum_or_no_time_it_is_said(mip):
    mip.model.add_linear_constraint(ub=-1, expr=mip.own_objective)
    refused("no optimum: infeasible", mip.relax)
    with pytest.raises(InputError, match="time_limit"):
        mip.relax(time_limit=0)
    large = orsched.full_mip(orsched.load("pang-100x20"), stages=6, max_nonzeros=10**7)
    with pytest.raises(TimeLimitError):
        large.relax(time_limit=1e-3)
