"""Objectives of solve: names, weighted sums, exact values; frontiers of two of them."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orsched import SLO, AffineCost, InputError, Instance, Requests, Worker, frontier, load, solve
from orsched.cli.commands import run
from orsched.files import save_instance
from orsched.metrics.objective_values import objective_value, weighted_times
from orsched.metrics.token_times import request_times
from orsched.planning.frontiers import dominated
from orsched.solving.objectives import MINIMISED, OBJECTIVES, objective_named
from tests.decoding import decoding
from tests.in_order import in_order
from tests.refusals import refusal


def instance(n=12, seed=0, weights=None, arrivals=False):
    random = np.random.default_rng(seed)
    prompts, outputs = random.integers(1, 50, n), random.integers(1, 20, n)
    times = random.integers(0, 10**9, n) if arrivals else None
    worker = Worker(3, in_order(AffineCost, 20_000_000, 100_000, 10_000_000, 1_000_000))
    return decoding(prompts, outputs, [worker], arrival_ns=times, weights=weights)


def test_aliases_and_sums_are_read_and_written_back():
    assert objective_named("mean_jct") is OBJECTIVES["jct_mean"]
    assert objective_named("mean_ttft") is OBJECTIVES["ttft_mean"]
    found = objective_named(" 0.30 * makespan + .7*mean_jct")
    assert found.name == "0.3*makespan+0.7*jct_mean"
    assert objective_named(found.name) == found
    assert found.parts == ("makespan", "jct_mean")
    assert found.is_linear
    assert [share.weight for share in found.shares] == [Fraction(3, 10), Fraction(7, 10)]


@pytest.mark.parametrize(("text", "problem"), [
    ("jct", "not an objective"), (3, "not an objective"), (None, "not an objective"),
    ("-1*makespan", "not a term"), ("nan*makespan", "not a term"),
    ("inf*makespan+1*jct_mean", "not a term"), ("0.5*makespan+", "not a term"),
    ("1e3*makespan", "not a term"), ("makespan+jct_mean", "not a term"),
    ("0*makespan+0*jct_mean", "all weights are 0"), ("1*makespan+2*makespan", "appears twice"),
    ("1*jct_mean+2*mean_jct", "appears twice"),
    ("0.5*slo_attainment+0.5*makespan", "no place in a weighted sum"),
    ("0.5*jct_p99+0.5*makespan", "no place in a weighted sum"),
    ("9999999999*makespan", "too many digits"), ("0.1234567891*makespan", "too many digits"),
    ("jct_p99", "no method is made for it"), ("gap", "no method is made for it"),
    ("slo_attainment", "without limits"), ("9" * 5000 + "*makespan", "not a term"),
])  # fmt: skip
def test_a_wrong_objective_is_refused_at_its_field(text, problem):
    with pytest.raises(InputError, match=problem) as caught:
        solve(instance(), "fcfs", objective=text)
    assert caught.value.field == "objective"
    assert caught.value.remedy


@pytest.mark.parametrize("method", ["windows", "hybrid"])
def test_a_method_that_plans_for_the_makespan_says_which_others_can(method):
    with pytest.raises(InputError, match="minimises") as caught:
        solve(instance(), method, objective="jct_mean")
    assert caught.value.field == "objective"
    assert "auto" in caught.value.remedy


@pytest.mark.parametrize("objective", [*MINIMISED, "0.5*makespan+2*ttft_mean"])
def test_a_policy_takes_any_objective_and_says_that_it_goes_its_own_way(objective):
    given = instance(weights=range(12))
    given = given.replace(requests=given.requests.replace(deadline_ns=[10**6] * 12))
    result = solve(given, "fcfs", objective=objective, slo=SLO(ttft_s=0.4))
    assert result.objective.name == objective
    assert result.objective_value is not None
    said = any("does not search" in note for note in result.notes)
    assert said == (objective != "makespan")


def test_the_bound_and_the_gap_are_those_of_the_objective():
    result = solve(instance(), "gittins@clairvoyant", objective="mean_jct")
    assert result.objective_bound == result.jct_mean_bound_s
    assert result.gap == pytest.approx(result.jct_mean_s / result.jct_mean_bound_s - 1)
    mixed = solve(instance(), "gittins@clairvoyant", objective="0.25*makespan+0.75*mean_jct")
    bound = 0.25 * mixed.bound + 0.75 * mixed.jct_mean_bound_s
    assert mixed.objective_bound == pytest.approx(bound)
    assert mixed.objective_bound <= mixed.objective_value


def test_no_method_named_is_auto_for_other_objectives():
    result = solve(instance(), objective="jct_mean", iterations=1)
    assert any(note.startswith("auto picked") for note in result.notes)
    assert solve(instance()).schedule.method == "hybrid"


def test_a_method_is_told_the_objective():
    seen = []

    class Spy:
        name, information, summary = "spy", ("clairvoyant",), ""
        objectives = ("makespan", "jct_mean")

        def __call__(self, problem, run):
            seen.append((run.objective.name, run.bound_ns))
            from orsched.common.registry import resolve

            return resolve("methods", "fcfs")(problem, run)

    result = solve(instance(), Spy(), objective="jct_mean")
    assert seen == [("jct_mean", result.mean_bounds["mean_jct"]["value_ns"])]
    with pytest.raises(InputError, match="spy minimises makespan, jct_mean"):
        solve(instance(), Spy(), objective="0.5*jct_mean+0.5*ttft_mean")


def test_progress_has_the_value():
    seen = []
    result = solve(instance(), "fcfs", callback=seen.append)
    assert [progress.value for progress in seen] == [result.makespan_ns]


@settings(max_examples=30)
@given(st.integers(1, 12), st.integers(0, 10**6), st.booleans(), st.data())
def test_the_value_is_the_literal_sum(n, seed, arrivals, data):
    weights = data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n).filter(any))
    problem = instance(n, seed, weights, arrivals)
    result = solve(problem, "fcfs")
    times = request_times(problem, result.schedule)
    arrival = problem.requests.arrival_ns
    jct = [int(a - b) for a, b in zip(times["finish_ns"], arrival, strict=True)]
    ttft = [int(a - b) for a, b in zip(times["first_token_ns"], arrival, strict=True)]
    weighted = sum(w * t for w, t in zip(weights, jct, strict=True))
    literal = {
        "makespan": Fraction(result.makespan_ns), "jct_mean": Fraction(sum(jct), n),
        "ttft_mean": Fraction(sum(ttft), n),
        "weighted_jct_mean": Fraction(weighted, sum(weights)),
    }  # fmt: skip
    for name, value in literal.items():
        assert objective_value(problem, result.schedule, name) == value
        assert OBJECTIVES[name].value(result) == pytest.approx(float(value) / 1e9)
    mixed = "0.3*makespan+1.7*weighted_jct_mean+2*ttft_mean"
    expected = Fraction(3, 10) * literal["makespan"] + 2 * literal["ttft_mean"]
    expected += Fraction(17, 10) * literal["weighted_jct_mean"]
    assert objective_value(problem, result.schedule, mixed) == expected
    sums = weighted_times(problem, mixed)
    assert sums.denominator >= 1
    assert min(sums.finish) >= 0
    assert min(sums.first) >= 0


def test_weights_that_are_all_zero_are_refused_where_they_matter():
    problem = instance(3, weights=[0, 0, 0])
    assert solve(problem, "fcfs").schedule.results["weighted_jct_ns"]["mean"] is None
    with pytest.raises(InputError, match="all weights are 0") as caught:
        solve(problem, "fcfs", objective="weighted_jct_mean")
    assert caught.value.field == "weight"


@pytest.mark.parametrize(("weights", "problem"), [
    ([1, -1, 1], "-1"), ([1, float("nan"), 1], "nan"), ([1, 0.5, 1], "0.5"),
    ([1, 10**7, 1], "10000000"), ([1, 10**30, 1], "0"), ([1, "x", 1], "x"), ([1, 1], "2 values"),
])  # fmt: skip
def test_wrong_weights_are_refused_at_the_door(weights, problem):
    with pytest.raises(InputError, match=problem) as caught:
        instance(3, weights=weights)
    assert caught.value.field == "weight"
    assert caught.value.remedy


@pytest.fixture
def call(capsys):
    """Run the command line in this process; return (exit code, stdout, stderr)."""

    def invoke(*args):
        code = run([str(a) for a in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return invoke


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=8))
def test_what_is_dominated_is_so_by_the_definition(values):
    aims = (OBJECTIVES["makespan"], OBJECTIVES["tokens_per_s"])  # less, and more
    kept = {values[k] for k in range(len(values)) if not dominated(k, values, aims)}
    for x, y in values:
        beaten = any(a <= x and b >= y and (a, b) != (x, y) for a, b in values)
        assert ((x, y) in kept) is not beaten
    assert sum(not dominated(k, values, aims) for k in range(len(values))) == len(kept)


def test_points_of_methods_where_nothing_searches_for_sums():
    found = frontier(instance(), "tokens_per_s", "ttft_p99", methods=["fcfs", "mc_sf", "vllm"])
    assert [point.share for point in found] == [None] * 3
    assert any("no weighted sums" in note for note in found.notes)
    assert [p.first for p in found] == sorted((p.first for p in found), reverse=True)
    assert found.first_bound is None
    assert found.efficient


def test_weighted_sums_by_an_exact_search_have_the_least_of_each_at_the_ends():
    found = frontier(instance(4), points=3, methods=["fcfs", "hybrid"], search="exact")
    shares = {point.share: point for point in found if point.share is not None}
    assert sorted(shares) == [0, 0.5, 1]
    assert shares[1].first == min(point.first for point in found)
    assert shares[0].second == min(point.second for point in found)
    assert found.first_bound <= shares[1].first
    assert found.second_bound <= shares[0].second
    middle = shares[0.5].result.objective
    assert middle.parts == ("makespan", "jct_mean")
    values = [middle.value(point.result) for point in found]
    assert middle.value(shares[0.5].result) == pytest.approx(min(values), rel=1e-6)


def test_rows_data_frame_and_picture(tmp_path):
    found = frontier(instance(), points=0, methods=["fcfs", "mc_sf"])
    rows = found.to_rows()
    assert list(rows[0]) == [
        "method", "share", "makespan", "jct_mean", "efficient", "makespan_bound", "jct_mean_bound",
        "information", "objective", "status",
    ]  # fmt: skip
    assert all(row["makespan_bound"] <= row["makespan"] for row in rows)
    pytest.importorskip("pandas")
    assert len(found.to_pandas()) == 2
    pytest.importorskip("matplotlib")
    from orsched import save_frontier

    path = tmp_path / "plane.svg"
    save_frontier(found, path)
    first = path.read_bytes()
    save_frontier(found, path)
    assert path.read_bytes() == first
    for gid in (b"frontier", b"point-0", b"point-1", b"bound-first", b"bound-second"):
        assert b'id="%s"' % gid in first


def test_methods_that_fail_are_named_and_the_others_go_on():
    padded = instance().replace(workers=[Worker(3, instance().worker.cost, padding=True)])
    found = frontier(padded, points=0, methods=["fcfs", "hybrid"])
    assert len(found) + len(found.failed) == 2


@pytest.mark.parametrize(("arguments", "field"), [
    ({"first": "nothing"}, "first"), ({"first": "jct_mean"}, "second"), ({"first": "gap"}, "first"),
    ({"first": "0.5*makespan+0.5*ttft_mean"}, "first"), ({"second": "slo_attainment"}, "second"),
    ({"points": -1}, "points"), ({"points": 1.5}, "points"), ({"methods": ["no-such"]}, "methods"),
    ({"methods": None}, "methods"), ({"methods": 3}, "methods"), ({"search": "no-such"}, "search"),
    ({"time_limit": 0}, "time_limit"), ({"seed": -1}, "seed"), ({"iterations": 0}, "iterations"),
])  # fmt: skip
def test_wrong_arguments_are_named(arguments, field):
    given = {"methods": ["fcfs"], "points": 0, **arguments}
    assert refusal(frontier, instance(), **given).field == field


def test_attainment_is_a_figure_where_there_are_limits():
    found = frontier(
        instance(arrivals=True), "slo_attainment", "makespan", slo=SLO(ttft_s=0.2),
        methods=["fcfs", "mc_sf"],
    )  # fmt: skip
    assert all(0 <= point.first <= 1 for point in found)


def test_the_command_prints_rows_and_bounds(call, tmp_path):
    path = tmp_path / "problem.json"
    save_instance(instance(), path)
    code, out, err = call("frontier", path, "--points", "0", "--methods", "fcfs,mc_sf")
    assert code == 0, err
    assert "makespan is at least" in out
    cost = AffineCost(prefill_fixed_ns=10, prefill_token_ns=1, round_fixed_ns=7, round_client_ns=1)
    save_instance(Instance(Requests([2, 2], [1, 3]), Worker(2, cost)), tmp_path / "short.json")
    short = call("frontier", tmp_path / "short.json", "--points", "0", "--methods", "fcfs")[1]
    assert "makespan is at least 0.00000003 s: proven of" in short
    code, out, err = call(
        "frontier", path, "--points", "0", "--methods", "fcfs", "--format", "csv",
        "--second", "ttft_p99", "--plot", tmp_path / "plane.png",
    )  # fmt: skip
    assert code == 0, err
    assert out.splitlines()[0].startswith("method,share,makespan,ttft_p99,efficient")
    assert (tmp_path / "plane.png").stat().st_size > 1000
    for wrong in (["--first", "nothing"], ["--plot", "plane.txt"], ["--methods", "no-such"]):
        code, _, err = call("frontier", path, *wrong)
        assert code == 2
        assert "Traceback" not in err


def test_unknown_columns_are_refused_before_the_search(call, tmp_path, monkeypatch):
    path = tmp_path / "problem.json"
    save_instance(instance(), path)
    monkeypatch.setattr("orsched.planning.frontiers.frontier", None)
    for option in ("--columns", "--sort"):
        code, out, err = call("frontier", path, option, "ttft_mean")
        assert (code, out) == (2, "")
        assert f"field '{option}': unknown column 'ttft_mean'" in err


@pytest.mark.parametrize("function", [frontier, solve])
def test_what_is_no_slo_is_refused_before_anything_runs(function):
    with pytest.raises(InputError, match="is not an SLO"):
        function(load("two-by-two"), slo=3)


def test_a_search_that_counts_no_iterations_says_so(monkeypatch):
    """``exact`` ends by its own limit, here of no time at all, whatever the iterations."""
    from orsched.models import exact

    monkeypatch.setattr(exact, "DEFAULT_LIMIT_S", 1e-3)
    case = instance(30)
    found = frontier(case, points=1, methods=["fcfs"], search="exact", iterations=2)
    said = "exact counts no iterations: its own time limit ended it; give one to set another"
    assert said in found.notes
    limited = frontier(case, points=1, methods=["fcfs"], search="exact", iterations=2, time_limit=1)
    assert said not in limited.notes
