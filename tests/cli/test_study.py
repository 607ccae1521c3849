"""``orsched study``: what it prints, writes and exits with. Kills are in tests/study."""

from __future__ import annotations

import json

import pytest

from orsched.cli.commands import run

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
