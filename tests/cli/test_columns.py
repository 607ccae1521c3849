"""Columns that fit, ``--columns`` and ``--sort``, the best row, and whose makespan it is."""

from __future__ import annotations

import csv
import io
import json

import pytest

ARRIVE = ("gsm8k-llama65b", "--methods", "fcfs,vllm", "--workers", 8, "--arrivals")
LATE = (*ARRIVE, "poisson:rate=1")
FULL = ("pang-100x20", "--workers", 1, "--arrivals", "poisson:rate=50")


def head(out):
    return out.splitlines()[0].split("  ")[0:1] + [
        word.strip() for word in out.splitlines()[0].split("  ")[1:] if word.strip()
    ]


def test_all_at_the_start_shows_makespan_and_gap_first(call):
    code, out, _ = call("compare", "pang-100x20")
    assert code == 0
    assert head(out)[:6] == ["method", "information", "makespan s", "bound s", "gap", "status"]
    assert max(map(len, out.splitlines())) <= 100
    assert out.splitlines()[-2].startswith("* shortest with information none: fcfs (")
    assert out.splitlines()[-1].startswith("* shortest with information clairvoyant: hybrid (")
    assert sum(" * " in line for line in out.splitlines()[2:-2]) == 2
    assert "last arrival" not in out


def test_arrivals_show_latencies_first_and_nobody_is_called_shortest(call):
    code, out, _ = call("compare", *FULL, "--methods", "fcfs,online")
    assert code == 0
    assert head(out)[:4] == ["method", "information", "TTFT s", "TTFT p99"]
    assert head(out)[-4:] == ["makespan s", "bound s", "gap", "status"]
    assert "* least mean JCT: " in out
    assert "shortest" not in out
    assert max(map(len, out.splitlines())) <= 100


def test_limits_show_attainment_first_and_mark_the_best(call):
    limits = ("--slo-ttft", 2, "--slo-tpot", 0.2)
    code, out, _ = call("compare", *FULL, "--methods", "fcfs,online,vllm", *limits)
    assert code == 0
    assert head(out)[:3] == ["method", "information", "SLO"]
    rows = json.loads(
        call("compare", *FULL, "--methods", "fcfs,online,vllm", *limits, "--format", "json")[1]
    )
    best = max(rows, key=lambda row: row["slo_attainment"])
    assert (
        f"* best attainment: {best['method']} ({best['slo_attainment']:.2%}".replace("%", " %")
        in out
    )
    assert max(map(len, out.splitlines())) <= 100


def test_where_all_attain_the_limits_alike_the_mean_jct_decides(call):
    code, out, _ = call("compare", *FULL, "--methods", "fcfs,online", "--slo-ttft", 1000)
    assert code == 0
    assert head(out)[2] == "SLO"
    assert out.count("100.00 %") == 2
    assert out.splitlines()[-1].startswith("* least mean JCT: ")


def test_a_makespan_that_the_arrivals_decide_is_said_to_be_theirs(call):
    code, out, _ = call("compare", *LATE)
    assert code == 0
    last = out.splitlines()[-1]
    assert last.startswith("the makespan is the last arrival's, at 1,")
    assert last.endswith("s: arrivals decide it, not the method")
    assert "last arrival" not in call("compare", *FULL, "--methods", "fcfs,online")[1]
    one = call("simulate", *LATE[:1], *LATE[3:])[1]
    assert "the makespan is the last arrival's" in one


def test_columns_and_sort_decide_in_every_format(call):
    options = ("--columns", "method,ttft_p99_s", "--sort", "-ttft_p99_s")
    rows = json.loads(call("compare", *LATE, *options, "--format", "json")[1])
    assert [list(row) for row in rows] == [["method", "ttft_p99_s"]] * 2
    assert rows[0]["ttft_p99_s"] >= rows[1]["ttft_p99_s"]
    table = list(
        csv.DictReader(io.StringIO(call("compare", *LATE, *options, "--format", "csv")[1]))
    )
    assert [row["method"] for row in table] == [row["method"] for row in rows]
    assert list(table[0]) == ["method", "ttft_p99_s"]
    out = call("compare", *LATE, *options)[1]
    assert head(out) == ["method", "TTFT p99"]
    assert out.splitlines()[2].split()[0] == rows[0]["method"]
    upwards = (*options[:3], "ttft_p99_s")
    again = json.loads(call("compare", *LATE, *upwards, "--format", "json")[1])
    assert again == rows[::-1]
    single = ("solve", "two-by-two", "--columns", "gap,method", "--format", "json")
    assert list(json.loads(call(*single)[1])) == ["gap", "method"]


@pytest.mark.parametrize("command", ["compare", "solve", "simulate"])
def test_an_unknown_column_is_answered_with_the_one_that_was_meant(call, command):
    for option in ("--columns", "--sort"):
        code, out, err = call(command, "two-by-two", option, "ttft_p9_s")
        assert (code, out) == (2, "")
        assert f"field '{option}': there is no column 'ttft_p9_s' (did you mean ttft_p99_s?" in err
    assert call(command, "two-by-two", "--columns", ",")[0] == 2


IDLE = """
from orsched import Policy

class Idle(Policy):
    name = "idle"

    def decide(self, view):
        return None
"""


def test_methods_that_fail_come_last_whichever_way_rows_are_sorted(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(IDLE)
    methods = ("compare", "two-by-two", "--methods", "fcfs,own.py:Idle,hybrid")
    for sort in ("makespan_s", "-makespan_s"):
        found = call(*methods, "--columns", "method,error", "--sort", sort, "--format", "json")
        rows = json.loads(found[1])
        assert rows[-1]["method"] == "own.py:Idle"
        assert rows[-1]["error"]
    out = call(*methods)[1]
    failed = next(line for line in out.splitlines() if line.startswith("own.py:Idle"))
    assert "nothing to do" in failed or "it waits" in failed


@pytest.mark.parametrize("columns", [60, 80])
def test_a_table_is_no_wider_than_the_terminal(call, monkeypatch, columns):
    asked = ("compare", *FULL, "--methods", "fcfs,online", "--slo-ttft", 2)
    piped = call(*asked)[1]
    assert max(map(len, piped.splitlines())) > 80
    assert len(piped.splitlines()) < 7
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    out = call(*asked)[1]
    assert max(map(len, out.splitlines())) <= columns
    assert head(out)[:3] == head(piped)[:3]
    for name in ("makespan s", "bound s", "gap", "status"):  # in further parts, each with labels
        assert name in out
    assert out.count("fcfs") == 1 + out.count("\n\n")


def test_violations_have_columns_too(call, tmp_path):
    path = tmp_path / "s.json"
    call("solve", "two-by-two", "-o", path)
    document = json.loads(path.read_text())
    document["results"]["makespan_ns"] += 1
    path.write_text(json.dumps(document))
    options = ("--columns", "kind,field", "--format", "json")
    code, out, _ = call("check", "two-by-two", path, *options)
    assert code == 1
    assert {"kind": "result", "field": "results.makespan_ns"} in json.loads(out)
    assert "kind" in call("check", "two-by-two", path, *options[:2])[1].splitlines()[0]


def test_means_over_seeds_are_those_of_all_figures(call):
    options = ("compare", "pang-case", "--seeds", "0:2", "--methods", "fcfs,hybrid")
    each = json.loads(call(*options, "--each", "--format", "json")[1])
    means = json.loads(call(*options, "--format", "json")[1])
    for row in means:
        mine = [e for e in each if e["method"] == row["method"]]
        for name in ("ttft_p99_s", "jct_mean_s", "itl_max_s", "tokens_per_s"):
            assert row[name] == pytest.approx(sum(e[name] for e in mine) / 2, rel=1e-12)
        assert row["slo_attainment"] is None
    out = call(*options)[1]
    columns = ["method", "information", "seeds", "makespan s", "bound s", "gap", "status"]
    assert head(out)[:7] == columns


def test_bounds_on_means_stand_beside_the_figures(call):
    code, out, _ = call("compare", *FULL, "--methods", "fcfs,online", "--bounds", "mean_jct")
    assert code == 0
    assert "JCT bound" in out.splitlines()[0]
    names = ("--bounds", "mean_jct,mean_ttft", "--format", "json")
    for row in json.loads(call("compare", *FULL, "--methods", "fcfs,online", *names)[1]):
        assert 0 < row["jct_mean_bound_s"] <= row["jct_mean_s"]
        assert 0 < row["ttft_mean_bound_s"] <= row["ttft_mean_s"]
    code, _, err = call("solve", "two-by-two", "--bounds", "mean_tpot")
    assert code == 2
    assert "field '--bounds': there is no bound on 'mean_tpot' (did you mean mean_ttft?" in err
    code, _, err = call("compare", "none.csv", "--bounds", "jct")
    assert "field '--bounds': there is no bound on 'jct'" in err  # before anything is loaded


def test_one_limit_alone_leaves_the_other_null(call, tmp_path):
    path = tmp_path / "s.json"
    code, out, _ = call("simulate", "two-by-two", "--slo-ttft", 0.1, "--format", "json", "-o", path)
    assert code == 0
    slo = json.loads(path.read_text())["results"]["slo"]
    assert (slo["ttft_ns"], slo["tpot_ns"]) == (100_000_000, None)
    row = json.loads(out)
    assert row["slo_attainment"] == slo["attainment"]
    assert row["goodput_per_s"] == slo["goodput_per_s"]
    assert call("check", "two-by-two", path)[0] == 0
