"""An unknown name is answered with the nearest known one, wherever names are given."""

from __future__ import annotations

import json

import pytest

import orsched
from orsched import InputError
from orsched.cli.commands import run
from orsched.common.near_names import did_you_mean, file_hint, known_names, nearest


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("slove two-by-two", "solve"),
        ("solve two-by-two --metod fcfs", "--method"),
        ("solve two-by-two --format jsn", "json"),
        ("data lst", "list"),
        ("bound two-by-two --objective mean_jtc", "mean_jct"),
        ("solve tow-by-two", "two-by-two"),
        ("solve two-by-two --method hybird", "hybrid"),
        ("solve two-by-two --method FCFS", "fcfs"),
        ("solve two-by-two --method hybrid@predcted", "predicted"),
        ("solve two-by-two --method hybrid+assigment=packing", "assignment"),
        ("solve two-by-two --method hybrid --param asignment=packing", "assignment"),
        ("solve two-by-two --method online+gate=wait_time", "waited_time"),
        ("solve two-by-two --method windows+thread=1", "threads"),
        ("solve two-by-two --method exact+backnd=scip", "backend"),
        ("solve two-by-two --method exact+backend=cpsta", "cpsat"),
        ("simulate two-by-two --policy vlm", "vllm"),
        ("simulate two-by-two --policy vllm --param dispach=prefix", "dispatch"),
        ("simulate two-by-two --policy vllm --param dispatch=prefx --workers 2", "prefix"),
        ("simulate two-by-two --policy vllm+mode=mixd", "mixed"),
        ("simulate two-by-two --policy echo+configuration=ech", "echo"),
        ("simulate two-by-two --arrivals poison:rate=2", "poisson"),
        ("simulate two-by-two --arrivals poisson:rte=2", "rate"),
        ("simulate two-by-two --predictions classs", "classes"),
        ("compare gsm8 --seeds 0:1", "gsm8k"),
        ("generate gsm8k --set client=3", "clients"),
        ("generate unifrom", "uniform"),
        ("generate gsm8k --set requests=3 --class interactive:tft=1 -o {}/x.json", "ttft"),
        ("generate sources --set mix=synthtic", "synthetic"),
        ("convert {}/t.csv {}/x.json --clients 2 --from azur", "azure"),
        ("info hybird", "hybrid"),
        ("study {}/keys.toml", "policies"),
        ("study {}/names.toml", "fcfs"),
        ("study {}/generator.toml", "gsm8k"),
        ("solve {}/cost.json", "affine"),
        ("solve {}/field.json", "round_fixed_ns"),
    ],
)  # fmt: skip
def test_the_nearest_name_is_offered(tmp_path, capsys, command, meant):
    instances = 'instances = ["two-by-two"]\n'
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    (tmp_path / "keys.toml").write_text(instances + 'polices = ["fcfs"]\n')
    (tmp_path / "names.toml").write_text(instances + 'policies = ["fcsf"]\n')
    (tmp_path / "generator.toml").write_text(
        'instances = [{generator = "gsm8"}]\npolicies = ["fcfs"]\n'
    )
    orsched.save_instance(orsched.load("two-by-two"), tmp_path / "i.json")
    document = json.loads((tmp_path / "i.json").read_text())
    cost = document["workers"][0]["cost"]
    wrong = {**cost, "model": "afine"}
    (tmp_path / "cost.json").write_text(_with_cost(document, wrong))
    field = {("round_fix_ns" if key == "round_fixed_ns" else key): v for key, v in cost.items()}
    (tmp_path / "field.json").write_text(_with_cost(document, field))
    assert run([part.replace("{}", str(tmp_path)) for part in command.split()]) == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err.lower().replace("'", "").replace(
        "(did you mean one of: ", "did you mean "
    ).replace(", --", "? --")


def _with_cost(document, cost):
    worker = {**document["workers"][0], "cost": cost}
    return json.dumps({**document, "workers": [worker]})


def test_names_in_python():
    with pytest.raises(InputError, match="did you mean interactive") as caught:
        orsched.load("two-by-two").class_code("interactiv")
    assert caught.value.field == "class"
    with pytest.raises(AttributeError, match="did you mean 'solve'"):
        orsched.slove  # noqa: B018


def test_what_is_near():
    known = ["fcfs", "hybrid", "max_num_batched_tokens", "two-by-two"]
    assert nearest("hybird", known) == ["hybrid"]
    assert nearest("max-num", known) == ["max_num_batched_tokens"]  # how it begins
    assert nearest("Two_By_Two", known) == ["two-by-two"]
    assert nearest("zzz", known) == nearest("", known) == nearest("x", []) == []
    assert nearest("x" * 10**6, known) == []
    assert did_you_mean("zzz", known) == ""
    assert known_names("fcsf", ["fcfs", "sjf"]) == "did you mean fcfs? known: fcfs, sjf"
    assert known_names("x", [], none="it has none") == "it has none"


@pytest.mark.parametrize(
    "command",
    [
        "solve {}/reqests.csv --clients 2",
        "bound {}/requests.jsn",
        "check two-by-two {}/requests.jso",
        "study {}/requsts.toml",
    ],
)
def test_files_that_are_nearly_there(tmp_path, capsys, command):
    for suffix in ("csv", "json", "toml"):
        (tmp_path / f"requests.{suffix}").write_text("x")
    assert run([part.replace("{}", str(tmp_path)) for part in command.split()]) == 2
    assert f"did you mean {tmp_path}/requests." in capsys.readouterr().err


def test_files_that_are_not_there():
    assert file_hint("/no/such/folder/x.json") == "check the path"
    assert file_hint("x\0.json") == "check the path"
    assert file_hint("zzzzzzzzzzzz.json") == "check the path"
