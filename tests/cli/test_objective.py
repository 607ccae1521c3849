"""``--objective`` of solve, compare, simulate and bound."""

import json

import pytest

import orsched
from orsched import AffineCost, Instance, Requests, Worker
from orsched.files import save_instance
from tests.in_order import in_order


@pytest.fixture
def problem():
    """Put an instance with weights into the folder."""
    requests = Requests([5, 7, 9, 2], [2, 1, 4, 30], weights=[3, 0, 1, 10])
    worker = Worker(2, in_order(AffineCost, 10_000_000, 1000, 5_000_000, 0))
    save_instance(Instance(requests, worker, first_token="decode"), "p.json")


@pytest.mark.parametrize("name", ["makespan", "mean_jct", "weighted_jct_mean", "2*ttft_mean"])
def test_solve_prints_value_bound_and_gap(problem, done, as_json, name):
    row = as_json("solve p.json --objective", name)
    assert row["objective"] == name.replace("mean_jct", "jct_mean")
    figure = {"makespan": "makespan_s", "mean_jct": "jct_mean_s"}.get(name, "objective_value")
    assert row["objective_value"] == row[figure]
    bound = row["objective_bound"]
    assert bound is None or bound <= row["objective_value"]
    head = {"makespan": "makespan s", "mean_jct": "JCT s", "weighted_jct_mean": "weighted JCT s"}
    columns = [head.get(name, "objective"), "bound s", "gap", "status"]
    words = done("solve p.json --objective", name).splitlines()[0].split("  ")
    assert [word.strip() for word in words if word][2:6] == columns


def test_without_the_option_the_makespan_is_meant(problem, as_json):
    assert as_json("solve p.json")["objective"] == "makespan"


def test_attainment_is_an_objective_with_limits(problem, done):
    done("solve p.json --objective slo_attainment --slo-ttft 1")


def test_compare_judges_all_by_the_objective(problem, call, as_json):
    command = "compare p.json --objective jct_mean --methods fcfs,gittins@clairvoyant,hybrid"
    code, out, err = call(command)
    assert (code, "* least mean JCT" in out) == (0, True), err
    assert "hybrid plans for the makespan alone" in err
    for row in as_json(command):
        assert row["objective_bound"] <= row["objective_value"] == row["jct_mean_s"]


def test_compare_over_seeds_has_means_of_the_objective(as_json):
    made = "compare uniform --seeds 0:2 --set requests=6 --set clients=2 --methods fcfs"
    (row,) = as_json(f"{made} --objective mean_ttft")
    assert row["objective_value"] == pytest.approx(row["ttft_mean_s"])


def test_bounds_take_the_names_of_figures(problem, as_json):
    assert as_json("solve p.json --bounds jct_mean,mean_ttft")["jct_mean_bound_s"] is not None
    one, other = (as_json(f"bound p.json --objective {n}") for n in ("jct_mean", "mean_jct"))
    assert one == other


def test_simulate_reports_the_objective_of_the_scenario(problem, call, as_json):
    given = "simulate p.json --workers 2 --policy fcfs"
    code, out, err = call(f"{given} --objective mean_jct --format json")
    assert (code, "does not search for jct_mean" in err) == (0, True)
    row = json.loads(out)
    assert (row["objective"], row["objective_value"]) == ("jct_mean", row["jct_mean_s"])
    assert row["gap"] == pytest.approx(row["jct_mean_s"] / row["objective_bound"] - 1)
    row = as_json(given)
    assert (row["objective"], row["objective_value"]) == ("makespan", row["makespan_s"])


@pytest.mark.parametrize("objective", ["makespan", "mean_jct", "mean_ttft"])
@pytest.mark.parametrize("limit", ["", "--time-limit 3600", "--time-limit inf"])
def test_bound_takes_an_objective_and_a_time_limit(as_json, objective, limit):
    """Two small requests are bounded within any limit; an infinite one is none."""
    facts = as_json(f"bound two-by-two --objective {objective} {limit}")
    found = orsched.bound(orsched.load("two-by-two"), objective)
    assert (facts["bound_ns"], facts["bound"]) == (found.value_ns, found.name)
    assert facts["certificate"] == "verified"


def test_bound_takes_what_schedules_may_do(as_json):
    """A larger class of schedules has no larger bound."""
    values = [
        as_json("bound pang-100x20 --objective jct_mean --allows", allows)["bound_ns"]
        for allows in ("", "mixed", "chunks, mixed")
    ]
    assert values == sorted(values, reverse=True)
    assert values[0] > values[1]
    instance = orsched.load("pang-100x20")
    assert values[2] == orsched.bound(instance, "mean_jct", allows=("chunks", "mixed")).value_ns
