"""Tables and intervals of studies, and what they say beside the public functions."""

import math

import pandas as pd
import pytest

import orsched
from orsched.instances import with_arrivals
from orsched.instances.catalog import generate
from orsched.planning.study import over_seeds, paired, read_study, run, save_plots
from orsched.planning.study.table import RUN, csv_text, independent, varying
from tests.refusals import refusal

GRID = {
    "instances": [{"generator": "uniform", "requests": 20, "clients": 2}],
    "arrivals": ["poisson:rate=1", "poisson:rate=4"],
    "seeds": "0:3",
    "policies": ["fcfs", {"name": "online", "parameters": {"gate": ["waited_time", "idle_cost"]}}],
    "bounds": ["makespan", "mean_jct"],
    "slo": {"ttft_s": 5},
}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return run(GRID, tmp_path_factory.mktemp("study"), jobs=2)


def test_a_row_says_what_solve_says(done):
    assert done.cells == done.ran == len(done.rows) == 2 * 3 * 3
    assert done.failed == []
    for row in done.rows[::4]:
        instance = generate("uniform", requests=20, clients=2, seed=row["seed"])
        instance = with_arrivals(instance, row["arrivals"], row["seed"])
        gate = {} if row["param_gate"] is None else {"gate": row["param_gate"]}
        slo = orsched.SLO(ttft_s=5)
        result = orsched.solve(instance, row["policy"], parameters=gate, seed=row["seed"], slo=slo)
        said = result.schedule.results
        assert row["makespan_ns"] == said["makespan_ns"]
        assert row["jct_ns_mean"] == said["jct_ns"]["mean"]
        assert row["slo_attained"] == said["slo"]["attained"]
        assert row["bound_ns"] <= said["bound_ns"] <= row["makespan_ns"]  # no search in studies
        assert row["jct_bound_ns"] <= row["jct_ns_mean"]
        assert row["requests"] == 20


def test_the_files_hold_the_rows(done):
    frame = pd.read_parquet(done.folder / "table.parquet")
    text = pd.read_csv(done.folder / "table.csv")
    assert list(frame.columns) == list(text.columns) == list(done.rows[0])
    assert frame["makespan_ns"].tolist() == [row["makespan_ns"] for row in done.rows]
    assert text["jct_ns_mean"].tolist() == frame["jct_ns_mean"].tolist()
    assert frame["makespan_ns"].dtype == "int64"
    assert sorted(frame.columns)[-1] > RUN
    assert len(done.to_pandas()) == len(frame)


def test_a_second_run_runs_nothing_and_a_longer_one_the_rest(done, tmp_path):
    again = run(GRID, done.folder, jobs=2)
    assert again.ran == 0
    assert csv_text(again.rows) == csv_text(done.rows)
    more = run({**GRID, "seeds": "0:4"}, done.folder, jobs=2)
    assert (more.cells, more.ran) == (24, 6)
    fresh = run({**GRID, "seeds": "0:4"}, tmp_path, jobs=1)
    assert csv_text(fresh.rows, run_columns=False) == csv_text(more.rows, run_columns=False)
    assert csv_text(fresh.rows) != csv_text(more.rows)  # wall-clock figures differ


def test_instances_may_be_objects(tmp_path):
    instance = generate("uniform", requests=9, clients=2, seed=4)
    seen = []
    done = run({"instances": [instance], "policies": ["fcfs"]}, tmp_path, callback=seen.append)
    assert done.rows[0]["makespan_ns"] == orsched.solve(instance, "fcfs").makespan_ns
    assert [state.finished for state in seen] == [0, 1]
    assert run({"instances": [instance], "policies": ["fcfs"]}, tmp_path).ran == 0


def test_means_over_seeds_are_those_of_the_rows(done):
    rows = done.rows
    groups = over_seeds(rows, "jct_ns_mean")
    assert len(groups) == 6
    names = varying(rows)
    assert set(names) == {"arrivals", "policy", "arrivals_rate", "param_gate"}
    assert independent(rows, names) == ["arrivals", "policy", "param_gate"]
    for choice, interval in groups:
        chosen = [row for row in rows if tuple(row[name] for name in names) == choice]
        values = [row["jct_ns_mean"] for row in chosen]
        assert interval.size == 3
        assert interval.mean == pytest.approx(sum(values) / 3)
        assert interval.low <= interval.mean <= interval.high
        half = 4.302652729911275 * pd.Series(values).std() / math.sqrt(3)
        assert interval.high - interval.mean == pytest.approx(half)


def test_pairs_are_compared_on_equal_workloads(done):
    same = paired(done.rows, "jct_ns_mean", "fcfs", "fcfs")
    assert [group.interval[1:] for group in same] == [(0.0, 0.0, 0.0)] * 2
    frame = done.to_pandas()
    for choice, interval in paired(done.rows, "jct_ns_mean", "online", "fcfs"):
        part = frame[frame["arrivals"] == choice[0]]
        means = part.groupby(["policy", "seed"])["jct_ns_mean"].mean()
        expected = (means["online"] / means["fcfs"] - 1).mean()
        assert interval.mean == pytest.approx(expected)
    assert "no policy 'lifo'" in str(refusal(paired, done.rows, "jct_ns_mean", "lifo", "fcfs"))


def test_columns_without_numbers_and_choices_that_are_no_columns_are_refused(done):
    for name in ("makespan", "policy", "status"):
        assert "column" in str(refusal(over_seeds, done.rows, name))
    for name in ("polcy", None, 3):
        assert "has no column" in str(refusal(over_seeds, done.rows, "makespan_ns", [name]))
    assert "did you mean policy" in str(refusal(over_seeds, done.rows, "makespan_ns", ["polcy"]))


def test_plots_of_a_study_and_what_they_cannot_show(done, tmp_path):
    assert len(save_plots(done.rows, tmp_path / "a")) == 4
    plots = [{"y": "slo_attainment", "x": "policy", "by": "arrivals"}]
    (chosen,) = save_plots(done.rows, tmp_path, plots, "png")
    assert chosen.read_bytes().startswith(b"\x89PNG")
    for plot in ({"y": "nothing"}, {"y": "gap", "x": "gap"}, {"y": "gap", "by": "bound_name"}):
        refusal(save_plots, done.rows, tmp_path, [plot])
    error = refusal(save_plots, done.rows, tmp_path, suffix="jpg")
    assert "'jpg' is none of svg, png, pdf" in str(error)
    assert "no finished cell" in str(refusal(save_plots, [], tmp_path))


def test_a_policy_has_a_line_for_each_choice_of_its_parameters(tmp_path):
    study = {
        "instances": [{"generator": "uniform", "requests": [4, 8], "clients": 2}],
        "policies": ["fcfs", {"name": "online", "parameters": {"gate_factor": [0.5, 2]}}],
    }
    made = run(study, tmp_path, jobs=1)
    drawn = save_plots(made.rows, tmp_path, [{"y": "gap", "x": "instance_requests"}])
    text = drawn[0].read_text()
    for label in ("fcfs", "online gate_factor=0.5", "online gate_factor=2"):
        assert f">{label}</text>" in text
    assert text.count('<g id="axes_') == 1, "one panel holds all of them"
    apart = save_plots(made.rows, tmp_path, [{"y": "gap", "x": "param_gate_factor"}])
    assert apart[0].read_text().count('<g id="axes_') == 2, "one for each number of requests"


def test_arguments_of_run_are_checked(tmp_path):
    small = {"instances": ["two-by-two"], "policies": ["fcfs"]}
    for options in ({"jobs": 0}, {"cluster": "slurm"}, {"ray_address": "auto"}):
        refusal(run, small, tmp_path, **options)
    for limit in (0, "3", True):
        refusal(run, small, tmp_path, cell_time_limit=limit)
    (tmp_path / "file").write_text("")
    assert "cannot be used" in str(refusal(run, small, tmp_path / "file"))
    assert read_study(read_study(small)) == read_study(small)
