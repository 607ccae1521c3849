"""``orsched study``: what it prints, writes and exits with. Kills are in tests/study."""

from __future__ import annotations

import json
import sys

import pytest

from orsched.cli.commands import run
from orsched.cli.study_command import means_of

STUDY = """
instances = [{generator = "uniform", requests = 12, clients = 2}]
policies = ["fcfs", "online"]
seeds = "0:2"
arrivals = [{law = "poisson", rate = [1, 2]}]

[[plots]]
y = "jct_ns_p99"
x = "policy"
by = "arrivals"
"""


@pytest.fixture
def study(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(STUDY)

    def invoke(*arguments):
        code = run(["study", *map(str, arguments)])
        return code, *capsys.readouterr()

    return invoke


def test_it_prints_means_and_writes_table_and_plots(study, tmp_path):
    code, out, _ = study("s.toml", "--list")
    assert (code, out) == (0, "8 cells, 0 finished, 8 to run, in s-study\n")
    code, out, err = study("s.toml", "--jobs", 2, "--plot", "--format", "json")
    assert code == 0
    rows = json.loads(out)
    assert [(row["arrivals"], row["policy"], row["seeds"]) for row in rows] == [
        ("poisson:rate=1", "fcfs", 2),
        ("poisson:rate=1", "online", 2),
        ("poisson:rate=2", "fcfs", 2),
        ("poisson:rate=2", "online", 2),
    ]
    assert all(row["jct_mean_s"] > 0 and row["jct_ci_s"] >= 0 for row in rows)
    assert "8 cells (8 run now, 0 before)" in err
    names = {path.relative_to(tmp_path / "s-study").as_posix().partition("/")[0]
             for path in (tmp_path / "s-study").rglob("*")}  # fmt: skip
    assert names == {"cells", "lock", "plots", "table.csv", "table.parquet"}
    assert (tmp_path / "s-study/plots/jct_ns_p99-over-policy-by-arrivals.svg").exists()
    code, again, err = study("s.toml", "--format", "json")
    assert (code, json.loads(again)) == (0, rows)
    assert "(0 run now, 8 before)" in err
    assert study("s.toml", "--list")[1].startswith("8 cells, 8 finished, 0 to run")


def test_wrong_studies_exit_with_2_and_the_place(study, tmp_path):
    (tmp_path / "s.toml").write_text(STUDY + "z = 1\n")
    code, out, err = study("s.toml")
    assert (code, out) == (2, "")
    assert "s.toml, field 'plots.z'" in err
    assert study("absent.toml")[0] == 2
    (tmp_path / "s.toml").write_text(STUDY)
    assert study("s.toml", "--jobs", 0)[0] == 2
    assert study("s.toml", "--ray-address", "auto")[0] == 2
    assert not (tmp_path / "s-study" / "table.csv").exists()


def test_a_plot_that_cannot_be_drawn_takes_nothing_with_it(study, tmp_path):
    (tmp_path / "s.toml").write_text(STUDY.replace("jct_ns_p99", "jct_ns_p98"))
    code, out, err = study("s.toml", "--plot", "--format", "json")
    assert (code, len(json.loads(out))) == (2, 4)
    assert "field 'plots.y': the table has no column 'jct_ns_p98' (did you mean jct_ns_p9" in err
    assert (tmp_path / "s-study" / "table.csv").exists()


@pytest.mark.parametrize(
    ("plots", "problem"),
    [
        ('x = "gap"', "field 'plots.x': 'gap' is not a column of choices"),
        ('by = "nothing"', "field 'plots.by'"),
        ('x = "policy"\nby = "seed"', "field 'plots': 26 panels"),
    ],
)
def test_plots_that_no_results_can_be_drawn_as_are_named_before_the_work(
    study, tmp_path, plots, problem
):
    many = STUDY.partition("[[plots]]")[0].replace("requests = 12", f"requests = {[*range(1, 14)]}")
    (tmp_path / "s.toml").write_text(f'{many}\n[[plots]]\ny = "gap"\n{plots}\n')
    code, out, err = study("s.toml", "--plot")
    assert (code, out) == (2, "")
    assert problem in err
    assert not (tmp_path / "s-study").exists()


def test_plots_without_matplotlib_are_refused_before_the_work(study, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = study("s.toml", "--plot")
    assert (code, out) == (2, "")
    assert "pip install matplotlib" in err
    assert not (tmp_path / "s-study").exists()


def test_labels_are_no_formulas(study, tmp_path):
    labelled = STUDY.replace('"fcfs"', '{name = "fcfs", label = "$\\\\frac{$"}')
    (tmp_path / "s.toml").write_text(labelled)
    code, _, err = study("s.toml", "--plot")
    assert code == 0, err
    (plot,) = (tmp_path / "s-study" / "plots").iterdir()
    assert plot.suffix == ".svg"


def test_nothing_is_drawn_when_all_cells_failed(study, tmp_path):
    (tmp_path / "s.toml").write_text(STUDY.replace("requests = 12", "requests = -1"))
    code, _, err = study("s.toml", "--plot")
    assert code == 4
    assert "8 cells failed: field 'requests': -1 is below 0" in err


@pytest.mark.parametrize("limit", ["0", "-1", "nan"])
def test_wrong_time_limits_of_cells_are_named(study, limit):
    code, _, err = study("s.toml", "--cell-time-limit", limit)
    assert code == 2
    assert "field 'cell_time_limit'" in err
    assert "seconds above 0" in err


def test_an_infinite_time_limit_of_cells_is_none(study):
    assert study("s.toml", "--cell-time-limit", "inf")[0] == 0


@pytest.mark.parametrize(("arrivals", "first"), [("0,3,4", "TTFT s"), ("0,0,0", "makespan s")])
def test_arrivals_inside_a_file_decide_columns_and_plots_as_those_of_a_law_do(
    study, tmp_path, arrivals, first
):
    lines = "".join(f"{each},20,9\n" for each in arrivals.split(","))
    (tmp_path / "r.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{lines}")
    (tmp_path / "s.toml").write_text(
        'instances = [{name = "r.csv", clients = 2}]\npolicies = ["fcfs", "online"]\n'
    )
    code, out, _ = study("s.toml", "--jobs", 1, "--plot")
    assert code == 0
    heads = [word.strip() for word in out.splitlines()[0].split("  ") if word.strip()]
    assert heads[heads.index("seeds") + 1] == first
    drawn = " ".join(path.name for path in (tmp_path / "s-study" / "plots").iterdir())
    assert ("ttft_ns_p99" in drawn) == (first == "TTFT s")
    assert ("makespan_ns" in drawn) == (first == "makespan s")


def test_verdicts_and_classes_of_schedules_stand_in_table_and_json(study, tmp_path):
    (tmp_path / "s.toml").write_text(
        'instances = [{generator = "uniform", requests = 4, clients = 2}]\n'
        'policies = ["fcfs", "exact"]\nseeds = "0:2"\n'
    )
    code, out, err = study("s.toml", "--jobs", 1, "--format", "json")
    assert code == 0, err
    lines = {row["policy"]: row for row in json.loads(out)}
    assert lines["exact"]["verdict"] == "optimal"
    assert "schedules" in lines["exact"]["best_of"]
    assert lines["exact"]["termination"] == "finished"
    assert {"verdict", "certified"} <= set(lines["fcfs"])
    out = study("s.toml")[1]
    assert "verdict" in out.splitlines()[0]
    assert f"optimal among {lines['exact']['best_of']}: " in out
    assert study("s.toml", "--columns", "policy,verdict,best_of")[0] == 0


def test_verdicts_of_seeds_are_counted():
    rows = [
        {"policy": "exact", "seed": seed, "status": "ok", "verdict": verdict, "best_of": None,
         "certified": verdict == "optimal", "termination": "finished"}
        for seed, verdict in enumerate(["optimal", "feasible", "optimal"])
    ]  # fmt: skip
    [line] = means_of([*rows, {**rows[0], "seed": 3, "status": "failed", "verdict": None}])
    assert line["verdict"] == "1 feasible, 2 optimal"
    assert (line["termination"], line["best_of"], line["seeds"]) == ("finished", None, 3)
