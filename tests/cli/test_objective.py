"""``--objective`` of solve and compare."""

import json

import pytest

from orsched import AffineCost, Instance, Requests, Worker
from orsched.files import save_instance
from tests.in_order import in_order


@pytest.fixture
def problem(tmp_path):
    path = tmp_path / "problem.json"
    instance = Instance(
        Requests([5, 7, 9, 2], [2, 1, 4, 30], weights=[3, 0, 1, 10]),
        [Worker(2, in_order(AffineCost, 10_000_000, 1000, 5_000_000, 0))],
        first_token="decode",
    )
    save_instance(instance, path)
    return path


@pytest.mark.parametrize("name", ["makespan", "mean_jct", "weighted_jct_mean", "2*ttft_mean"])
def test_solve_prints_value_bound_and_gap(call, problem, name):
    code, out, err = call("solve", problem, "--objective", name, "--format", "json")
    assert code == 0, err
    row = json.loads(out)
    assert row["objective"] == name.replace("mean_jct", "jct_mean")
    figure = {"makespan": "makespan_s", "mean_jct": "jct_mean_s"}.get(name)
    if figure is not None:
        assert row["objective_value"] == row[figure]
    bound = row["objective_bound"]
    assert bound is None or bound <= row["objective_value"]
    code, out, _ = call("solve", problem, "--objective", name)
    assert code == 0
    head = {"makespan": "makespan s", "mean_jct": "JCT s", "weighted_jct_mean": "weighted JCT"}
    columns = [head.get(name, "objective"), "bound s", "gap", "status"]
    assert [word.strip() for word in out.splitlines()[0].split("  ") if word][2:6] == columns


def test_without_the_option_the_makespan_is_meant(call, problem):
    _, out, _ = call("solve", problem, "--format", "json")
    assert json.loads(out)["objective"] == "makespan"


@pytest.mark.parametrize(
    ("name", "problem_said"),
    [
        ("jct", "is not an objective"),
        ("-1*makespan", "no term"),
        ("jct_p99", "no method is made for it"),
        ("0.5*slo_attainment+0.5*makespan", "no place"),
    ],
)
def test_a_wrong_objective_is_refused_before_loading(call, name, problem_said):
    for command in ("solve", "compare"):
        code, _, err = call(command, "no-such-file.json", "--objective", name)
        assert code == 2
        assert "--objective" in err
        assert problem_said in err


def test_attainment_needs_limits(call, problem):
    code, _, err = call("solve", problem, "--objective", "slo_attainment")
    assert code == 2
    assert "--slo-ttft" in err
    code, _, err = call("solve", problem, "--objective", "slo_attainment", "--slo-ttft", "1")
    assert code == 0, err


def test_compare_judges_all_by_the_objective(call, problem):
    methods = ["--methods", "fcfs,gittins@clairvoyant,hybrid"]
    code, out, err = call("compare", problem, "--objective", "jct_mean", *methods)
    assert code == 0, err
    assert "* least mean JCT" in out
    assert "hybrid plans for the makespan alone" in err
    code, out, _ = call("compare", problem, "--objective", "jct_mean", *methods, "--format", "json")
    rows = json.loads(out)
    assert all(row["objective_value"] == row["jct_mean_s"] for row in rows)
    assert all(row["objective_bound"] <= row["objective_value"] for row in rows)


def test_compare_over_seeds_has_means_of_the_objective(call):
    code, out, err = call(
        "compare", "uniform", "--seeds", "0:2", "--set", "requests=6", "--set", "clients=2",
        "--objective", "mean_ttft",
        "--methods", "fcfs", "--format", "json",
    )  # fmt: skip
    assert code == 0, err
    (row,) = json.loads(out)
    assert row["objective_value"] == pytest.approx(row["ttft_mean_s"])


def test_bounds_take_the_names_of_figures(call, problem):
    code, out, err = call("solve", problem, "--bounds", "jct_mean,mean_ttft", "--format", "json")
    assert code == 0, err
    assert json.loads(out)["jct_mean_bound_s"] is not None
    code, out, err = call("bound", problem, "--objective", "jct_mean", "--format", "json")
    assert code == 0, err
    one = json.loads(out)
    _, out, _ = call("bound", problem, "--objective", "mean_jct", "--format", "json")
    assert json.loads(out) == one


def test_simulate_reports_the_objective_of_the_scenario(call, problem):
    given = ("simulate", problem, "--workers", 2, "--format", "json")
    code, out, err = call(*given, "--policy", "fcfs", "--objective", "mean_jct")
    assert code == 0, err
    row = json.loads(out)
    assert row["objective"] == "jct_mean"
    assert row["objective_value"] == row["jct_mean_s"]
    assert row["gap"] == pytest.approx(row["jct_mean_s"] / row["objective_bound"] - 1)
    assert "does not search for jct_mean" in err
    row = json.loads(call(*given, "--policy", "fcfs")[1])
    assert (row["objective"], row["objective_value"]) == ("makespan", row["makespan_s"])


def test_simulate_refuses_what_cannot_minimise_it(call, problem):
    code, _, err = call("simulate", problem, "--policy", "hybrid", "--objective", "mean_jct")
    assert code == 2
    assert "hybrid minimises makespan" in err
