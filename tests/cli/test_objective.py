"""``--objective`` of solve, compare and bound."""

from __future__ import annotations

import json
import math

import pytest

import orsched
from orsched import AffineCost, Instance, Requests, Worker
from orsched.cli.commands import run
from orsched.common.errors import InputError
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
        ("-1*makespan", "not a term"),
        ("jct_p99", "no method is made for it"),
        ("0.5*slo_attainment+0.5*makespan", "no place"),
    ],
)
def test_a_wrong_objective_is_refused_before_loading(refused, name, problem_said):
    for command in ("solve", "compare"):
        err = refused("--objective", command, "no-such-file.json", "--objective", name)
        assert problem_said in err


def test_attainment_needs_limits(call, refused, problem):
    refused("--slo-ttft", "solve", problem, "--objective", "slo_attainment")
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
    made = "compare uniform --seeds 0:2 --set requests=6 --set clients=2 --methods fcfs"
    code, out, err = call(f"{made} --objective mean_ttft --format json")
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


def test_simulate_refuses_what_cannot_minimise_it(refused, problem):
    said = "hybrid minimises makespan"
    refused(said, "simulate", problem, *["--policy", "hybrid", "--objective", "mean_jct"])


@pytest.mark.parametrize("objective", ["makespan", "mean_jct", "mean_ttft"])
def test_bound_takes_an_objective(capsys, objective):
    code = run(["bound", "two-by-two", "--objective", objective, "--format", "json"])
    facts = json.loads(capsys.readouterr().out)
    found = orsched.bound(orsched.load("two-by-two"), objective)
    assert code == 0
    assert facts["bound_ns"] == found.value_ns
    assert facts["bound"] == found.name
    assert facts["certificate"] == "verified"


def test_bound_takes_a_time_limit(capsys, done):
    """Two small requests are bounded within any limit."""
    command = ["bound", "two-by-two", "--format", "json", "--time-limit"]
    assert json.loads(done(*command, "5"))["bound_ns"] > 0
    assert run([*command, "-1"]) != 0
    assert "--time-limit" in capsys.readouterr().err


@pytest.mark.parametrize("objective", ["makespan", "mean_jct", "mean_ttft"])
def test_an_infinite_time_limit_is_none(done, objective):
    """As ``solve`` has it."""
    instance = orsched.load("gate")
    found = orsched.bound(instance, objective)
    assert orsched.bound(instance, objective, time_limit=math.inf) == found
    command = ["bound", "gate", "--objective", objective, "--format", "json", "--time-limit", "inf"]
    assert json.loads(done(*command))["bound_ns"] == found.value_ns
    for wrong in (math.nan, -math.inf, 0):
        with pytest.raises(InputError) as caught:
            orsched.bound(instance, objective, time_limit=wrong)
        assert caught.value.field == "time_limit"


def test_bound_takes_what_schedules_may_do(capsys, refused):
    """A larger class of schedules has no larger bound; what is no allowance is named."""
    instance = orsched.load("pang-100x20")
    command = ["bound", "pang-100x20", "--objective", "jct_mean", "--format", "json"]
    values = []
    for allows in ("", "mixed", "chunks, mixed"):
        assert run([*command, "--allows", allows]) == 0
        values.append(json.loads(capsys.readouterr().out)["bound_ns"])
    assert values == sorted(values, reverse=True)
    assert values[0] > values[1]
    assert values[2] == orsched.bound(instance, "mean_jct", allows=("chunks", "mixed")).value_ns
    refused("chunks, mixed, restarts", *command, "--allows", "chunk")
    refused("--allows", "bound pang-100x20 --objective bulk --allows mixed")
