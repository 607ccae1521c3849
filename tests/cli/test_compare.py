"""``orsched compare``: another scenario, a method that fails is a row, exit codes, its page."""

import csv
import io
import json
import re
import shlex
import sys
from inspect import signature
from pathlib import Path

import pytest

import orsched
from orsched.cli.commands import cli, run
from tests.cli.own_policies import RAISES


@pytest.fixture
def made(own, done):
    """Put an instance and a file of policies into the folder."""
    done("generate uniform --set requests=12 --set clients=3 -o i.json")


SCENARIO = "--workers 2 --arrivals poisson:rate=5 --seed 3"


def test_own_files_stand_beside_names_in_one_scenario(made, as_json):
    names = ["fcfs", "vllm", "own.py:Mine"]
    options = f"{SCENARIO} --slo-ttft 2"
    rows = as_json(f"compare i.json --methods {','.join(names)} {options}")
    assert [row["method"] for row in rows] == names
    for name, row in zip(names, rows, strict=True):
        single = as_json(f"simulate i.json --policy {name} {options}")
        assert (row["makespan_s"], row["error"]) == (single["makespan_s"], None)


def test_a_configuration_says_the_same_as_options(made, as_json, refused):
    Path("c.toml").write_text(
        'seed = 3\n[workers]\ncount = 2\n[arrivals]\nlaw = "poisson"\nrate = 5\n'
    )
    Path("p.toml").write_text('[policy]\nname = "vllm"\n')
    command = "compare i.json --methods fcfs,vllm"
    same = [as_json(f"{command} {options}") for options in (SCENARIO, "--config c.toml")]
    one, other = ([row["makespan_s"] for row in rows] for rows in same)
    assert one == other
    refused("say it once", f"{command} --config c.toml --workers 3")
    said = "p.toml, field 'policy': [policy] is for orsched simulate"
    refused(said, f"{command} --config p.toml")


def test_a_method_that_does_not_suit_is_a_row_with_its_reason(made, call):
    names = ["fcfs", "windows", "vllm@predicted", "own.py:Idle", "own.py:Mine+stop_at=1", "mico"]
    raised = f"raised KeyError: 'mine alone' (own.py, line {RAISES})"
    code, out, err = call(f"compare i.json --methods {','.join(names)} --workers 2 --format json")
    assert code == 2
    rows = json.loads(out)
    assert [row["method"] for row in rows] == names
    errors = [row["error"] for row in rows]
    assert errors[0] is None
    assert errors[1].startswith("field 'workers': windows is for one worker, the instance has 2 (")
    assert errors[2].startswith("field 'predicted_tokens': the instance has no predicted lengths")
    assert errors[3]
    assert errors[4] == raised
    assert rows[2]["information"] == "predicted"
    for row in rows:
        assert (row["makespan_s"] is None) == (row["error"] is not None)
        assert list(row) == list(rows[0])
    assert "orsched: windows: field 'workers': windows is for one worker" in err
    assert f'own.py", line {RAISES}, in decide' in err
    assert f"own.py:Mine+stop_at=1: {raised}" in err


def test_methods_that_fail_come_last_whichever_way_rows_are_sorted(made, call):
    methods = "compare two-by-two --methods fcfs,own.py:Idle,hybrid"
    for sort in ("makespan_s", "-makespan_s"):
        _, out, _ = call(f"{methods} --columns method,error --sort {sort} --format json")
        assert json.loads(out)[-1]["method"] == "own.py:Idle"
        assert json.loads(out)[-1]["error"]
    (failed,) = (x for x in call(methods)[1].splitlines() if x.startswith("own.py:Idle"))
    assert "nothing to do" in failed or "it waits" in failed


def test_a_table_has_the_column_only_where_something_failed(made, done, call):
    methods = "compare i.json --methods fcfs,windows"
    assert "error" not in done(methods)
    code, out, _ = call(f"{methods} --workers 2")
    assert (code, "windows is for one worker" in out) == (2, True)
    _, out, _ = call(f"{methods} --workers 2 --format csv")
    found = list(csv.DictReader(io.StringIO(out)))
    assert found[0]["error"] == ""
    assert "windows is for one worker, the instance has 2 (choose fleet" in found[1]["error"]


@pytest.mark.parametrize("more", ["", "--arrivals poisson:rate=2 --slo-ttft 2"])
def test_a_long_reason_is_cut_in_the_table_and_full_elsewhere(made, call, more):
    asked = f"compare i.json --methods fcfs,offline --workers 2 {more}"
    code, out, err = call(asked)
    assert code == 2
    lines = out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[3].split("  ", 1)[0] == "offline"
    assert "  clairvoyant  offline is for one worker, the instance has 2" in lines[3]
    assert "offline is for one worker, the instance has 2 (choose fleet, which plans" in err
    full = json.loads(call(f"{asked} --format json")[1])[1]["error"]
    assert f"orsched: offline: {full}" in err
    assert full.endswith("or take one worker)")


def test_where_no_method_made_a_schedule_nothing_is_printed(made, refused):
    said = "no method made a schedule: windows: "
    refused(said, "compare i.json --methods windows,offline --workers 2")
    said = "windows is for one worker"
    assert refused(said, "compare i.json --methods windows --workers 2").count(said) == 1


def test_seeds_take_the_scenario_and_keep_failures_apart(call):
    made = "compare uniform --seeds 0:3 --set requests=6 --set clients=2"
    asked = f"{made} --methods fcfs,windows,vllm --workers 2 --arrivals poisson:rate=5"
    code, out, err = call(f"{asked} --format json")
    rows = {row["method"]: row for row in json.loads(out)}
    assert (code, [row["seeds"] for row in rows.values()]) == (2, [3, 0, 3])
    assert rows["windows"]["error"].startswith("field 'workers': windows is for one worker")
    assert "seed 1: windows: " in err
    each = json.loads(call(f"{asked} --format json --each")[1])
    assert [row["seed"] for row in each] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    mean = sum(row["makespan_s"] for row in each if row["method"] == "vllm") / 3
    assert rows["vllm"]["makespan_s"] == pytest.approx(mean)


def test_simulate_takes_what_its_python_twin_takes(made, as_json, refused):
    row = as_json("simulate i.json --policy vllm --information predicted --predictions classes")
    assert row["information"] == "predicted"
    Path("c.toml").write_text('[policy]\nname = "vllm"\ninformation = "predicted"\n')
    said = "field '--information': c.toml already says this (say it once)"
    err = refused("--information", "simulate i.json --config c.toml --information none")
    assert said in err.replace("'c.toml", "c.toml")
    twin = signature(orsched.simulate).parameters
    flags = {p.name for p in cli.get_command(None, "simulate").params}
    assert set(twin) - {"observer", "slo"} <= flags


@pytest.fixture
def page(repo_root, monkeypatch):
    monkeypatch.chdir(repo_root)
    monkeypatch.setattr(sys, "path", [str(repo_root), *sys.path])
    return (repo_root / "docs" / "compare-and-search.md").read_text()


@pytest.mark.full
def test_the_command_prints_what_the_page_shows(page, capsys):
    command, shown = re.search(r"```console\n\$ (.*?[^\\])\n(.*?)```", page, re.DOTALL).groups()
    assert command.startswith("orsched compare ")
    assert run(shlex.split(command.replace("\\\n", " "))[1:]) == 2  # windows is for one worker
    assert capsys.readouterr().out == shown


@pytest.mark.full
def test_its_python_finds_the_same(page):
    names = {}
    block = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    exec(compile(block, "compare-and-search.md", "exec"), names)
    found = names["found"]
    shown = re.search(r"^vllm +none +([0-9.]+) %", page, re.MULTILINE)
    assert found["vllm"].slo_attainment == pytest.approx(float(shown[1]) / 100)
    assert found.best().label.startswith("shortest-prompt-first")
    assert found.failed == ()
