"""``orsched info NAME``: methods, generators and cost models beside instances."""

from __future__ import annotations

import json

import pytest

from orsched.cli.commands import run
from orsched.cli.info_command import TOPICS


def _out(capsys, *arguments):
    assert run(["info", *arguments]) == 0
    return capsys.readouterr().out


def test_a_method_shows_its_parameters_information_and_paper(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = _out(capsys, "vllm")
    assert "none, predicted, clairvoyant (the first is the default)" in shown
    assert "arXiv 2309.06180" in shown
    assert "max_num_batched_tokens = 2048" in shown
    assert "the token budget, most tokens of a step" in shown
    assert "E.g. vllm+policy=fcfs" in shown
    tail = shown.partition("parameters:")[2].splitlines()
    assert max(map(len, tail)) <= 80


def test_a_method_that_searches_says_what_ends_it(capsys):
    assert "yes: --gap, --time-limit and --iterations end it" in _out(capsys, "windows")
    assert "threads = 2" in _out(capsys, "windows")
    assert "search = auto" in _out(capsys, "exact")
    assert "It has no parameters." in _out(capsys, "auto")


def test_generators_show_their_arguments(capsys):
    shown = _out(capsys, "gsm8k")
    assert "requests = 1319" in shown
    assert "E.g. orsched generate gsm8k --set requests=1319" in shown
    assert "clients = (required)" in _out(capsys, "uniform")


def test_cost_models_show_their_fields_and_instances_come_first(capsys):
    assert "round_client_ns = 210000" in _out(capsys, "affine")
    assert "requests" in _out(capsys, "levels")  # an instance and a cost model have this name


@pytest.mark.parametrize(
    "name", ["", "machines", "vllm", "windows", "roofline", "gsm8k", "h100-llama3-8b"]
)
def test_lines_fit_a_terminal_of_80_columns(capsys, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    shown = _out(capsys, *([name] if name else []))
    assert max(map(len, shown.splitlines())) <= 80
    assert "..." not in shown


def test_the_list_has_every_method_with_its_information(capsys):
    shown = " ".join(_out(capsys).split())
    assert "fcfs first come first served, prefill first (vLLM V0, Pang's baseline) [none]" in shown
    assert "bound at full scale [clairvoyant]" in shown


def test_json_has_the_same(capsys):
    method = json.loads(_out(capsys, "online", "--format", "json"))
    assert method["workers"] == "one"
    steal = next(each for each in method["parameters"] if each["name"] == "steal")
    assert (steal["default"], steal["required"]) == (True, False)
    generator = json.loads(_out(capsys, "uniform", "--format", "json"))
    assert [each["required"] for each in generator["arguments"]][:3] == [True, True, False]
    assert "default" not in generator["arguments"][0]


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("hybird", "hybrid"),
        ("gsmk8", "gsm8k"),
        ("pang-100x2", "pang-100x20"),
        ("WINDOWS", "windows"),
    ],
)
def test_names_that_are_nearly_right(capsys, wrong, meant):
    assert run(["info", wrong]) == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err


def test_names_that_are_far_from_all_and_files_are_instances(capsys):
    assert run(["info", "zzzzzz"]) == 2
    assert "there is no shipped instance 'zzzzzz'" in capsys.readouterr().err
    assert run(["info", "hybird.json"]) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_more_topics_can_be_added(monkeypatch, capsys):
    entry = (lambda name: name == "kernels", lambda name, style: print("all kernels", style))
    monkeypatch.setattr("orsched.cli.info_command.TOPICS", [*TOPICS, entry])
    assert _out(capsys, "kernels") == "all kernels table\n"


def test_a_method_says_what_it_minimises(capsys):
    found = {name: _out(capsys, name) for name in ("windows", "exact", "fcfs")}
    lines = {name: next(x for x in text.splitlines() if x.startswith("minimises"))
             for name, text in found.items()}  # fmt: skip
    assert lines["windows"].split() == ["minimises", "makespan"]
    assert "makespan, " in lines["exact"]
    assert "jct_mean" in found["exact"]
    assert "nothing" in lines["fcfs"]
    assert json.loads(_out(capsys, "windows", "--format", "json"))["objectives"] == ["makespan"]
