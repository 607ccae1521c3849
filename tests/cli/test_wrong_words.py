"""Words and options that are not there: one line on stderr, with what was probably meant."""

from __future__ import annotations

import pytest

from orsched.cli.commands import cli, run
from orsched.cli.usage import SYNONYMS

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
def call(capsys, made, monkeypatch):
    """Run a command in that folder; return its code, stdout and stderr."""
    monkeypatch.chdir(made)
    capsys.readouterr()

    def invoke(line):
        code = run(line.split())
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return invoke


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
        ("simulate nowhere.json", "nowhere.json: no such file"),
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
        ("compare uniform --seeds -1:2", "field '--seeds': -1 is no seed: they start at 0"),
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
def test_one_line_says_what_is_wrong_and_what_to_write(call, line, named):
    code, out, err = call(line)
    assert (code, out) == (2, "")
    assert named in err
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
        option for command in cli.commands.values() for p in command.params for option in p.opts
    }
    for word, options in SYNONYMS.items():
        assert f"--{word}" != f"--{options[0]}"
        for option in options:
            assert f"--{option.partition(' ')[0]}" in known, word
