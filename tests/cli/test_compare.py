"""``orsched compare``: another scenario, a method that fails is a row, exit codes, its page."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import sys
from inspect import signature

import pytest

import orsched
from orsched.cli.commands import cli, run

OWN = """
from orsched import Policy, decode_rounds, prefill_stage

class Mine(Policy):
    name = "mine"

    def __init__(self, stop_at=-1):
        self.queue, self.stop_at = [], stop_at

    def on_arrival(self, view, request):
        self.queue.append(request)

    def decide(self, view):
        if len(self.queue) == self.stop_at:
            raise KeyError("mine alone")
        if self.queue and view.free_clients:
            return prefill_stage([self.queue.pop(0)])
        return decode_rounds() if view.running else None

class Idle(Mine):
    def decide(self, view):
        return None
"""
MADE = ("generate", "uniform", "--set", "requests=12", "--set", "clients=3")


@pytest.fixture
def call(call, tmp_path, monkeypatch):
    """Run a command in a folder with a policy and an instance; return code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "own.py").write_text(OWN)
    assert call(*MADE, "-o", "i.json")[0] == 0
    return call


def rows_of(text):
    return {row["method"]: row for row in json.loads(text)}


def test_own_files_stand_beside_names_in_one_scenario(call):
    options = ("--workers", 2, "--arrivals", "poisson:rate=5", "--slo-ttft", 2, "--seed", 3)
    methods = ("--methods", "fcfs,vllm,own.py:Mine", "--format", "json")
    code, out, _ = call("compare i.json", *methods, *options)
    assert code == 0
    rows = rows_of(out)
    assert list(rows) == ["fcfs", "vllm", "own.py:Mine"]
    for name, row in rows.items():
        single = call("simulate i.json --policy", name, *options, "--format", "json")
        assert json.loads(single[1])["makespan_s"] == row["makespan_s"]
        assert row["error"] is None


def test_a_configuration_says_the_same_as_options(call, refused, tmp_path):
    (tmp_path / "c.toml").write_text(
        'seed = 3\n[workers]\ncount = 2\n[arrivals]\nlaw = "poisson"\nrate = 5\n'
    )
    methods = ("--methods", "fcfs,vllm", "--format", "json")
    options = ("--workers", 2, "--arrivals", "poisson:rate=5", "--seed", 3)
    by_options = [
        row["makespan_s"] for row in json.loads(call("compare i.json", *methods, *options)[1])
    ]
    code, out, _ = call("compare i.json", *methods, "--config", "c.toml")
    assert (code, [row["makespan_s"] for row in json.loads(out)]) == (0, by_options)
    refused("say it once", "compare i.json", *methods, "--config", "c.toml", "--workers", 3)
    (tmp_path / "p.toml").write_text('[policy]\nname = "vllm"\n')
    refused(
        "p.toml, field 'policy': [policy] is for orsched simulate",
        "compare i.json",
        *methods,
        "--config",
        "p.toml",
    )


def test_a_method_that_does_not_suit_is_a_row_with_its_reason(call):
    methods = "fcfs,windows,vllm@predicted,own.py:Idle,own.py:Mine+stop_at=1,mico"
    code, out, err = call("compare i.json --methods", methods, "--workers", 2, "--format", "json")
    assert code == 2
    rows = json.loads(out)
    assert [row["method"] for row in rows] == [
        "fcfs", "windows", "vllm@predicted", "own.py:Idle", "own.py:Mine+stop_at=1", "mico",
    ]  # fmt: skip
    errors = [row["error"] for row in rows]
    assert errors[0] is None
    assert errors[1].startswith("field 'workers': windows is for one worker, the instance has 2 (")
    assert errors[2].startswith("field 'predicted_tokens': the instance has no predicted lengths")
    assert errors[3].startswith("nothing to do for ") or errors[3]
    assert errors[4] == "raised KeyError: 'mine alone' (own.py, line 15)"
    assert rows[2]["information"] == "predicted"
    for row in rows:
        assert (row["makespan_s"] is None) == (row["error"] is not None)
        assert list(row) == list(rows[0])
    assert "orsched: windows: field 'workers': windows is for one worker" in err
    assert 'own.py", line 15, in decide' in err
    assert "own.py:Mine+stop_at=1: raised KeyError: 'mine alone' (own.py, line 15)" in err


def test_a_table_has_the_column_only_where_something_failed(call):
    methods = ("--methods", "fcfs,windows")
    assert "error" not in call("compare i.json", *methods)[1]
    code, out, _ = call("compare i.json", *methods, "--workers", 2)
    assert (code, "windows is for one worker" in out) == (2, True)
    code, out, _ = call("compare i.json", *methods, "--workers", 2, "--format", "csv")
    found = list(csv.DictReader(io.StringIO(out)))
    assert found[0]["error"] == ""
    assert "windows is for one worker, the instance has 2 (take one" in found[1]["error"]


@pytest.mark.parametrize("more", [(), ("--arrivals", "poisson:rate=2", "--slo-ttft", 2)])
def test_a_long_reason_is_cut_in_the_table_and_full_elsewhere(call, more):
    asked = ("compare", "i.json", "--methods", "fcfs,exact", "--workers", 2, *more)
    code, out, err = call(*asked)
    assert code == 2
    lines = out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[3].split("  ", 1)[0] == "exact"
    assert "  clairvoyant  the full MIP is for one worker, the instance has 2" in lines[3]
    assert "the full MIP is for one worker, the instance has 2 (take one of them" in err
    full = json.loads(call(*asked, "--format", "json")[1])[1]["error"]
    assert f"orsched: exact: {full}" in err
    assert full.endswith("gittins, fcfs))")


def test_exit_codes(call, refused):
    assert call("compare i.json --methods fcfs,vllm")[0] == 0
    assert call("compare i.json --methods fcfs,windows --workers 2")[0] == 2
    refused(
        "no method made a schedule: windows: ", "compare i.json --methods windows,exact --workers 2"
    )
    code, out, err = call("compare i.json --methods windows --workers 2")
    assert (code, out) == (2, "")
    assert err.count("windows is for one worker") == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--methods", "fcfs,vlm"), "did you mean vllm?"),
        (("--methods", "fcfs,own.py:mine"), "did you mean Mine?"),
        (("--methods", "fcfs,on.py:Mine"), "did you mean own.py?"),
        (("--methods", "fcfs,own.py"), "write own.py:Mine or Idle"),
        (("--methods", "fcfs,hybrid+gait=1"), "'gait'"),
        (("--methods", ","), "no method is named"),
        (("--workers", "0"), "below 1"),
        (("--workers", "nowhere.json"), "nowhere.json"),
        (("--arrivals", "poison:rate=1"), "poisson"),
        (("--predictions", "noise"), "sigma"),
        (("--seed", "-1"), "below 0"),
        (("--param", "gate=1"), "vllm+gate=1"),
        (("--each",), "--seeds"),
    ],
)
def test_wrong_words_are_refused_before_anything_runs(refused, monkeypatch, arguments, named):
    monkeypatch.setattr("orsched.solving.solver.solve", None)
    monkeypatch.setattr("orsched.cli.compare_command.load_instance", None)
    refused(named, "compare i.json", *arguments)


def test_seeds_take_the_scenario_and_keep_failures_apart(call):
    made = ("uniform", "--seeds", "0:3", "--set", "requests=6", "--set", "clients=2")
    scenario = ("--workers", 2, "--arrivals", "poisson:rate=5")
    methods = ("--methods", "fcfs,windows,vllm", "--format", "json")
    code, out, err = call("compare", *made, *methods, *scenario)
    assert code == 2
    rows = rows_of(out)
    assert [row["seeds"] for row in rows.values()] == [3, 0, 3]
    assert rows["windows"]["error"].startswith("field 'workers': windows is for one worker")
    assert "seed 1: windows: " in err
    code, out, _ = call("compare", *made, *methods, *scenario, "--each")
    each = json.loads(out)
    assert [row["seed"] for row in each] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    mean = sum(row["makespan_s"] for row in each if row["method"] == "vllm") / 3
    assert rows["vllm"]["makespan_s"] == pytest.approx(mean)


def test_simulate_takes_what_its_python_twin_takes(call, refused, tmp_path):
    options = ("--predictions", "classes", "--format", "json")
    code, out, _ = call("simulate i.json --policy vllm --information predicted", *options)
    assert (code, json.loads(out)["information"]) == (0, "predicted")
    (tmp_path / "c.toml").write_text('[policy]\nname = "vllm"\ninformation = "predicted"\n')
    code, out, err = call("simulate i.json --config c.toml --information none")
    assert (code, out) == (2, "")
    assert "field '--information': c.toml already says this (say it once)" in err.replace(
        "'c.toml", "c.toml"
    )
    refused("--information", "simulate i.json --policy vllm@none --information none")
    twin = signature(orsched.simulate).parameters
    flags = {p.name for p in cli.get_command(None, "simulate").params}
    assert set(twin) - {"observer", "slo"} <= flags


@pytest.fixture
def page(repo_root, monkeypatch):
    monkeypatch.chdir(repo_root)
    monkeypatch.setattr(sys, "path", [str(repo_root), *sys.path])
    return (repo_root / "docs" / "compare.md").read_text()


def test_the_command_prints_what_the_page_shows(page, capsys):
    command, shown = re.search(r"```console\n\$ (.*?)\n(.*?)```", page, re.DOTALL).groups()
    assert command.startswith("orsched compare ")
    assert run(shlex.split(command)[1:]) == 2  # windows is for one worker
    assert capsys.readouterr().out == shown


def test_its_python_finds_the_same(page):
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {"orsched": __import__("orsched")}
    for block in blocks:
        exec(compile(block, "compare.md", "exec"), names)
    found = names["found"]
    shown = re.search(r"^vllm +none +([0-9.]+) %", page, re.MULTILINE)
    assert found["vllm"].slo_attainment == pytest.approx(float(shown[1]) / 100)
    assert found.best().label.startswith("shortest-prompt-first")
    assert found.failed == ()
