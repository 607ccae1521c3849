"""Shells complete the names that commands take; through click's own interface, and in bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from orsched.cli import cli
from orsched.instances.catalog import GENERATORS, SHIPPED
from orsched.solving.method_choice import method_names


def complete(*words):
    """Return what click offers for the last word, and whether the shell adds files."""
    shell = ShellComplete(cli, {}, "orsched", "_ORSCHED_COMPLETE")
    items = shell.get_completions(list(words[:-1]), words[-1])
    return [item.value for item in items if item.type == "plain"], any(
        item.type == "file" for item in items
    )


@pytest.mark.parametrize("command", ["solve", "simulate", "bound", "check", "report", "capacity"])
def test_instances_and_files(command):
    assert complete(command, "") == (list(SHIPPED), True)
    assert complete(command, "pang") == (["pang-100x20"], True)


def test_a_comparison_takes_generators_too():
    assert complete("compare", "gsm8k") == (["gsm8k", "gsm8k-llama65b"], True)


def test_methods():
    assert complete("solve", "two-by-two", "--method", "") == (method_names(), False)
    assert complete("solve", "two-by-two", "--method", "hy") == (["hybrid", "hygen"], False)
    assert complete("simulate", "two-by-two", "--policy=scl") == (
        ["scls", "scls_continuous"],
        False,
    )
    assert complete("simulate", "two-by-two", "--policy", "./own") == ([], True)


def test_methods_behind_a_comma():
    found, files = complete("compare", "two-by-two", "--methods", "fcfs,hy")
    assert (found, files) == (["fcfs,hybrid", "fcfs,hygen"], False)
    found, _ = complete("compare", "two-by-two", "--methods", "fcfs,")
    assert found == [f"fcfs,{name}" for name in method_names()]
    found, _ = complete("compare", "two-by-two", "--methods", "fcfs,hybrid@p")
    assert found == ["fcfs,hybrid@predicted"]


def test_parameters_of_methods():
    assert complete("solve", "two-by-two", "--method", "windows+")[0] == ["windows+threads="]
    found, _ = complete("solve", "two-by-two", "--method", "vllm+mode=mixed+ch")
    assert found == ["vllm+mode=mixed+chunked_prefill="]
    found, _ = complete("simulate", "x", "--policy", "gittins", "--param", "gate")
    assert found == ["gate=", "gate_aging="]
    assert complete("simulate", "x", "--policy", "os:path", "--param", "") == ([], False)
    assert complete("simulate", "x", "--param", "") == ([], False)


def test_generators_and_their_arguments():
    assert complete("generate", "") == (list(GENERATORS), False)
    found, _ = complete("generate", "gsm8k", "--set", "pre")
    assert found == ["prefill_cap_tokens=", "prediction_sigma="]
    assert "seed=" not in complete("generate", "gsm8k", "--set", "")[0]
    assert complete("generate", "nothing", "--set", "") == ([], False)


def test_laws_formats_data_sets_and_topics():
    assert complete("simulate", "x", "--arrivals", "p")[0] == ["poisson"]
    assert complete("simulate", "x", "--arrivals", "gamma:rate=2,")[0] == [
        "gamma:rate=2,rate=", "gamma:rate=2,cv=",
    ]  # fmt: skip
    assert complete("compare", "x", "--predictions", "no")[0] == ["noise"]
    assert complete("convert", "x", "y.json", "--from", "az")[0] == ["azure"]
    assert complete("convert", "azure-co")[1]
    assert {"hybrid", "hygen"} == set(complete("info", "hy")[0])
    assert "levels" in complete("info", "le")[0]


def test_costs_are_machines_and_files():
    found, files = complete("solve", "x", "--cost", "")
    assert files
    assert all(isinstance(name, str) for name in found)


def test_no_code_of_the_users_own_is_imported(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert complete("simulate", "x", "--policy", "mine:Policy+")[0] == []
    assert complete("simulate", "x", "--policy", "mine:Policy", "--param", "")[0] == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(shell, monkeypatch):
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("no bash")
    done = _orsched(f"{shell}_source")
    assert done.returncode == 0, done.stderr
    assert "_ORSCHED_COMPLETE" in done.stdout


def test_bash_completes_in_a_line():
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    done = _orsched(
        "bash_complete", COMP_WORDS="orsched compare pang-100x20 --methods fcfs,hy", COMP_CWORD="4"
    )
    assert done.stdout.split() == ["plain,fcfs,hybrid", "plain,fcfs,hygen"]


def _orsched(instruction, **variables):
    return subprocess.run(
        [sys.executable, "-c", "from orsched.cli import main; main()"],
        env={**os.environ, "_ORSCHED_COMPLETE": instruction, **variables},
        capture_output=True,
        text=True,
    )
