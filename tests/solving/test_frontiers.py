"""Frontiers of two objectives: what is dominated, bounds, weighted sums, errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched import SLO, AffineCost, InputError, Instance, Requests, Worker, frontier, load, solve
from orsched.cli.commands import run
from orsched.files import save_instance
from orsched.planning.frontiers import dominated
from orsched.solving.objectives import OBJECTIVES
from tests.refusals import refusal
from tests.solving.test_objectives import instance


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
        assert f"field '{option}': there is no column 'ttft_mean'" in err


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
