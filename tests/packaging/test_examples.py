"""The examples on the pages about policies, arrivals and studies run as they stand."""

from __future__ import annotations

import json
import re
import sys
import tomllib
import types

import pytest

from orsched.cli.commands import run
from orsched.common import registry
from orsched.planning.study import read_study


def blocks(root, page, kind):
    text = (root / "docs" / f"{page}.md").read_text()
    return re.findall(rf"```{re.escape(kind)}\n(.*?)```", text, re.S)


def test_the_policy_is_complete_and_under_forty_lines(repo_root, capsys):
    first, *others = blocks(repo_root, "own-policy", "{code-cell} ipython3")
    assert len(first.splitlines()) < 40
    assert len(others) == 2
    names = {}
    exec(compile(first, "own-policy", "exec"), names)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["fcfs", "shortest-prompt-first"]
    for code in others + blocks(repo_root, "own-policy", "python"):
        exec(compile(code, "own-policy", "exec"), names)
    assert "long prompts apart" in capsys.readouterr().out


@pytest.fixture
def mine(repo_root, tmp_path, monkeypatch):
    """A folder with the page's class in `mine.py`."""
    code = blocks(repo_root, "own-policy", "{code-cell} ipython3")[0]
    (tmp_path / "mine.py").write_text(code.partition("\ninstance = ")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("mine", None)


def test_its_configuration_says_what_the_command_says(repo_root, mine, capsys):
    (mine / "mine.toml").write_text(blocks(repo_root, "own-policy", "toml")[0])
    commands = blocks(repo_root, "own-policy", "console")[0].replace("\\\n", " ")
    command = commands.splitlines()[-1].removeprefix("$ orsched ").split()
    figures = []
    for arguments in (
        [*command, "--seed", "1"],
        ["simulate", "gsm8k-llama65b", "--config", "mine.toml", "--allow-code"],
    ):
        assert run([*arguments, "--format", "json"]) == 0
        figures.append(json.loads(capsys.readouterr().out))
        del figures[-1]["decision_p99_s"]
    assert figures[0] == figures[1]


def test_the_study_on_the_page_is_one(repo_root, mine):
    text = blocks(repo_root, "study", "toml")[0]
    (mine / "load.toml").write_text(text)
    study = read_study(mine / "load.toml")
    assert len(study.cells()) == 3 * 4 * 2 * 10 * 3
    keys = set(re.findall(r"^\| `(\w+)` \|", (repo_root / "docs/study.md").read_text(), re.M))
    assert set(tomllib.loads(text)) <= keys


@pytest.mark.parametrize(
    ("page", "kind"), [("study", "python"), ("arrivals", "{code-cell} ipython3")]
)
def test_the_python_examples_run(repo_root, capsys, page, kind):
    names = {}
    for code in blocks(repo_root, page, kind):
        exec(compile(code, page, "exec"), names)
    assert capsys.readouterr().out.strip()


def test_the_cost_model_on_its_page_runs_and_is_bounded_from_files(
    repo_root, tmp_path, monkeypatch, capsys
):
    code, with_attention = blocks(repo_root, "own-cost-model", "{code-cell} ipython3")
    module = types.ModuleType("own_cost_model")
    monkeypatch.setitem(sys.modules, "own_cost_model", module)
    names = vars(module)
    exec(compile(code, "own-cost-model", "exec"), names)
    gaps = [float(line.split()[-1].rstrip("%")) for line in capsys.readouterr().out.splitlines()]
    assert len(gaps) == 3
    assert all(0 <= gap < 15 for gap in gaps)
    exec(compile(with_attention, "own-cost-model", "exec"), names)
    short, long = (float(line.split()[0]) for line in capsys.readouterr().out.splitlines())
    assert short < long
    assert names["floor_faults"](names["WithAttention"]()) == []
    (document,) = blocks(repo_root, "own-cost-model", "json")
    (entry,) = blocks(repo_root, "own-cost-model", "toml")
    group = tomllib.loads(entry)["project"]["entry-points"]["orsched.cost_models"]
    known = {name: target.replace("mine", "own_cost_model") for name, target in group.items()}
    known = registry.BUILT_IN["cost_models"] | known
    monkeypatch.setitem(registry.BUILT_IN, "cost_models", known)
    (tmp_path / "roofline.json").write_text(document)
    rows = "".join(f"{prompt},{9 + prompt % 7}\n" for prompt in range(20, 70))
    (tmp_path / "requests.csv").write_text("prompt_tokens,output_tokens\n" + rows)
    monkeypatch.chdir(tmp_path)
    for command in blocks(repo_root, "own-cost-model", "console")[0].splitlines():
        assert run(command.removeprefix("$ orsched ").split()) == 0
    shown = capsys.readouterr()
    assert "verified" in shown.out
    assert "states no floor" not in shown.err


def test_the_commands_on_own_data_say_what_the_page_says(repo_root, tmp_path, monkeypatch, capsys):
    (code,) = blocks(repo_root, "own-data", "{code-cell} ipython3")
    names = {}
    exec(compile(code, "own-data", "exec"), names)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "fcfs", "vllm", "gittins",
    ]  # fmt: skip
    monkeypatch.chdir(names["log"].parent)
    (tmp_path / "mine.csv").write_text(names["log"].read_text())
    many, shown = blocks(repo_root, "own-data", "console")
    command, said = shown.splitlines()
    assert run(command.removeprefix("$ orsched ").split()) == 0
    assert said in capsys.readouterr().err.splitlines()
    monkeypatch.chdir(tmp_path)
    for line in many.splitlines():
        assert run(line.removeprefix("$ orsched ").split()) == 0
    capsys.readouterr()
    (tmp_path / "mine.toml").write_text(blocks(repo_root, "own-data", "toml")[0])
    assert len(read_study(tmp_path / "mine.toml").cells()) == 2 * 3
