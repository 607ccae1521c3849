"""Each command in each format that its ``--format`` takes: right, or refused before any work."""

from __future__ import annotations

import csv
import io
import json

import click
import pytest

from orsched.calibration.measurements import Measurements
from orsched.calibration.measurements_csv import write_measurements
from orsched.cli.commands import cli
from orsched.prediction import make_corpus
from orsched.prediction.corpus import write_labelled_prompts

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
    assert call("solve", "two-by-two", "--method", "fcfs", "-o", "s.json")[0] == 0
    words = ("math.jsonl", "-o", "m.json", "--kind", "constant")
    assert call("predict", "train", *words)[0] == 0
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
