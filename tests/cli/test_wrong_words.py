"""Words that a command does not have, names that are nearly right, and bugs."""

import pytest

import orsched
from orsched import InputError
from orsched.cli.commands import cli, run
from orsched.cli.completion import SYNONYMS
from orsched.common.errors import did_you_mean, file_hint, known_names, nearest
from tests.cli.own_policies import SOURCE

STUDY = 'instances = ["two-by-two"]\n'
FILES = {
    "own.py": SOURCE, "list.json": "[1]", "no-cost.toml": 'clients = 2\ncost = "absent.json"\n',
    "r.csv": "prompt_tokens,output_tokens\n10,20\n", "t.csv": "a,b\n1,2\n",
    "keys.toml": f'{STUDY}polices = ["fcfs"]\n', "names.toml": f'{STUDY}policies = ["fcsf"]\n',
    "generator.toml": 'instances = [{generator = "gsm8"}]\npolicies = ["fcfs"]\n',
    "requests.csv": "x", "requests.json": "x", "requests.toml": "x",
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with two instances, a plan and a run of the first, and wrong files."""
    folder = tmp_path_factory.mktemp("made")
    few = ["generate", "uniform", "--set", "requests=6", "--set", "clients=2"]
    instance = str(folder / "i.json")
    assert run([*few, "-o", instance]) == 0
    assert run([*few, "--seed", "1", "-o", str(folder / "j.json")]) == 0
    assert run(["solve", instance, "--method", "fcfs", "-o", str(folder / "plan.json")]) == 0
    assert run(["run", instance, "--worker", "virtual", "-o", str(folder / "run.json")]) == 0
    (folder / "folder").mkdir()
    text = (folder / "i.json").read_text()
    wrong = {
        "cost.json": text.replace('"affine"', '"afine"'),
        "field.json": text.replace("round_fixed_ns", "round_fix_ns"),
    }
    for name, content in {**FILES, **wrong}.items():
        (folder / name).write_text(content)
    return folder


@pytest.fixture
def call(call, made, monkeypatch):
    """Run a command in that folder; return its code, stdout and stderr."""
    monkeypatch.chdir(made)
    return call


WRONG = {
    "compare i.json --method fcfs": "compare has no option --method (did you mean --methods?",
    "simulate i.json --method vllm": "did you mean --policy?",
    "simulate i.json --methods vllm": "did you mean --policy?",
    "solve i.json --policy vllm": "did you mean --method?",
    "solve i.json --methods vllm": "did you mean --method?",
    "simulate i.json --slo_ttft 2": "did you mean --slo-ttft?",
    "compare i.json --SLO-TTFT 2": "did you mean --slo-ttft?",
    "compare i.json --slo 2": "is not a limit on a figure of a run",
    "compare i.json --tpot 2": "did you mean --slo-tpot?",
    "compare i.json --rate 20": "did you mean --arrivals?",
    "simulate i.json --replicas 4": "did you mean --workers?",
    "simulate i.json --batch-size 4": "did you mean --clients?",
    "solve i.json --timelimit 5": "did you mean --time-limit?",
    "solve i.json --time-limit 5s": "'5s' is not a number of seconds: write 5 ",
    "solve i.json --time-limit 2min": "write 120 ",
    "simulate i.json --slo-ttft 200ms": "--slo-ttft: '200ms' is not a number of seconds: write 0.2",
    "simulate i.json --slo-ttft soon": "e.g. 0.5",
    "generate uniform --requests 12": "did you mean --set requests=N?",
    "report i.json plan.json --report r.html": "did you mean --output?",
    "simulat i.json": "unknown command 'simulat' (did you mean simulate?",
    "i.json": "orsched compare i.json",
    "vllm exprt": "did you mean export?",
    "simulate": "simulate needs INSTANCE (write orsched simulate INSTANCE",
    "check i.json": "check needs SCHEDULE (write orsched check INSTANCE SCHEDULE",
    "compare i.json j.json": "one instance at a time",
    "compare i.json --methods fcfs, vllm": "--methods fcfs,vllm",
    "simulate i.json j.json": "simulate takes INSTANCE: j.json is too much",
    "simulate i.json --output": "'--output' requires an argument",
    "simulate i.json --workers 0": "0 is below 1",
    "simulate i.json --workers two": "a whole number of workers",
    "simulate nowhere.json": "nowhere.json: the file does not exist",
    "simulate folder": "folder: is a folder",
    "simulate i.json --param most": "'most' is not NAME=VALUE",
    "compare i.json --seeds 0:3": "i.json is a file",
    "compare i.json --param most=1": "--methods 'fcfs,vllm+most=1'",
    "simulate i.json --classes c.png": "neither classes with limits nor tenants",
    "simulate plan.json": "give the instance that the schedule was made for",
    "simulate run.json": "give the instance that was run",
    "check plan.json i.json": "plan.json: is a schedule, and INSTANCE comes first",
    "report plan.json i.json -o r.html": "INSTANCE comes first (write i.json plan.json)",
    "check i.json run.json": "--times measured",
    "check i.json plan.json --times measured": "leave --times out",
    "report j.json plan.json -o r.html": "another instance, 'uniform-6x2-seed0' (",
    "run plan.json --instance j.json --worker virtual": "and this is 'uniform-6x2-seed1' (",
    "capacity i.json": "no limit is given",
    "simulate i.json --arrivals poisson:20": "did you mean poisson:rate=20?",
    "simulate i.json --arrivals 20": "e.g. poisson:rate=10",
    "simulate i.json --predictions noise:0.3": "did you mean noise:sigma=0.3?",
    "solve i.json --method nothing": "field '--method': unknown method 'nothing'",
    "solve i.json --param bogus=1": "field '--param': unknown parameter 'bogus'",
    "compare uniform --seeds -1:2": "field '--seeds': -1 is not a seed: they start at 0",
    "solve i.json --objective 1.00000000001*makespan+1*jct_mean": "has too many digits",
    "solve i.json --objective 999999999999*makespan+1*jct_mean": "has too many digits",
    "simulate i.json --predictions nothing": "field '--predictions': unknown predictor",
    "simulate gsm8k": "'gsm8k' is a generator, and no instance (orsched generate gsm8k",
    "slove two-by-two": "did you mean solve?",
    "solve two-by-two --metod fcfs": "did you mean --method?",
    "solve two-by-two --format jsn": "did you mean json?",
    "data lst": "did you mean list?",
    "bound two-by-two --objective mean_jtc": "did you mean mean_jct?",
    "solve tow-by-two": "did you mean two-by-two?",
    "solve two-by-two --method hybird": "did you mean hybrid?",
    "solve two-by-two --method FCFS": "did you mean fcfs?",
    "solve two-by-two --method hybrid@predcted": "did you mean predicted?",
    "solve two-by-two --method hybrid+assigment=packing": "did you mean assignment?",
    "solve two-by-two --method hybrid --param asignment=packing": "did you mean assignment?",
    "solve two-by-two --method online+gate=wait_time": "did you mean waited_time?",
    "solve two-by-two --method windows+thread=1": "did you mean threads?",
    "simulate two-by-two --policy vlm": "did you mean vllm?",
    "simulate two-by-two --policy vllm --param dispach=prefix": "did you mean dispatch?",
    "simulate two-by-two --policy vllm --param dispatch=prefx --workers 2": "did you mean prefix?",
    "simulate two-by-two --policy vllm+mode=mixd": "did you mean mixed?",
    "simulate two-by-two --policy echo+configuration=ech": "did you mean echo?",
    "simulate two-by-two --arrivals poison:rate=2": "did you mean poisson?",
    "simulate two-by-two --arrivals poisson:rte=2": "did you mean rate?",
    "simulate two-by-two --predictions classs": "did you mean classes?",
    "compare gsm8 --seeds 0:1": "did you mean gsm8k?",
    "generate gsm8k --set client=3": "did you mean clients?",
    "generate unifrom": "did you mean uniform?",
    "generate gsm8k --set requests=3 --class interactive:tft=1 -o x.json": "did you mean ttft?",
    "generate sources --set mix=synthtic": "did you mean synthetic?",
    "convert t.csv x.json --clients 2 --from azur": "did you mean azure?",
    "info hybird": "did you mean hybrid?",
    "info gsmk8": "did you mean gsm8k?",
    "info pang-100x2": "did you mean pang-100x20?",
    "info WINDOWS": "did you mean windows?",
    "info h100-llama3-9b-sheet": "did you mean h100-llama3-8b-sheet",
    "cost --gpu h100 --model 8b --engine vlm": "did you mean vllm?",
    "cost --gpu h100 --model 8b --constant gemm_memry=1": "did you mean gemm_memory?",
    "cost --gpu h100 --model 8b --constant gemm_memory": "'gemm_memory' is not NAME=VALUE",
    "cost --gpu h100 --model 8b --constants list.json": "list.json: is not an object of objects",
    "cost --gpu h100 --model 8b --pp 33": "field '--pp': 33 is above 32",
    "library show gatt": "(orsched library list shows all; did you mean gate?",
    "library show nothing-of-it": "(orsched library list shows all)",
    "tune i.json --slo-ttft 1 --search clients=[1]": "field 'search.clients': no values of a knob",
    "tune i.json --slo-ttft 1 --search workers=null": "field 'search.workers': no values of a knob",
    "tune i.json --slo-ttft 1 --search policy=priority": "unknown knob 'policy'",
    "tune i.json --slo-ttft 1 --maximise rate --arrivals poisson:rate=1 --runs 1": "raise runs",
    "study keys.toml": "did you mean policies?",
    "study names.toml": "did you mean fcfs?",
    "study generator.toml": "did you mean gsm8k?",
    "solve cost.json": "did you mean affine?",
    "solve field.json": "did you mean round_fixed_ns?",
    "solve reqests.csv --clients 2": "did you mean requests.csv?",
    "check two-by-two requests.jso": "did you mean requests.json?",
    "study requsts.toml": "did you mean requests.toml?",
    "solve no-such-instance": "unknown shipped instance",
    "solve no/such/file.json": "no/such/file.json",
    "solve two-by-two --time-limit 0": "--time-limit",
    "solve two-by-two --seed x": "--seed: 'x' is not a valid integer (see ",
    "compare gsm8k --seeds 5:5": "holds no seed",
    "compare gsm8k --seeds a:b": "'a:b' is not A:B",
    "compare nothing --seeds 0:1": "unknown generator",
    "check two-by-two missing.json": "missing.json",
    "generate nothing": "unknown generator",
    "generate gsm8k --set clients=0": "clients",
    "convert nothing x.json --clients 1": "nothing",
    "report two-by-two missing.json": "nothing to write",
    "compare i.json --each": "field '--seeds'",
    "compare i.json --methods fcfs,vlm": "did you mean vllm?",
    "compare i.json --methods fcfs,own.py:mine": "did you mean Mine?",
    "compare i.json --methods fcfs,on.py:Mine": "did you mean own.py?",
    "compare i.json --methods fcfs,own.py": "write own.py:Mine, Idle, Many",
    "compare i.json --methods fcfs,hybrid+gait=1": "'gait'",
    "compare i.json --methods ,": "no method is named",
    "compare i.json --workers 0": "below 1",
    "compare i.json --workers nowhere.json": "nowhere.json",
    "compare i.json --arrivals poison:rate=1": "did you mean poisson?",
    "compare i.json --predictions noise": "lacks sigma",
    "compare i.json --seed -1": "below 0",
    "compare i.json --param gate=1": "vllm+gate=1",
    "solve two-by-two -o x.json --trace ./x.json": "--output writes it, too",
    "solve two-by-two --method fcfs@": "names no information",
    "solve pang-100x20 --method hybrid@predicted --information predicted": "field '--information'",
    "solve two-by-two --method online+steal=false --param steal=true": "field '--param steal'",
    "convert two-by-two x.json --clients 3": "field '--clients'",
    "convert two-by-two x.json --spread": "field '--spread'",
    "generate gsm8k --set seed=3": "(--seed)",
    "compare gsm8k --seeds 0:2 --set seed=3": "(--seeds)",
    "compare gsm8k --seeds 0:2 --time-limit nan": "field '--time-limit'",
    "generate gsm8k --set name=3": "field 'name'",
    "generate uniform --set requests=3 --set clients=2 --set prompt_tokens=3": (
        "field 'prompt_tokens'"
    ),
    "generate uniform --set requests=3 --set clients=2 --set rate=1e-12": "field 'rate'",
    "simulate two-by-two --workers 2.5": "2.5, field 'workers': no such file (give a whole number",
    "simulate two-by-two --workers ,": "',' does not name workers",
    "simulate two-by-two --workers ²": "², field 'workers': no such file (give a whole number",
    "simulate two-by-two --workers +-3": "+-3, field 'workers': no such file (give a whole number",
    "simulate two-by-two --workers list.json": "list.json: holds no worker",
    "simulate two-by-two --workers no-cost.toml": "field 'cost': cost-model file",
    "simulate two-by-two --arrivals poisson": "lacks rate",
    "simulate two-by-two --arrivals replay:rate=3": "no rate to scale",
    "simulate two-by-two --seed -1": "field '--seed'",
    "simulate two-by-two --config absent.toml": "does not exist",
    "simulate two-by-two --policy=": "unknown method ''",
    "simulate two-by-two --policy vllm --param chunks=1": "field '--param': unknown parameter",
    "simulate two-by-two --policy vllm+mode=all": "field 'parameters.mode': 'all' is unknown",
    "simulate two-by-two --policy online --param gate=x": "field 'parameters.gate'",
    "simulate two-by-two --policy hybrid@none": "field '--information'",
    "simulate two-by-two --policy vllm@none --information none": "field '--information'",
    "run two-by-two --worker virtual --policy fcsf": "did you mean fcfs",
    "run two-by-two --worker virtual --policy hybrid --param gait=1": "gait",
    "run two-by-two --worker virtual --slots 1": "at least 2",
    "run two-by-two --worker virtual --length 1": "longest request",
    "run two-by-two --worker virtual --slots 0": "slots",
    "run plan.json --worker virtual --policy fcfs": "is a schedule",
    "run plan.json --worker virtual --param a=1": "is a schedule",
    "run two-by-two --worker virtual --instance two-by-two": "is an instance",
    "run two-by-two --worker virtual -o run.txt": "suffix",
    "run two-by-two --worker virtual --resume plan.json": "was not stopped",
    "run plan.json --worker virtual -o plan.json": "would be overwritten",
    "run nowhere.json --worker virtual": "does not exist",
    "run two-by-two --worker virtual --end-of-sequence 2 -o x.json": "--instance-output",
    "run two-by-two --worker virtual --end-of-sequence 2": "yields no tokens",
    "run two-by-two --worker virtual --peaks": "torch worker",
    "cost --gpu h10 --model 8b": "'h10' is not in the catalogue (did you mean h100",
    "cost --gpu h100 --model 9b": "field '--model'",
    "cost --gpu h100": "a model or its configuration",
    "cost --gpu l4 --model 70b --tp 2": "--tp",
    "cost --gpu l4 --model 8b --constant gemm_memory=2": "field '--constant': gemm_memory",
    "cost --gpu l4 --model 8b --length 0": "--length",
    "cost --gpu l4 --model 8b -o cost.txt": "cost.txt",
    "cost --gpu h100 --model 8b --slots 3": "--worker-file",
    "cost --gpu h100 --model 8b -o w.json --worker-file w.json": "--worker-file",
    "compare r.csv --clients 2 --cost h100-8b-seet": "(did you mean h100-llama3-8b",
    "generate gsm8k --set requests=20 --cost h100-llama-8b": "field '--cost'",
    "generate gsm8k --set requests=20 --cost none.json": "none.json",
    "capacity no.json --slo-ttft 1": "no.json",
    "capacity i.json --slo-ttft 1 --policy nope": "nope",
    "capacity i.json --slo-ttft 1 --machine a=w.json": "NAME=FILE:PRICE",
    "capacity i.json --slo-ttft 1 --machine a=none.json:1": "no such file",
    "capacity i.json --slo-ttft 1 --plot p.txt": "suffix",
    "capacity i.json --slo-ttft 1 --attainment 2": "attainment",
    "capacity i.json --slo-ttft 1 --columns worker": "column 'worker' (did you mean workers",
    "bound i.json --attainment 1": "--objective bulk",
    "bound i.json --horizon 1": "--objective bulk",
    "bound i.json --slo-ttft 1": "--objective bulk",
    "bound i.json --windows 1": "--objective bulk",
    "bound i.json --time-limit -1": "field '--time-limit'",
    "bound pang-100x20 --objective jct_mean --allows chunk": "chunks, mixed, restarts",
    "bound i.json --objective bulk --allows mixed": "field '--allows'",
    "export gsm8k-llama65b": "nonzeros, more than 10,000,000 (take fewer requests",
    "export gate --max-nonzeros 10": "field '--max-nonzeros': the model would have ",
    "export gate -o gate.txt": "not a suffix of this output",
    "export gate -o missing/gate.lp": "missing",
    "export gate -o gate.lp --format mps": "the file is named lp, the format is mps",
    "export gate --model mip": "mip",
    "export gate --model latency-mip --objective=": "'' is not an objective",
    "export nothing.json": "nothing.json",
    "info zzzzzz": "unknown shipped instance 'zzzzzz'",
    "solve i.json --columns ,": "no column is named",
    "solve i.json --bounds mean_tpot": "'mean_tpot' is available (did you mean mean_ttft?",
    "compare none.csv --bounds jct": "field '--bounds': no bound on 'jct' is available",
    "pack i.json --column b": "--column",
    "pack i.json --clients 0": "--clients",
    "pack i.json --clients 2 --gap 1": "--gap",
    "pack i.json --time-limit 0": "--time-limit",
    "pack i.json -o x.txt": "suffix",
    "pack none.txt --clients 2": "none.txt",
    "solve two-by-two --records x": "'no suffix' is not a suffix of this output (name a file",
    "solve two-by-two -o nowhere/x.json": "nowhere/x.json, field '--output': the folder does not",
    "bound folder/../requests.jsn": "did you mean folder/../requests.json?",
    "solve two-by-two --param x=" + "[" * 100_000: "unknown parameter 'x'",
    "compare gsm8k --seeds 0:" + "9" * 30: "at most",
    "simulate two-by-two --workers " + "9" * 5000: "field 'workers'",
}
WRONG |= {
    f"{line} {value}": said for line, said, values in (
        ("solve two-by-two --time-limit", "--time-limit", ["-1", "nan", "x"]),
        ("solve two-by-two --seed", "seed", ["1.5"]), ("generate gsm8k", "seed", ["--seed -1"]),
        ("solve two-by-two --slo-ttft", "slo-ttft", ["nan", "-1", "1e300"]),
        ("generate gsm8k --set", "requests", ["requests=99999999999", "requests=-1"]),
        ("compare gsm8k --seeds 0:1 --set", "clients", ["clients=nan"]),
        ("generate uniform --set", "clients", ["requests=3"]),
        ("simulate two-by-two --policy", "nobody", ["nobody"]), ("solve", "/", ["/"]),
        ("solve", "field 'instance'", ["''"]),
    ) for value in values
}  # fmt: skip
WRONG |= {
    f"solve two-by-two {option} x.{suffix}": f"x.{suffix}, field '{option}': '.{suffix}' is not "
    "a suffix of this output (name a file that ends in "
    for option, suffix in (("--output", "txt"), ("--report", "pdf"), ("--gantt", "bmp"),
                           ("--usage", "html"), ("--history", "txt"), ("--trace", "csv"))
}  # fmt: skip
WRONG |= {
    f"{command} -o x.txt": "x.txt, field '--output': '.txt' is not a suffix of this output"
    for command in ("tune i.json --slo-ttft 1", "paper pang --figure 9", "gantt gate a.json",
                    "report two-by-two a.json", "validate i.json")
}  # fmt: skip
WRONG |= {
    f"{command} i.json {option} ttft_p9_s": f"field '{option}': unknown column 'ttft_p9_s' "
    "(did you mean ttft_p99_s?"
    for command in ("solve", "compare", "simulate")
    for option in ("--columns", "--sort")
}
WRONG |= {
    f"{command} none.json --objective {name}": f"field '--objective': {said}"
    for command in ("solve", "compare")
    for name, said in (
        ("jct", "'jct' is not an objective"),
        ("-1*makespan", "'-1*makespan' is not a term"),
        ("tpot_p99", "tpot_p99 is reported and compared, but no method is made for it"),
        ("0.5*slo_attainment+0.5*makespan", "slo_attainment has no place"),
    )
}
LATE = {
    "solve two-by-two --method exact+backnd=scip": "did you mean backend?",
    "solve two-by-two --method exact+backend=cpsta": "did you mean cpsat?",
    "solve two-by-two --iterations -1": "iterations",
    "solve two-by-two --iterations 0": "iterations",
    "solve two-by-two --seed " + "9" * 20: "seed",
    "solve i.json --objective slo_attainment": "--slo-ttft",
    "simulate i.json --policy hybrid --objective mean_jct": "hybrid minimises makespan",
    "solve i.json --initial plan.json --method online": "field '--initial': an initial",
    "solve i.json --seed -1 --method fcfs": "field '--seed': -1 is below 0",
    "simulate i.json --policy own:Mine --param mst=2": "'mst' (did you mean most? known: most, ",
    "simulate i.json --policy own:Mine --param mst=2 --workers 2": "field '--param': own:Mine",
}
"""Refused where the method is known, and its schedule begins."""


@pytest.mark.parametrize("line", [*WRONG, *LATE], ids=lambda line: line[:70])
def test_one_line_says_what_is_wrong_and_what_to_write(made, refused, monkeypatch, line):
    """Before anything is solved, and nothing is written."""
    if line in WRONG:
        monkeypatch.setattr("orsched.solving.solver.solve", None)
    before = sorted(made.iterdir())
    err = refused({**WRONG, **LATE}[line], line)
    assert err.count("\n") == 1
    assert err.startswith("orsched: error: ")
    assert sorted(made.iterdir()) == before


def test_what_is_far_from_all_names_gets_no_offer(refused):
    assert "did you mean" not in refused("zzzzzz", "info zzzzzz")


def test_a_schedule_of_another_instance_is_one_violation_with_both_names(call):
    code, out, err = call("check j.json plan.json")
    assert (code, err, out.count("\n")) == (1, "", 1)
    assert out.startswith("instance: the schedule is for another instance, 'uniform-6x2-seed0' (")
    assert "and this is 'uniform-6x2-seed1' (" in out
    assert "the same only with the same seed, workers, cost, arrivals and predictions" in out


@pytest.mark.parametrize("command", ["simulate", "solve --method fcfs", "compare --methods fcfs"])
def test_limits_that_look_like_milliseconds_are_noted(call, command):
    code, _, err = call(f"{command} i.json --slo-ttft 2000 --slo-tpot 50")
    assert code == 0
    assert "note: --slo-ttft 2000 is 2000 seconds; if milliseconds were meant, write 2\n" in err
    assert "note: --slo-tpot 50 is 50 seconds; if milliseconds were meant, write 0.05\n" in err
    assert "milliseconds" not in call(f"{command} i.json --slo-ttft 60 --slo-tpot 0.5")[2]
    code, _, err = call(f"{command} i.json --slo-ttft inf")
    assert (code, "milliseconds" in err) == (2, False)


def test_without_words_the_help_is_shown(call):
    code, out, err = call("")
    assert code == 2
    assert "Commands:" in out + err


def test_synonyms_lead_to_options_that_exist():
    commands = (cli.get_command(None, name) for name in cli.list_commands(None))
    known = {option for each in commands for p in each.params for option in p.opts}
    for word, options in SYNONYMS.items():
        assert f"--{word}" != f"--{options[0]}"
        for option in options:
            assert f"--{option.partition(' ')[0]}" in known, word


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


def test_files_that_are_not_there():
    for name in ("/no/such/folder/x.json", "x\0.json", "zzzzzzzzzzzz.json"):
        assert file_hint(name) == "check the path"


@pytest.mark.parametrize("way", ["neither", "option", "variable"])
def test_a_bug_has_a_code_of_its_own_asks_for_a_report_and_shows_a_traceback_on_demand(
    call, monkeypatch, way
):
    monkeypatch.setattr("orsched.files.locate.load", lambda source: 1 / 0)
    if way == "variable":
        monkeypatch.setenv("ORSCHED_DEBUG", "1")
    code, out, err = call(f"{'--debug ' * (way == 'option')}solve two-by-two")
    assert (code, out) == (70, "")
    assert "ZeroDivisionError: division by zero" in err
    assert "please report" in err
    assert ("Traceback" in err) == err.startswith("Traceback") == (way != "neither")


def test_expected_errors_keep_their_codes_with_debug(refused):
    err = refused("Traceback", "--debug solve no-such-instance")
    assert "no-such-instance" in err
    assert "please report" not in err
