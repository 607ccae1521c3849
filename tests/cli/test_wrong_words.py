"""Words that a command does not have, names that are nearly right, and bugs."""

from __future__ import annotations

import json

import pytest

import orsched
from orsched import InputError
from orsched.cli.commands import cli, run
from orsched.cli.usage import SYNONYMS
from orsched.common.near_names import did_you_mean, file_hint, known_names, nearest

MADE = ("generate", "uniform", "--set", "requests=6", "--set", "clients=2")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with two instances, a plan and a run of the first, and a folder."""
    folder = tmp_path_factory.mktemp("made")
    instance = str(folder / "i.json")
    assert run([*MADE, "-o", instance]) == 0
    assert run([*MADE, "--seed", "1", "-o", str(folder / "j.json")]) == 0
    assert run(["solve", instance, "--method", "fcfs", "-o", str(folder / "plan.json")]) == 0
    assert run(["run", instance, "--worker", "virtual", "-o", str(folder / "run.json")]) == 0
    (folder / "folder").mkdir()
    return folder


@pytest.fixture
def call(call, made, monkeypatch):
    """Run a command in that folder; return its code, stdout and stderr."""
    monkeypatch.chdir(made)
    return call


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("compare i.json --method fcfs", "compare has no option --method (did you mean --methods?"),
        ("simulate i.json --method vllm", "did you mean --policy?"),
        ("simulate i.json --methods vllm", "did you mean --policy?"),
        ("solve i.json --policy vllm", "did you mean --method?"),
        ("solve i.json --methods vllm", "did you mean --method?"),
        ("simulate i.json --slo_ttft 2", "did you mean --slo-ttft?"),
        ("compare i.json --SLO-TTFT 2", "did you mean --slo-ttft?"),
        ("compare i.json --slo 2", "did you mean --slo-ttft?"),
        ("compare i.json --tpot 2", "did you mean --slo-tpot?"),
        ("compare i.json --rate 20", "did you mean --arrivals?"),
        ("simulate i.json --replicas 4", "did you mean --workers?"),
        ("simulate i.json --batch-size 4", "did you mean --clients?"),
        ("solve i.json --timelimit 5", "did you mean --time-limit?"),
        ("solve i.json --time-limit 5s", "'5s' is not a number of seconds: write 5 "),
        ("solve i.json --time-limit 2min", "write 120 "),
        (
            "simulate i.json --slo-ttft 200ms",
            "--slo-ttft: '200ms' is not a number of seconds: write 0.2",
        ),
        ("simulate i.json --slo-ttft soon", "e.g. 0.5"),
        ("generate uniform --requests 12", "did you mean --set requests=N?"),
        ("report i.json plan.json --report r.html", "did you mean --output?"),
        ("compare i.json --format jsn", "did you mean json?"),
        ("simulat i.json", "there is no command 'simulat' (did you mean simulate?"),
        ("i.json", "orsched compare i.json"),
        ("vllm exprt", "did you mean export?"),
        ("simulate", "simulate needs INSTANCE (write orsched simulate INSTANCE"),
        ("check i.json", "check needs SCHEDULE (write orsched check INSTANCE SCHEDULE"),
        ("compare i.json j.json", "one instance at a time"),
        ("compare i.json --methods fcfs, vllm", "--methods fcfs,vllm"),
        ("simulate i.json j.json", "simulate takes INSTANCE: j.json is too much"),
        ("simulate i.json --output", "'--output' requires an argument"),
        ("simulate i.json --workers 0", "0 is below 1"),
        ("simulate i.json --workers two", "a whole number of workers"),
        ("simulate nowhere.json", "nowhere.json: there is no such file"),
        ("simulate folder", "folder: is a folder"),
        ("simulate i.json --policy vlm", "did you mean vllm?"),
        ("simulate i.json --param most", "'most' is not NAME=VALUE"),
        ("generate unform", "did you mean uniform?"),
        ("compare i.json --seeds 0:3", "i.json is a file"),
        ("compare i.json --param most=1", "--methods 'fcfs,vllm+most=1'"),
        ("simulate i.json --classes c.png", "neither classes with limits nor tenants"),
        ("simulate plan.json", "give the instance that the schedule was made for"),
        ("simulate run.json", "give the instance that was run"),
        ("check plan.json i.json", "plan.json: is a schedule, and INSTANCE comes first"),
        ("report plan.json i.json -o r.html", "INSTANCE comes first (write i.json plan.json)"),
        ("check i.json run.json", "--times measured"),
        ("check i.json plan.json --times measured", "leave --times out"),
        ("report j.json plan.json -o r.html", "another instance, 'uniform-6x2-seed0' ("),
        ("run plan.json --instance j.json --worker virtual", "and this is 'uniform-6x2-seed1' ("),
        ("capacity i.json", "no limit is given"),
        ("simulate i.json --arrivals poisson:20", "did you mean poisson:rate=20?"),
        ("simulate i.json --arrivals 20", "e.g. poisson:rate=10"),
        ("simulate i.json --predictions noise:0.3", "did you mean noise:sigma=0.3?"),
        ("solve i.json --initial plan.json --method online", "field '--initial': an initial"),
        ("solve i.json --method nothing", "field '--method': unknown method 'nothing'"),
        ("solve i.json --param bogus=1", "field '--param': there is no parameter 'bogus'"),
        ("compare uniform --seeds -1:2", "field '--seeds': -1 is not a seed: they start at 0"),
        ("solve i.json --objective 1.00000000001*makespan+1*jct_mean", "has too many digits"),
        ("solve i.json --objective 999999999999*makespan+1*jct_mean", "has too many digits"),
        ("solve i.json --seed -1 --method fcfs", "field '--seed': -1 is below 0"),
        ("frontier i.json --points -1", "field '--points': -1 is below 0"),
        ("frontier i.json --first nothing", "field '--first': 'nothing' is not an objective"),
        ("frontier i.json --second slo_attainment", "field '--second': slo_attainment without"),
        ("simulate i.json --predictions nothing", "field '--predictions': there is no"),
        ("simulate gsm8k", "'gsm8k' is a generator, and no instance (orsched generate gsm8k"),
    ],
)
def test_one_line_says_what_is_wrong_and_what_to_write(refused, line, named):
    err = refused(named, line)
    assert err.count("\n") == 1
    assert err.startswith("orsched: error: ")
    assert "Traceback" not in err


def test_a_schedule_of_another_instance_is_one_violation_with_both_names(call):
    code, out, err = call("check j.json plan.json")
    assert (code, err) == (1, "")
    assert out.count("\n") == 1
    assert out.startswith("instance: the schedule is for another instance, 'uniform-6x2-seed0' (")
    assert "and this is 'uniform-6x2-seed1' (" in out
    assert "the same only with the same seed, workers, cost, arrivals and predictions" in out


def test_limits_that_look_like_milliseconds_are_noted(call):
    for command in (
        "simulate i.json",
        "solve i.json --method fcfs",
        "compare i.json --methods fcfs",
    ):
        code, _, err = call(f"{command} --slo-ttft 2000 --slo-tpot 50")
        assert code == 0
        assert "note: --slo-ttft 2000 is 2000 seconds; if milliseconds were meant, write 2\n" in err
        assert "note: --slo-tpot 50 is 50 seconds; if milliseconds were meant, write 0.05\n" in err
    assert "milliseconds" not in call("simulate i.json --slo-ttft 60 --slo-tpot 0.5")[2]
    code, _, err = call("simulate i.json --slo-ttft inf")
    assert code == 2
    assert "milliseconds" not in err


def test_without_words_the_help_is_shown(call):
    code, out, err = call("")
    assert code == 2
    assert "Commands:" in out + err


def test_synonyms_lead_to_options_that_exist():
    known = {
        option
        for name in cli.list_commands(None)
        for p in cli.get_command(None, name).params
        for option in p.opts
    }
    for word, options in SYNONYMS.items():
        assert f"--{word}" != f"--{options[0]}"
        for option in options:
            assert f"--{option.partition(' ')[0]}" in known, word


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
def test_files_that_are_nearly_there(tmp_path, refused, command):
    for suffix in ("csv", "json", "toml"):
        (tmp_path / f"requests.{suffix}").write_text("x")
    refused(
        f"did you mean {tmp_path}/requests.",
        *[part.replace("{}", str(tmp_path)) for part in command.split()],
    )


def test_files_that_are_not_there():
    assert file_hint("/no/such/folder/x.json") == "check the path"
    assert file_hint("x\0.json") == "check the path"
    assert file_hint("zzzzzzzzzzzz.json") == "check the path"


@pytest.fixture
def a_bug(monkeypatch):
    """Loading divides by zero."""
    monkeypatch.setattr("orsched.files.locate.load", lambda source: 1 / 0)


def test_a_bug_has_a_code_of_its_own_and_asks_for_a_report(a_bug, capsys):
    assert run(["solve", "two-by-two"]) == 70
    out, err = capsys.readouterr()
    assert out == ""
    assert "ZeroDivisionError: division by zero" in err
    assert "please report" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("way", ["option", "variable"])
def test_the_traceback_is_there_on_demand(a_bug, capsys, monkeypatch, way):
    arguments = ["solve", "two-by-two"]
    if way == "option":
        arguments.insert(0, "--debug")
    else:
        monkeypatch.setenv("ORSCHED_DEBUG", "1")
    assert run(arguments) == 70
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert "please report" in err


def test_expected_errors_keep_their_codes_with_debug(refused):
    err = refused("Traceback", "--debug solve no-such-instance")
    assert "no-such-instance" in err
    assert "please report" not in err
