"""The examples on the pages run as they stand; those on extensions use public names alone."""

import ast
import json
import re
import sys
import tomllib
import types

import pytest

import orsched
from orsched import extending
from orsched.cli.commands import run
from orsched.common import registry
from orsched.planning.study import read_study

CELL = "{code-cell} ipython3"


def blocks(root, page, *kinds):
    text, kind = (root / "docs" / f"{page}.md").read_text(), "|".join(map(re.escape, kinds))
    return re.findall(rf"```(?:{kind})\n(?:---\n.*?\n---\n)?(.*?)```", text, re.S)


def executed(codes, names=None):
    """Return the names after some code of a page was executed."""
    names = {} if names is None else names
    for code in codes:
        exec(compile(code, "page", "exec"), names)
    return names


def started(line):
    return run(line.removeprefix("$ orsched ").split())


def test_the_policy_is_under_forty_lines_and_two_cells_follow(repo_root):
    first, *others = blocks(repo_root, "own-policy", CELL)
    assert len(first.splitlines()) < 40
    assert len(others) == 2


@pytest.fixture
def mine(repo_root, tmp_path, monkeypatch):
    code = blocks(repo_root, "own-policy", CELL)[0]
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
    configured = ["simulate", "gsm8k-llama65b", "--config", "mine.toml", "--allow-code"]
    for arguments in ([*command, "--seed", "1"], configured):
        assert run([*arguments, "--format", "json"]) == 0
        figures.append(json.loads(capsys.readouterr().out))
        del figures[-1]["decision_p99_s"]
    assert figures[0] == figures[1]


def test_the_study_on_the_page_is_one(repo_root, mine):
    text = blocks(repo_root, "studies", "toml")[0]
    (mine / "load.toml").write_text(text)
    study = read_study(mine / "load.toml")
    assert len(study.cells()) == 3 * 4 * 2 * 10 * 3
    keys = set(re.findall(r"^\| `(\w+)` \|", (repo_root / "docs/studies.md").read_text(), re.M))
    assert set(tomllib.loads(text)) <= keys


def test_the_cost_model_on_its_page_runs_and_is_bounded_from_files(
    repo_root, tmp_path, monkeypatch, capsys
):
    page = "machines-and-calibration"
    module = types.ModuleType("own_cost_model")
    monkeypatch.setitem(sys.modules, "own_cost_model", module)
    executed(blocks(repo_root, page, CELL), vars(module))
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    shown = [words for words in shown if words[0] in ("fcfs", "hybrid", "vllm")]
    assert len(shown) == 3
    assert all(1 <= float(words[1]) / float(words[-2]) < 1.15 for words in shown)
    (document,) = blocks(repo_root, page, "json")
    (entry,) = blocks(repo_root, page, "toml")
    group = tomllib.loads(entry)["project"]["entry-points"]["orsched.cost_models"]
    known = {name: target.replace("mine", "own_cost_model") for name, target in group.items()}
    known = registry.BUILT_IN["cost_models"] | known
    monkeypatch.setitem(registry.BUILT_IN, "cost_models", known)
    (tmp_path / "cost.json").write_text(document)
    rows = "".join(f"{prompt},{9 + prompt % 7}\n" for prompt in range(20, 70))
    (tmp_path / "requests.csv").write_text("prompt_tokens,output_tokens\n" + rows)
    monkeypatch.chdir(tmp_path)
    for command in (
        "convert requests.csv mine.json --cost cost.json --clients 10",
        "bound mine.json",
        "solve mine.json --method hybrid --output schedule.json",
        "check mine.json schedule.json",
    ):
        assert started(command) == 0
    shown = capsys.readouterr()
    assert "verified" in shown.out
    assert "states no floor" not in shown.err


def test_the_commands_on_own_data_say_what_the_page_says(repo_root, tmp_path, monkeypatch, capsys):
    names = executed(blocks(repo_root, "own-data", CELL))
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[:3]] == ["fcfs", "vllm", "gittins"]
    assert "format gateway: 2 of 3 requests, 1 left out (status timeout)" in out
    assert "2 prompt" in out
    monkeypatch.chdir(names["log"].parent)
    (tmp_path / "mine.csv").write_text(names["log"].read_text())
    many, shown, *_ = blocks(repo_root, "own-data", "console")
    command, said = shown.splitlines()
    assert started(command) == 0
    assert said in capsys.readouterr().err.splitlines()
    monkeypatch.chdir(tmp_path)
    for line in many.splitlines():
        assert started(line) == 0
    capsys.readouterr()


def test_the_tutorial_of_a_proven_optimum_runs_and_its_file_has_the_optimum_of_the_model(
    repo_root, capsys
):
    names = executed(blocks(repo_root, "tutorial-or", CELL))
    said = [line for line in capsys.readouterr().out.splitlines() if line.endswith(" s")]
    assert said == ["optimal 0.79123 s", "0.76623 s", "optimal 0.81623 s", "0.81623 s"]
    assert names["bound"].value_s == 0.76623
    assert names["duals"].loc[["c1", "c2"], "dual"].tolist() == pytest.approx([29, 25])


PAGES = ("own-policy", "own-data")
PUBLIC = ("orsched", "orsched.extending")


@pytest.mark.parametrize("page", PAGES)
def test_the_guides_import_from_the_public_modules_only(repo_root, page):
    found = set()
    for node in ast.walk(ast.parse("\n".join(blocks(repo_root, page, "python", CELL)))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    assert {name for name in found if name.startswith("orsched")} == set(PUBLIC)


def test_every_name_is_the_one_of_the_library():
    for name in extending.__all__:
        if name in orsched.__all__:  # orsched.prediction is the package, extending.predict the laws
            assert getattr(orsched, name) is getattr(extending, name), name
    needed = {"View", "Step", "Information", "Dispatcher", "PolicyMethod", "CostModel", "Trace"}
    assert needed <= set(extending.__all__)


OWN = """
from orsched.extending import (
    Columns, FewestRequests, Policy, assemble, cells, decode_rounds, prefill_stage, read_table
)

class Mine(Policy):
    name = "mine"
    def start(self, view):
        self.waiting = []
    def on_arrival(self, view, request):
        self.waiting.append(request)
    def decide(self, view):
        if self.waiting and view.free_clients:
            return prefill_stage([self.waiting.pop(0)])
        return decode_rounds() if view.running else None

def reader(path, *, drop_empty=False):
    table = read_table(path, {"p": cells.whole_numbers, "d": cells.whole_numbers})
    p, d = table.columns["p"], table.columns["d"]
    return assemble(Columns(str(path), "own", table.lines, p, d, "p", "d"), drop_empty)
"""


def test_a_package_with_a_policy_and_a_reader_is_known_by_its_names(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "my_extension.py").write_text(OWN)
    known = {"policies": {"own": "my_extension:Mine"}, "readers": {"own": "my_extension:reader"}}
    monkeypatch.setattr(registry, "_entry_points", lambda kind: known.get(kind, {}))
    (tmp_path / "log.csv").write_text("p,d\n3,4\n5,6\n")
    assert extending.read("log.csv", "own").requests.output_tokens.tolist() == [4, 6]
    convert = ["convert", "log.csv", "case.json", "--from", "own", "--clients", "2"]
    assert run(convert) == 0
    capsys.readouterr()
    assert run(["compare", "case.json", "--methods", "own,fcfs", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in rows] == ["own", "fcfs"]
    sys.modules.pop("my_extension")
