"""The page *Compare methods*: its command prints what it shows, and its Python runs."""

from __future__ import annotations

import re
import shlex
import sys

import pytest

from orsched.cli.commands import run


@pytest.fixture
def page(repo_root, monkeypatch):
    monkeypatch.chdir(repo_root)
    monkeypatch.setattr(sys, "path", [str(repo_root), *sys.path])
    return (repo_root / "docs" / "compare.md").read_text()


def test_the_command_prints_what_the_page_shows(page, capsys):
    command, shown = re.search(r"```console\n\$ (.*?)\n(.*?)```", page, re.DOTALL).groups()
    assert command.startswith("orsched compare ")
    assert run(shlex.split(command)[1:]) == 2  # windows is for one worker
    assert capsys.readouterr().out == shown


def test_its_python_finds_the_same(page):
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {"orsched": __import__("orsched")}
    for block in blocks:
        exec(compile(block, "compare.md", "exec"), names)
    found = names["found"]
    shown = re.search(r"^vllm +none +([0-9.]+) %", page, re.MULTILINE)
    assert found["vllm"].slo_attainment == pytest.approx(float(shown[1]) / 100)
    assert found.best().label.startswith("shortest-prompt-first")
    assert found.failed == ()
