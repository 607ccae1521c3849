"""Requests straight into the commands that take an INSTANCE; each format of each command."""

import csv
import io
import json
import random
from pathlib import Path

import click
import pytest

import orsched
from orsched.calibration.step_files import write_measurements
from orsched.cli.commands import cli
from orsched.common.errors import InputError
from orsched.costs import AffineCost
from orsched.data.workers import Worker
from orsched.files import load_instance, save_cost
from orsched.prediction import make_corpus
from orsched.prediction.data import write_labelled_prompts
from tests.cli.test_calibrate_command import measured
from tests.in_order import in_order


@pytest.fixture(autouse=True)
def mine(tmp_path):
    """Write requests as a new user has them: 500 rows, lengths and arrivals in seconds."""
    dice, now, lines = random.Random(5), 0.0, ["prompt_tokens,output_tokens,arrival_s"]
    for _ in range(500):
        now += dice.expovariate(10)
        lines.append(f"{dice.randint(20, 2000)},{dice.randint(1, 400)},{now:.3f}")
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def six(mine):
    """Six requests at once, whose answers are long."""
    rows = "".join(f"r{row},0,8,90\n" for row in range(6))
    Path("six.csv").write_text("id,arrival_s,prompt_tokens,output_tokens\n" + rows)


def test_five_hundred_rows_are_compared_in_one_command(call):
    code, out, err = call("compare mine.csv --clients 64 --methods fcfs,vllm --format json")
    assert code == 0
    assert [row["method"] for row in json.loads(out)] == ["fcfs", "vllm"]
    assert all(row["checked"] for row in json.loads(out))
    assert "mine.csv, format requests: 500 of 500 requests" in err
    assert "LLaMA-65B on eight Ascend devices (--cost)" in err


def test_every_command_makes_the_same_instance(call, done, as_json):
    save_cost(in_order(AffineCost, 1_000_000, 50_000, 8_000_000, 30_000), "cost.json")
    said = (
        "--clients 32 --cost cost.json --prefill-cap 4096 --memory-blocks 900 --block-tokens 64 "
        "--allocation whole --output-limit 400 --first-token decode"
    )
    done(f"convert mine.csv i.json {said}")
    instance = load_instance("i.json")
    assert (instance.worker.clients, instance.worker.prefill_cap_tokens) == (32, 4096)
    assert instance.worker.memory.to_dict()["block_tokens"] == 64
    code, out, err = call(f"info mine.csv {said} --format json")
    assert (code, json.loads(out)["sha256"], "assumed" in err) == (0, instance.sha256, False)
    done(f"solve mine.csv {said} --method fcfs -o s.json")
    done(f"check mine.csv s.json {said}")
    done("check i.json s.json")
    done(f"report mine.csv s.json {said} --records r.csv")
    assert as_json(f"bound mine.csv {said}") == as_json("bound i.json")


MACHINE = "the KV cache of the machine, 26,674 blocks of 16 tokens (--memory-blocks)"


@pytest.mark.parametrize(
    ("said", "memory", "words"),
    [
        ({}, None, "memory without limit (--memory-blocks)"),
        ({"memory_blocks": 900}, (900, 128, "paged"),
         "blocks of 128 tokens (--block-tokens), paged allocation (--allocation)"),
        ({"memory_blocks": 900, "block_tokens": 16}, (900, 16, "paged"), "paged allocation (--al"),
        ({"memory_blocks": 900, "allocation": "whole"}, (900, 128, "whole"),
         "an output limit of 399 tokens, the longest answer (--output-limit)"),
        ({"memory_blocks": 900, "prefix_cache": "lru"}, (900, 128, "paged"), "(--block-tokens), p"),
        ({"cost": "h100-8b-sheet"}, (26_674, 16, "paged"), f"{MACHINE}, paged allocation (--al"),
        ({"cost": "h100-8b-sheet", "block_tokens": 512}, (833, 512, "paged"), "833 blocks of 512"),
        ({"cost": "h100-8b-sheet", "allocation": "whole"}, (26_674, 16, "whole"), MACHINE),
        ({"cost": "h100-8b-sheet", "memory_blocks": 70}, (70, 16, "paged"), "blocks of 16 tokens"),
        ({"cost": "h100-8b-sheet", "memory_blocks": "unlimited"}, None, "since not said: prefill"),
        ({"cost": "pang-llama65b-ascend"}, (1024, 128, "paged"), "1,024 blocks of 128 tokens"),
    ],
)  # fmt: skip
def test_memory_that_is_not_said_is_assumed_in_words(call, mine, said, memory, words):
    """The same by options and in Python: paged unless said otherwise, and the machine's own."""
    given = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in said.items())
    code, out, err = call(f"info mine.csv --clients 8 {given} --format json")
    assert (code, words in err) == (0, True)
    instance = orsched.load(mine, clients=8, **said)
    assert json.loads(out)["sha256"] == instance.sha256
    found = instance.worker.memory
    assert (found and (found.blocks, found.block_tokens, found.allocation)) == memory


@pytest.mark.parametrize(("said", "field"), [
    ({"allocation": "paged"}, "allocation"),
    ({"memory_blocks": "unlimited", "block_tokens": 4}, "block_tokens"),
    ({"memory_blocks": "many"}, "memory_blocks"),
    ({"memory_blocks": 5, "allocation": "pages"}, "allocation"),
    ({"memory_blocks": 5, "allocation": "whole", "prefix_cache": "lru"}, "prefix_cache"),
    ({"memory_blocks": 5, "block_tokens": 0}, "block_tokens"),
])  # fmt: skip
def test_memory_that_makes_no_sense_is_refused(mine, said, field):
    with pytest.raises(InputError) as caught:
        orsched.load(mine, clients=8, **said)
    assert caught.value.field == field


def test_every_command_pages_unless_told_otherwise(six, done, as_json, refused):
    """Command line, study, capacity and split page as vLLM does: none sets ``whole`` in silence."""
    given = "six.csv --clients 6 --memory-blocks 30 --block-tokens 4"
    simulate = f"simulate {given} --policy"
    unsaid, paged, whole = (
        as_json(f"{simulate} vllm {allocation}")["makespan_s"]
        for allocation in ("", "--allocation paged", "--allocation whole")
    )
    assert unsaid == paged < 0.7 * whole
    entry = 'name = "six.csv", clients = 6, memory_blocks = 30, block_tokens = 4'
    Path("s.toml").write_text(
        f'instances = [{{{entry}, allocation = ["paged", "whole"]}}, {{{entry}}}]\n'
        'policies = ["vllm"]\n'
    )
    found = [row["makespan_s"] for row in as_json("study s.toml --jobs 1")]
    assert found == [unsaid, whole]  # the unsaid one is the first
    split = f"{simulate} disaggregated --workers 1P1D:free"
    done(split)
    refused("set the allocation to paged", f"{split} --allocation whole")
    capacity = f"capacity {given} --slo-ttft 0.5 --slo-tpot 1 --jobs 1 --policy vllm"
    counts = [as_json(f"{capacity} {more}")["workers"] for more in ("", "--allocation whole")]
    assert counts[0] < counts[1]


def test_a_mixture_on_paged_memory_is_said(six, call):
    given = "compare six.csv --clients 6 --block-tokens 4 --methods vllm,fcfs --memory-blocks"
    said = "set aside prompt and answer (or output limit) at admission although memory is paged"
    assert call(f"{given} 30")[2].count(said) == 1
    assert said not in call(f"{given} 150")[2]  # never limits
    assert said not in call(f"{given} 30 --allocation whole")[2]


def test_workers_multiply(as_json):
    two = "--clients 32 --workers 2"
    assert as_json(f"info mine.csv {two}")["workers"] == 2
    solved = as_json(f"solve mine.csv {two} --method fcfs")
    assert solved["makespan_s"] == as_json(f"simulate mine.csv {two}")["makespan_s"]
    assert as_json("info pang-100x20 --workers 2")["workers"] == 2


def test_worker_files_stand_in_for_the_options(call, done, refused):
    Path("w.json").write_text(json.dumps(Worker(7).to_dict()))
    code, out, err = call("info mine.csv --workers w.json,w.json --format json")
    assert (code, json.loads(out)["clients"], "--cost" in err) == (0, 14, False)
    done("simulate mine.csv --workers w.json,w.json")
    refused("'--clients': the workers are given", "info mine.csv --workers w.json --clients 3")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("mine.csv", "field '--clients': requests have no worker of their own (say how many "
                     "requests it serves at once, --clients 64"),
        ("mine.csv --clients 0", "field '--clients': 0 is below 1"),
        ("mine.csv --clients 4 --prefill-cap 0", "'--prefill-cap': 0 is below 1"),
        ("mine.csv --clients 4 --output-limit 0", "'--output-limit': 0 is below 1"),
        ("mine.csv --clients 4 --memory-blocks 5 --block-tokens 0",
         "'--block-tokens': 0 is below 1"),
        ("mine.csv --clients 4 --cost h100-8b-sheet --block-tokens 500000",
         "'--block-tokens': a block of 500,000 tokens is larger than the machine's KV cache"),
        ("mine.csv --clients 4 --block-tokens 16", "'--block-tokens': needs a number of"),
        ("mine.csv --clients 4 --cost no.json", "no.json: the file does not exist"),
        ("mine.csv --clients 4 --workers 0", "workers"),
        ("none.csv", "none.csv: the file does not exist"),
        ("pang-100x20 --clients 3", "'--clients': does not apply: a native instance has its"),
        ("pang-100x20 --cost c.json", "c.json: the file does not exist"),
        ("pang-100x20 --drop-empty", "'--drop-empty': does not apply"),
    ],
)  # fmt: skip
def test_what_is_missing_or_idle_is_named_with_its_option(refused, line, says):
    for command in ("info", "compare", "solve", "bound"):
        if command != "compare" or "--workers" not in line:
            refused(says, f"{command} {line}")


@pytest.mark.parametrize(
    ("said", "machine"), [("c.json", "affine"), ("h100-llama3-8b-sheet", "H100")]
)
@pytest.mark.parametrize("command", ["compare --methods fcfs", "solve", "simulate"])
def test_a_shipped_instance_runs_on_another_cost_model(call, command, said, machine):
    save_cost(AffineCost(prefill_fixed_ns=50_000_000), "c.json")
    code, _, err = call(f"{command} two-by-two --cost {said}")
    assert (code, machine in err) == (0, True), err
    assert "--cost replaces the cost model of the instance" in err


def test_load_takes_the_same_in_python(mine):
    instance = orsched.load(mine, clients=16, workers=3, memory_blocks=500, prefix_cache="lru")
    assert [worker.clients for worker in instance.workers] == [16] * 3
    assert instance.workers[2].memory.prefix_cache.eviction == "lru"
    assert instance.first_token == "prefill"
    assert orsched.load(mine, workers=(Worker(5), Worker(6))).workers[1].clients == 6
    cost = AffineCost(prefill_fixed_ns=1)
    assert orsched.load(mine, clients=2, cost=cost).worker.cost == cost
    with pytest.raises(InputError, match="clients=64"):
        orsched.load(mine)
    with pytest.raises(InputError, match="field 'clients': does not apply"):
        orsched.load("pang-100x20", clients=3)
    replaced = orsched.load("two-by-two", cost="h100-llama3-8b-sheet")
    assert replaced.worker.cost == orsched.load(mine, clients=1, cost="h100-8b-sheet").worker.cost
    assert replaced.worker.clients == orsched.load("two-by-two").worker.clients
    named = orsched.load("pang-100x20", classes=["interactive:ttft=1"])
    assert named.classes[0].ttft_ns == 10**9


def test_standard_input_is_a_file(done, as_json, refused, mine, monkeypatch):
    def pipe(raw):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))

    pipe(mine.read_bytes())
    assert as_json("info - --clients 3")["requests"] == 500
    pipe(b"prompt_tokens,output_tokens\n1,x\n")
    refused("standard input, row 2, field 'output_tokens'", "info - --clients 3")
    done("convert two-by-two i.json")
    pipe(Path("i.json").read_bytes())
    assert as_json("info -")["name"] == "two-by-two"


def of_a_study(entry):
    Path("s.toml").write_text(f'instances = [{{name = {entry}}}]\npolicies = ["fcfs"]\n')
    return "study s.toml --jobs 1"


def test_studies_take_requests_with_a_grid_of_workers(call, as_json, caplog):
    study = of_a_study('"mine.csv", clients = [8, 16], sample = 20')
    names = [row["instance"] for row in as_json(study)]
    assert names == ["mine clients=8", "mine clients=16"]
    words = "mine.csv: assumed of the worker, since not said: the cost model of LLaMA-65B"
    assert caplog.text.count(words) == 1
    assert "0 run now" in call(study)[2]


@pytest.mark.parametrize(("entry", "says"), [
    ('"mine.csv"', "field 'instances.clients': requests have no worker of their own (write {na"),
    ('"mine.csv", clients = 0', "instances.clients"),
    ('"mine.csv", clints = 3', "clints"),
    ('"mine.csv", clients = 3, cost = "no.json"', "no.json: the file does not exist"),
    ('"two-by-two", clients = 3', "does not apply: a native instance has its own"),
])  # fmt: skip
def test_wrong_requests_of_a_study_are_named(refused, entry, says):
    refused(says, of_a_study(entry))


def test_wrong_columns_come_with_the_renaming(refused):
    Path("r.csv").write_text("ctx,completion_tokens\n5,3\n")
    err = refused("r.csv, row 1, field 'prompt_tokens'", "compare r.csv --clients 4")
    assert 'rename the column "ctx" to "prompt_tokens"' in err


def test_classes_without_a_request_are_named_with_the_remedy(call):
    given = "generate gsm8k --set requests=20 --set clients=2 -o g.json"
    code, _, err = call(f"{given} --class interactive:ttft=1")
    assert code == 0
    assert "no request is in the class interactive: all 20 are in batch" in err
    assert "(--class batch:ttft=1 limits those" in err
    assert "note" not in call(f"{given} --class batch:ttft=1")[2]
    spread = "simulate g.json --class interactive:ttft=1 --arrivals poisson:rate=5"
    assert "no request is in the class" not in call(spread)[2]


@pytest.mark.parametrize(
    "line", ["predict apply m.json mine.csv p.jsonl o.json", "run mine.csv --model tiny-sim"]
)
def test_commands_without_a_worker_name_the_conversion(refused, line):
    """The remedy names what the command takes, and no option that it does not have."""
    assert "field '--clients'" not in refused("orsched convert FILE case.json --clients 64", line)


STUDY = 'instances = ["two-by-two"]\npolicies = ["fcfs"]\nbounds = ["makespan"]\nseeds = [0]\n'
RESULT = {
    "completed": 2, "input_lens": [5, 7], "output_lens": [3, 2],
    "ttfts": [0.1, 0.2], "itls": [[0.01, 0.01], [0.02]], "start_times": [0.0, 0.1],
    "errors": ["", ""], "duration": 1.0, "total_input_tokens": 12, "total_output_tokens": 5,
    "latencies": [0.12, 0.22],
}  # fmt: skip
SILICON = Path(__file__).parents[1] / "benchmarks" / "validation" / "silicon" / "runs.csv"
RUNS = {
    "batch": ["two-by-two"], "offload": ["two-by-two --workers 2"],
    "gantt": ["two-by-two s.json --slack -o g.svg"],
    "bound": ["two-by-two", "two-by-two --objective jct_mean"],
    "bound --certificate": ["two-by-two"], "calibrate": ["--from steps.csv -o cost.json"],
    "capacity": ["two-by-two --slo-ttft 1 --jobs 1"], "check": ["two-by-two s.json"],
    "compare": ["two-by-two", "uniform --set requests=4 --set clients=2 --seeds 0:2"],
    "cost": ["--gpu h100 --model 8b"], "data list": [""], "data verify": ["--directory ."],
    "paper": ["pang --list", "pang --table 3"],
    "library list": ["--family toy"], "library show": ["gate"], "library get": ["gate -o g.json"],
    "library verify": ["gate"], "library table": ["--family toy"],
    "library submit": ["s.json --date 2026-11-26 --dry-run"],
    "info": ["", "fcfs", "gsm8k", "affine", "machines", "two-by-two"], "pack": ["two-by-two"],
    "predict evaluate": ["m.json math.jsonl"],
    "predict train": ["math.jsonl -o m2.json --kind constant"],
    "run": ["two-by-two --worker virtual"], "simulate": ["two-by-two --policy vllm"],
    "solve": ["two-by-two", "gate --method exact"], "study": ["s.toml --jobs 1"],
    "tune": ["two-by-two --slo-ttft 1 --jobs 1 --search clients=2 --runs 4"],
    "validate": [f"{SILICON} --gpu h200"], "vllm results": ["result.json"],
}  # fmt: skip
ELSEWHERE = {"predict proxy", "export"}
"""Trains a network and prints rows as ``predict train``; has formats of files of its own."""

LISTS = ["info ", "info fcfs", "info gsm8k", "info affine", "bound --certificate two-by-two"]
"""What has no CSV."""


def commands():
    """Yield the commands that take ``--format``, groups flattened."""
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        group = isinstance(command, click.Group)
        for part in command.list_commands(context) if group else [None]:
            found = command if part is None else command.get_command(context, part)
            if any("--format" in option.opts for option in found.params):
                yield name if part is None else f"{name} {part}"


def test_every_command_with_formats_is_here():
    assert {name.removesuffix(" --certificate") for name in RUNS} | ELSEWHERE == set(commands())


@pytest.mark.parametrize("style", ["json", "csv"])
@pytest.mark.parametrize(
    "line", [f"{name} {words}" for name, runs in RUNS.items() for words in runs]
)
def test_a_format_is_right_or_refused(call, done, line, style):
    write_labelled_prompts(make_corpus("math", 60, 3), "math.jsonl")
    write_measurements(
        measured(lambda prompts: 9000 + 90 * sum(prompts), lambda n: 7000), "steps.csv"
    )
    Path("s.toml").write_text(STUDY)
    Path("result.json").write_text(json.dumps(RESULT))
    done("solve two-by-two --method fcfs -o s.json")
    done("predict train math.jsonl -o m.json --kind constant")
    code, out, err = call(f"{line} --format {style}")
    if style == "csv" and line in LISTS:
        assert (code, out) == (2, "")
        assert "field '--format'" in err
        assert "has no CSV (choose table or json)" in err
        return
    assert code in (0, 1), err
    if style == "json":
        json.loads(out)
        return
    rows = list(csv.reader(io.StringIO(out)))
    assert len({len(row) for row in rows}) <= 1, out
    assert not any(cell.startswith(("{'", "['", "(")) for row in rows for cell in row), out
