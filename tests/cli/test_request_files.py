"""Requests straight into the commands that take an INSTANCE; each format of each command."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path

import click
import pytest

import orsched
from orsched.calibration.measurements import Measurements
from orsched.calibration.step_files import write_measurements
from orsched.cli.commands import cli
from orsched.common.errors import InputError
from orsched.costs import AffineCost
from orsched.data.workers import Worker
from orsched.files import load_instance, save_cost
from orsched.prediction import make_corpus
from orsched.prediction.corpus import write_labelled_prompts
from tests.in_order import in_order

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,374,44\n"
    "2023-11-16 18:15:50.9951690,396,109\n"
)


@pytest.fixture
def call(call, tmp_path, monkeypatch):
    """Run the command line in an empty folder; return (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    return call


@pytest.fixture
def mine(tmp_path):
    """Write requests as a new user has them: 500 rows, lengths and arrivals in seconds."""
    dice, now, lines = random.Random(5), 0.0, ["prompt_tokens,output_tokens,arrival_s"]
    for _ in range(500):
        now += dice.expovariate(10)
        lines.append(f"{dice.randint(20, 2000)},{dice.randint(1, 400)},{now:.3f}")
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_five_hundred_rows_are_compared_in_one_command(call, mine):
    methods = ("--methods", "fcfs,vllm", "--format", "json")
    code, out, err = call("compare mine.csv --clients 64", *methods)
    assert code == 0
    assert [row["method"] for row in json.loads(out)] == ["fcfs", "vllm"]
    assert all(row["checked"] for row in json.loads(out))
    assert "mine.csv, format requests: 500 of 500 requests" in err
    assert "LLaMA-65B on eight Ascend devices (--cost)" in err


def test_every_command_makes_the_same_instance(call, mine, tmp_path):
    save_cost(in_order(AffineCost, 1_000_000, 50_000, 8_000_000, 30_000), tmp_path / "cost.json")
    said = ("--clients", 32, "--cost", "cost.json", "--prefill-cap", 4096, "--memory-blocks", 900,
            "--block-tokens", 64, "--allocation", "whole", "--output-limit", 400,
            "--first-token", "decode")  # fmt: skip
    assert call("convert mine.csv i.json", *said)[0] == 0
    instance = load_instance(tmp_path / "i.json")
    assert (instance.worker.clients, instance.worker.prefill_cap_tokens) == (32, 4096)
    assert instance.worker.memory.to_dict()["block_tokens"] == 64
    code, out, err = call("info mine.csv", *said, "--format", "json")
    assert (code, json.loads(out)["sha256"]) == (0, instance.sha256)
    assert "assumed" not in err
    assert call("solve mine.csv", *said, "--method", "fcfs", "-o", "s.json")[0] == 0
    assert call("check mine.csv s.json", *said)[0] == 0
    assert call("check i.json s.json")[0] == 0
    assert call("report mine.csv s.json", *said, "--records", "r.csv")[0] == 0
    bounds = [call("bound", source, *more, "--format", "json")[1]
              for source, more in (("mine.csv", said), ("i.json", ()))]  # fmt: skip
    assert bounds[0] == bounds[1] != ""


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
    flags = {"memory_blocks": "--memory-blocks", "block_tokens": "--block-tokens",
             "allocation": "--allocation", "prefix_cache": "--prefix-cache",
             "cost": "--cost"}  # fmt: skip
    given = [part for name, value in said.items() for part in (flags[name], value)]
    code, out, err = call("info mine.csv --clients 8", *given, "--format", "json")
    assert code == 0
    assert words in err
    instance = orsched.load(mine, clients=8, **said)
    assert json.loads(out)["sha256"] == instance.sha256
    found = instance.worker.memory
    assert (found and (found.blocks, found.block_tokens, found.allocation)) == memory


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"allocation": "paged"}, "allocation"),
        ({"memory_blocks": "unlimited", "block_tokens": 4}, "block_tokens"),
        ({"memory_blocks": "many"}, "memory_blocks"),
        ({"memory_blocks": 5, "allocation": "pages"}, "allocation"),
        ({"memory_blocks": 5, "allocation": "whole", "prefix_cache": "lru"}, "prefix_cache"),
        ({"memory_blocks": 5, "block_tokens": 0}, "block_tokens"),
    ],
)
def test_memory_that_makes_no_sense_is_refused(mine, said, field):
    with pytest.raises(InputError) as caught:
        orsched.load(mine, clients=8, **said)
    assert caught.value.field == field


def test_every_command_pages_unless_told_otherwise(call, refused, tmp_path):
    """Command line, study, capacity and split page as vLLM does: none sets ``whole`` in silence."""
    rows = "".join(f"r{row},0,8,90\n" for row in range(6))
    (tmp_path / "six.csv").write_text("id,arrival_s,prompt_tokens,output_tokens\n" + rows)
    blocks = ("--memory-blocks", 30, "--block-tokens", 4)
    given = ("six.csv", "--clients", 6, *blocks, "--format", "json")
    ends = {}
    for allocation in ((), ("--allocation", "paged"), ("--allocation", "whole")):
        code, out, _ = call("simulate", *given, *allocation, "--policy", "vllm")
        assert code == 0
        ends[allocation] = json.loads(out)["makespan_s"]
    assert ends[()] == ends["--allocation", "paged"] < 0.7 * ends["--allocation", "whole"]
    (tmp_path / "s.toml").write_text(
        'instances = [{name = "six.csv", clients = 6, memory_blocks = 30, block_tokens = 4, '
        'allocation = ["paged", "whole"]}, '
        '{name = "six.csv", clients = 6, memory_blocks = 30, block_tokens = 4}]\n'
        'policies = ["vllm"]\n'
    )
    code, out, _ = call("study s.toml --jobs 1 --format json")
    assert code == 0
    found = [row["makespan_s"] for row in json.loads(out)]
    assert found == [ends[()], ends["--allocation", "whole"]]  # the unsaid one is the first
    split = ("--workers", "1P1D:free", "--policy", "disaggregated")
    assert call("simulate", *given, *split)[0] == 0
    refused("set the allocation to paged", "simulate", *given, *split, "--allocation", "whole")
    limits = ("--slo-ttft", 0.5, "--slo-tpot", 1, "--jobs", 1, "--policy", "vllm")
    counts = [json.loads(call("capacity", *given, *limits, *more)[1])["workers"]
              for more in ((), ("--allocation", "whole"))]  # fmt: skip
    assert counts[0] < counts[1]


def test_a_mixture_on_paged_memory_is_said(call, tmp_path):
    rows = "".join(f"r{row},0,8,90\n" for row in range(6))
    (tmp_path / "six.csv").write_text("id,arrival_s,prompt_tokens,output_tokens\n" + rows)
    given = ("compare", "six.csv", "--clients", 6, "--block-tokens", 4, "--methods", "vllm,fcfs")
    said = "set aside prompt and answer (or output limit) at admission although memory is paged"
    assert call(*given, "--memory-blocks", 30)[2].count(said) == 1
    assert said not in call(*given, "--memory-blocks", 150)[2]  # never limits
    assert said not in call(*given, "--memory-blocks", 30, "--allocation", "whole")[2]


def test_workers_multiply(call, mine):
    two = ("--clients", 32, "--workers", 2, "--format", "json")
    assert json.loads(call("info mine.csv", *two)[1])["workers"] == 2
    solved = json.loads(call("solve mine.csv", *two, "--method", "fcfs")[1])
    simulated = json.loads(call("simulate mine.csv", *two)[1])
    assert solved["makespan_s"] == simulated["makespan_s"]
    assert json.loads(call("info pang-100x20", *two[2:])[1])["workers"] == 2


def test_worker_files_stand_in_for_the_options(call, refused, mine, tmp_path):
    (tmp_path / "w.json").write_text(json.dumps(Worker(7).to_dict()))
    code, out, err = call("info mine.csv --workers w.json,w.json --format json")
    assert (code, json.loads(out)["clients"]) == (0, 14)
    assert "--cost" not in err
    assert call("simulate mine.csv --workers w.json,w.json")[0] == 0
    refused("'--clients': the workers are given", "info mine.csv --workers w.json --clients 3")


def test_a_foreign_trace_needs_no_conversion(call, tmp_path):
    (tmp_path / "azure.csv").write_text(AZURE)
    code, out, err = call("simulate azure.csv --clients 4 --format json")
    assert (code, json.loads(out)["checked"]) == (0, True)
    assert "format azure: 2 of 2 requests" in err
    slo = ("--slo-ttft", 1, "--slo-tpot", 1, "--jobs", 1)
    assert call("capacity azure.csv --clients 4", *slo)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("mine.csv",), "field '--clients': requests have no worker of their own (say how many "
                        "requests it serves at once, --clients 64"),
        (("mine.csv", "--clients", 0), "field '--clients': 0 is below 1"),
        (("mine.csv", "--clients", 4, "--prefill-cap", 0), "'--prefill-cap': 0 is below 1"),
        (("mine.csv", "--clients", 4, "--output-limit", 0), "'--output-limit': 0 is below 1"),
        (("mine.csv", "--clients", 4, "--memory-blocks", 5, "--block-tokens", 0),
         "'--block-tokens': 0 is below 1"),
        (("mine.csv", "--clients", 4, "--cost", "h100-8b-sheet", "--block-tokens", 500_000),
         "'--block-tokens': a block of 500,000 tokens is larger than the machine's KV cache"),
        (("mine.csv", "--clients", 4, "--block-tokens", 16), "'--block-tokens': needs a number of"),
        (("mine.csv", "--clients", 4, "--cost", "no.json"), "no.json: there is no such file"),
        (("mine.csv", "--clients", 4, "--workers", "0"), "workers"),
        (("none.csv",), "none.csv: there is no such file"),
        (("pang-100x20", "--clients", 3), "'--clients': does not apply: a native instance has its"),
        (("pang-100x20", "--cost", "c.json"), "c.json: there is no such file"),
        (("pang-100x20", "--drop-empty"), "'--drop-empty': does not apply"),
    ],
)  # fmt: skip
def test_what_is_missing_or_idle_is_named_with_its_option(refused, mine, arguments, says):
    for command in ("info", "compare", "solve", "bound"):
        if command == "compare" and "--workers" in arguments:
            continue
        refused(says, command, *arguments)


def test_a_shipped_instance_runs_on_another_cost_model(call, tmp_path):
    save_cost(AffineCost(prefill_fixed_ns=50_000_000), tmp_path / "c.json")
    for said, machine in (("c.json", "affine"), ("h100-llama3-8b-sheet", "H100")):
        for command, *more in (("compare", "--methods", "fcfs"), ("solve",), ("simulate",)):
            code, _, err = call(command, "two-by-two", "--cost", said, *more)
            assert (code, machine in err) == (0, True), err
            assert "--cost replaces the cost model of the instance" in err


def test_the_cost_file_is_never_overwritten(refused, mine, tmp_path):
    save_cost(AffineCost(), tmp_path / "c.json")
    before = (tmp_path / "c.json").read_bytes()
    given = ("--clients", 2, "--cost", "c.json", "--method", "fcfs", "-o", "c.json")
    refused("would be overwritten", "solve mine.csv", *given)
    assert (tmp_path / "c.json").read_bytes() == before


def test_load_takes_the_same_in_python(mine, call):
    instance = orsched.load(mine, clients=16, workers=3, memory_blocks=500, prefix_cache="lru")
    assert [worker.clients for worker in instance.workers] == [16] * 3
    assert instance.workers[2].memory.prefix_cache.eviction == "lru"
    assert instance.first_token == "prefill"
    assert orsched.load(mine, workers=(Worker(5), Worker(6))).workers[1].clients == 6
    assert orsched.load(
        mine, clients=2, cost=AffineCost(prefill_fixed_ns=1)
    ).worker.cost == AffineCost(prefill_fixed_ns=1)
    with pytest.raises(InputError, match="clients=64"):
        orsched.load(mine)
    with pytest.raises(InputError, match="field 'clients': does not apply"):
        orsched.load("pang-100x20", clients=3)
    replaced = orsched.load("two-by-two", cost="h100-llama3-8b-sheet")
    assert replaced.worker.cost == orsched.load(mine, clients=1, cost="h100-8b-sheet").worker.cost
    assert replaced.worker.clients == orsched.load("two-by-two").worker.clients
    named = orsched.load("pang-100x20", classes=["interactive:ttft=1"])
    assert named.classes[0].ttft_ns == 10**9


def test_standard_input_is_a_file(call, refused, mine, monkeypatch):
    def pipe(raw):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))

    pipe(mine.read_bytes())
    code, out, _ = call("info - --clients 3 --format json")
    assert (code, json.loads(out)["requests"]) == (0, 500)
    pipe(b"prompt_tokens,output_tokens\n1,x\n")
    refused("standard input, row 2, field 'output_tokens'", "info - --clients 3")
    assert call("convert two-by-two i.json")[0] == 0
    pipe(Path("i.json").read_bytes())
    assert json.loads(call("info - --format json")[1])["name"] == "two-by-two"


def test_studies_take_requests_with_a_grid_of_workers(call, refused, mine, tmp_path, caplog):
    (tmp_path / "s.toml").write_text(
        'instances = [{name = "mine.csv", clients = [8, 16], sample = 20}]\npolicies = ["fcfs"]\n'
    )
    code, out, _ = call("study s.toml --jobs 1 --format json")
    assert code == 0
    assert [row["instance"] for row in json.loads(out)] == ["mine clients=8", "mine clients=16"]
    words = "mine.csv: assumed of the worker, since not said: the cost model of LLaMA-65B"
    assert caplog.text.count(words) == 1
    assert "0 run now" in call("study s.toml --jobs 1")[2]
    for said, says in (
        ("", "field 'instances.clients': requests have no worker of their own (write {name = "),
        ("clients = 0", "instances.clients"),
        ("clints = 3", "clints"),
        ('clients = 3, cost = "no.json"', "no.json: there is no such file"),
    ):
        entry = f'{{name = "mine.csv"{", " if said else ""}{said}}}'
        (tmp_path / "s.toml").write_text(f'instances = [{entry}]\npolicies = ["fcfs"]\n')
        refused(says, "study s.toml")
    (tmp_path / "s.toml").write_text(
        'instances = [{name = "two-by-two", clients = 3}]\npolicies = ["fcfs"]\n'
    )
    assert "does not apply: a native instance has its own" in call("study s.toml")[2]


def test_wrong_columns_come_with_the_renaming(refused, tmp_path):
    (tmp_path / "r.csv").write_text("ctx,completion_tokens\n5,3\n")
    err = refused("r.csv, row 1, field 'prompt_tokens'", "compare r.csv --clients 4")
    assert 'rename the column "ctx" to "prompt_tokens"' in err


def test_convert_says_the_machine(call, mine):
    code, _, err = call("convert mine.csv i.json --clients 4 --memory-blocks 900")
    assert code == 0
    assert "assumed of the worker, since not said: the cost model of LLaMA-65B" in err
    assert "memory without limit" not in err


def test_classes_without_a_request_are_named_with_the_remedy(call):
    given = ("generate", "gsm8k", "--set", "requests=20", "--set", "clients=2", "-o", "g.json")
    code, _, err = call(*given, "--class", "interactive:ttft=1")
    assert code == 0
    assert "no request is in the class interactive: all 20 are in batch" in err
    assert "(--class batch:ttft=1 limits those" in err
    assert "note" not in call(*given, "--class", "batch:ttft=1")[2]
    spread = ("simulate", "g.json", "--class", "interactive:ttft=1", "--arrivals", "poisson:rate=5")
    assert "no request is in the class" not in call(*spread)[2]


def test_commands_without_a_worker_name_the_conversion(refused, mine):
    """The remedy names what the command takes, and no option that it does not have."""
    for command in (("predict", "apply", "m.json", "mine.csv", "p.jsonl", "o.json"),
                    ("run", "mine.csv", "--model", "tiny-sim")):  # fmt: skip
        err = refused("orsched convert FILE case.json --clients 64", *command)
        assert "field '--clients'" not in err


STUDY = 'instances = ["two-by-two"]\npolicies = ["fcfs"]\nbounds = ["makespan"]\nseeds = [0]\n'
RESULT = {
    "completed": 2, "input_lens": [5, 7], "output_lens": [3, 2],
    "ttfts": [0.1, 0.2], "itls": [[0.01, 0.01], [0.02]], "start_times": [0.0, 0.1],
    "errors": ["", ""], "duration": 1.0, "total_input_tokens": 12, "total_output_tokens": 5,
    "latencies": [0.12, 0.22],
}  # fmt: skip
SMALL = ("--set", "requests=4", "--set", "clients=2")
RUNS = {
    "bound": [["two-by-two"], ["two-by-two", "--objective", "jct_mean"]],
    "bound --certificate": [["two-by-two"]],
    "calibrate": [["--from", "steps.csv", "-o", "cost.json"]],
    "capacity": [["two-by-two", "--slo-ttft", "1", "--jobs", "1"]],
    "check": [["two-by-two", "s.json"]],
    "compare": [["two-by-two"], ["uniform", *SMALL, "--seeds", "0:2"]],
    "cost": [["--gpu", "h100", "--model", "8b"]],
    "data list": [[]],
    "data verify": [["--directory", "."]],
    "frontier": [["two-by-two", "--first", "makespan", "--second", "jct_mean", "--points", "0"]],
    "info": [[], ["fcfs"], ["gsm8k"], ["affine"], ["machines"], ["two-by-two"]],
    "pack": [["two-by-two"]],
    "predict evaluate": [["m.json", "math.jsonl"]],
    "predict train": [["math.jsonl", "-o", "m2.json", "--kind", "constant"]],
    "run": [["two-by-two", "--worker", "virtual"]],
    "simulate": [["two-by-two", "--policy", "vllm"]],
    "solve": [["two-by-two"], ["gate", "--method", "exact"]],
    "study": [["s.toml", "--jobs", "1"]],
    "vllm results": [["result.json"]],
}
ELSEWHERE = {"predict proxy", "export"}
"""Trains a network and prints rows as ``predict train``; has formats of files of its own."""

LISTS = {("info", ()), ("info", ("fcfs",)), ("info", ("gsm8k",)), ("info", ("affine",)),
         ("bound --certificate", ("two-by-two",))}  # fmt: skip
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


@pytest.fixture
def here(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    write_labelled_prompts(make_corpus("math", 60, 3), "math.jsonl")
    loads = [(count, tokens) for count in (1, 2, 4) for tokens in (8, 64, 512)]
    write_measurements(
        Measurements(
            phase=["prefill"] * 9 + ["decode"] * 9,
            count=[count for count, _ in loads] * 2,
            duration_ns=[9000 + 90 * n * tokens for n, tokens in loads] + [7000] * 9,
            tokens=[count * tokens for count, tokens in loads] + [0] * 9,
            longest=[tokens for _, tokens in loads] + [0] * 9,
            context_sum=[0] * 9 + [count * tokens for count, tokens in loads],
            context_max=[0] * 9 + [tokens for _, tokens in loads],
        ),
        tmp_path / "steps.csv",
    )
    (tmp_path / "s.toml").write_text(STUDY)
    (tmp_path / "result.json").write_text(json.dumps(RESULT))
    assert call("solve two-by-two --method fcfs -o s.json")[0] == 0
    words = ("math.jsonl", "-o", "m.json", "--kind", "constant")
    assert call("predict train", *words)[0] == 0
    return tmp_path


@pytest.mark.parametrize("style", ["json", "csv"])
@pytest.mark.parametrize(
    ("command", "words"), [(name, tuple(words)) for name, runs in RUNS.items() for words in runs]
)
def test_a_format_is_right_or_refused(here, call, command, words, style):
    name, *more = command.split(" --")
    code, out, err = call(*name.split(), *words, *(f"--{one}" for one in more), "--format", style)
    if style == "csv" and (command, words) in LISTS:
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
