"""``orsched study``: what it prints, writes and exits with. Kills are in tests/study."""

import json
import sys
from pathlib import Path

import pytest

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
def study(call):
    Path("s.toml").write_text(STUDY)
    return lambda options="", file="s.toml": call(f"study {file} {options}")


def test_it_prints_means_and_writes_table_and_plots(study, folder):
    assert study("--list")[:2] == (0, "8 cells, 0 finished, 8 to run, in s-study\n")
    code, out, err = study("--jobs 2 --plot --format json")
    assert (code, "8 cells (8 run now, 0 before)" in err) == (0, True)
    rows = json.loads(out)
    assert [(row["arrivals"], row["policy"], row["seeds"]) for row in rows] == [
        ("poisson:rate=1", "fcfs", 2),
        ("poisson:rate=1", "online", 2),
        ("poisson:rate=2", "fcfs", 2),
        ("poisson:rate=2", "online", 2),
    ]
    assert all(row["jct_mean_s"] > 0 and row["jct_ci_s"] >= 0 for row in rows)
    made = folder / "s-study"
    names = {path.relative_to(made).parts[0] for path in made.rglob("*")}
    assert names == {"cells", "lock", "plots", "table.csv", "table.parquet"}
    assert (made / "plots/jct_ns_p99-over-policy-by-arrivals.svg").exists()
    code, again, err = study("--format json")
    assert (code, json.loads(again)) == (0, rows)
    assert "(0 run now, 8 before)" in err
    assert study("--list")[1].startswith("8 cells, 8 finished, 0 to run")


def test_the_error_of_a_fit_stands_beside_the_answer(study):
    """Each machine is said once, whether its workers are of the study or of the instance."""
    Path("w.json").write_text('{"clients": 2, "cost": "h100-8b-sheet"}')
    workers = 'workers = [1, "w.json"]\n'
    Path("s.toml").write_text(workers + STUDY.partition("arrivals")[0])
    code, _, err = study("--jobs 1")
    said = [line for line in err.splitlines() if line.startswith("machine: ")]
    assert (code, len(said)) == (0, 2)
    assert "TPOT of held-out rows missed by" in said[1]


def test_wrong_studies_exit_with_2_and_the_place(study, refused):
    Path("wrong.toml").write_text(STUDY + "z = 1\n")
    refused("wrong.toml, field 'plots.z'", "study wrong.toml")
    assert study(file="absent.toml")[0] == 2
    for option, said in (
        ("--jobs 0", "jobs"),
        ("--ray-address auto", "ray"),
        ("--cell-time-limit 0", "field 'cell_time_limit': 0.0"),
        ("--cell-time-limit -1", "seconds above 0"),
        ("--cell-time-limit nan", "seconds above 0"),
    ):
        refused(said, f"study s.toml {option}")
    assert not Path("s-study/table.csv").exists()


def test_a_plot_that_cannot_be_drawn_takes_nothing_with_it(study):
    Path("s.toml").write_text(STUDY.replace("jct_ns_p99", "jct_ns_p98"))
    code, out, err = study("--plot --format json")
    assert (code, len(json.loads(out))) == (2, 4)
    assert "field 'plots.y': the table has no column 'jct_ns_p98' (did you mean jct_ns_p9" in err
    assert Path("s-study/table.csv").exists()


@pytest.mark.parametrize(("plots", "problem"), [
    ('x = "gap"', "field 'plots.x': 'gap' is not a column of choices"),
    ('by = "nothing"', "field 'plots.by'"),
    ('x = "policy"\nby = "seed"', "field 'plots': 26 panels"),
    (None, "pip install matplotlib"),
])  # fmt: skip
def test_plots_that_cannot_be_drawn_are_named_before_the_work(refused, monkeypatch, plots, problem):
    many = STUDY.partition("[[plots]]")[0].replace("requests = 12", f"requests = {[*range(1, 14)]}")
    Path("s.toml").write_text(f'{many}\n[[plots]]\ny = "gap"\n{plots}\n' if plots else STUDY)
    if plots is None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused(problem, "study s.toml --plot")
    assert not Path("s-study").exists()


def test_labels_are_no_formulas(study, folder):
    labelled = STUDY.replace('"fcfs"', '{name = "fcfs", label = "$\\\\frac{$"}')
    Path("s.toml").write_text(labelled)
    code, _, err = study("--plot")
    assert code == 0, err
    (plot,) = (folder / "s-study" / "plots").iterdir()
    assert plot.suffix == ".svg"


def test_nothing_is_drawn_when_all_cells_failed(study):
    Path("s.toml").write_text(STUDY.replace("requests = 12", "requests = -1"))
    code, _, err = study("--plot")
    assert code == 4
    assert "8 cells failed: field 'requests': -1 is below 0" in err


def test_an_infinite_time_limit_of_cells_is_none(study):
    assert study("--cell-time-limit inf")[0] == 0


@pytest.mark.parametrize(("arrivals", "first"), [("0,3,4", "TTFT s"), ("0,0,0", "makespan s")])
def test_arrivals_inside_a_file_decide_columns_and_plots_as_those_of_a_law_do(
    study, folder, arrivals, first
):
    lines = "".join(f"{each},20,9\n" for each in arrivals.split(","))
    Path("r.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{lines}")
    Path("s.toml").write_text(
        'instances = [{name = "r.csv", clients = 2}]\npolicies = ["fcfs", "online"]\n'
    )
    code, out, _ = study("--jobs 1 --plot")
    assert code == 0
    heads = [word.strip() for word in out.splitlines()[0].split("  ") if word.strip()]
    assert heads[heads.index("seeds") + 1] == first
    drawn = " ".join(path.name for path in (folder / "s-study" / "plots").iterdir())
    assert ("ttft_ns_p99" in drawn) == (first == "TTFT s")
    assert ("makespan_ns" in drawn) == (first == "makespan s")


def test_verdicts_and_classes_of_schedules_stand_in_table_and_json(as_json, done):
    Path("s.toml").write_text(
        'instances = [{generator = "uniform", requests = 4, clients = 2}]\n'
        'policies = ["fcfs", "exact"]\nseeds = "0:2"\n'
    )
    lines = {row["policy"]: row for row in as_json("study s.toml --jobs 1")}
    assert lines["exact"]["verdict"] == "optimal"
    assert "schedules" in lines["exact"]["best_of"]
    assert lines["exact"]["termination"] == "finished"
    assert {"verdict", "certified"} <= set(lines["fcfs"])
    out = done("study s.toml")
    assert "verdict" in out.splitlines()[0]
    assert f"optimal among {lines['exact']['best_of']}: " in out
    done("study s.toml --columns policy,verdict,best_of")


def test_verdicts_of_seeds_are_counted():
    rows = [
        {"policy": "exact", "seed": seed, "status": "ok", "verdict": verdict, "best_of": None,
         "certified": verdict == "optimal", "termination": "finished"}
        for seed, verdict in enumerate(["optimal", "feasible", "optimal"])
    ]  # fmt: skip
    [line] = means_of([*rows, {**rows[0], "seed": 3, "status": "failed", "verdict": None}])
    assert line["verdict"] == "1 feasible, 2 optimal"
    assert (line["termination"], line["best_of"], line["seeds"]) == ("finished", None, 3)
