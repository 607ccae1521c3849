"""The key ``objective`` of a study: what methods minimise, and what cells report."""

import pytest

from orsched import AffineCost, Instance, Requests, Worker, solve
from orsched.common.errors import InputError
from orsched.files import save_instance
from orsched.planning.study import read_study
from orsched.planning.study.cell import execute
from orsched.planning.study.table import rows_of
from tests.in_order import in_order

SMALL = Instance(
    Requests([5, 7, 9], [2, 1, 4], weights=[1, 0, 10]),
    [Worker(1, in_order(AffineCost, 10_000_000, 1000, 5_000_000, 0))],
    first_token="decode",
)
GRID = {"instances": [SMALL], "policies": ["fcfs", "exact", "hybrid"]}


@pytest.fixture
def rows(tmp_path):
    """Run a study's cells in this process."""
    path = tmp_path / "small.json"
    save_instance(SMALL, path)

    def run(**given):
        cells = read_study({**GRID, "instances": [str(path)], **given}).cells()
        return rows_of(cells, {cell.key: execute(cell.task()) for cell in cells})

    return run


@pytest.mark.parametrize(
    "objective", ["makespan", "mean_jct", "weighted_jct_mean", "0.5*makespan+0.5*ttft_mean"]
)
def test_cells_report_what_solve_does(rows, objective):
    found = rows(objective=objective)
    by_policy = {row["policy"]: row for row in found}
    exact, solved = by_policy["exact"], solve(SMALL, "fcfs", objective)
    assert exact["objective"] == solved.objective.name
    assert by_policy["fcfs"]["objective_value"] == pytest.approx(solved.objective_value)
    for row in found:
        assert row["status"] == "ok"
        assert row["objective_bound"] <= exact["objective_value"] <= row["objective_value"]
        gap = row["objective_value"] / row["objective_bound"] - 1
        assert row["gap"] == pytest.approx(gap)
    proven = {name: (row["verdict"], row["gap"]) for name, row in by_policy.items()}
    assert proven["exact"] == ("optimal", 0)
    assert by_policy["exact"]["objective_bound"] == by_policy["exact"]["objective_value"]


def test_exact_is_asked_for_the_objective(rows):
    fcfs, exact, _ = rows(objective="weighted_jct_mean")
    assert exact["objective_value"] < fcfs["objective_value"]
    assert exact["cell"] != rows(policies=["exact"], objective="makespan")[0]["cell"]


def test_attainment_needs_limits_and_is_at_most_1(rows):
    (failed,) = rows(policies=["fcfs"], objective="slo_attainment")
    assert failed["status"] == "failed"
    assert "without limits" in failed["error"]
    (row,) = rows(policies=["fcfs"], objective="slo_attainment", slo={"ttft_s": 0.02})
    assert 0 < row["objective_value"] == row["slo_attainment"] < 1
    assert row["objective_bound"] == 1


def test_cells_without_an_objective_are_those_of_before(rows):
    (plain,) = read_study({**GRID, "policies": ["fcfs"]}).cells()
    assert "objective" not in plain.content
    (row,) = rows(policies=["fcfs"])
    assert not [name for name in row if name.startswith("objective")]


def test_bounds_of_the_objective_are_among_those_of_a_cell():
    read = read_study({**GRID, "objective": "0.5*makespan+0.5*ttft_mean", "bounds": ["mean_jct"]})
    assert read.bounds == ("makespan", "mean_jct", "mean_ttft")


@pytest.mark.parametrize(
    ("objective", "said"),
    [(3, "must be a text"), ("jct_p99", "no method is made"), ("jct", "is not an objective")],
)
def test_a_wrong_objective_is_refused_with_its_key(objective, said):
    with pytest.raises(InputError, match=said) as caught:
        read_study({**GRID, "objective": objective})
    assert caught.value.field == "objective"
