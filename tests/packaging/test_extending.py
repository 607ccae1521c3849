"""What an extension needs is in `orsched.extending`, and the guides use nothing else."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys

import pytest

import orsched
from orsched import extending
from orsched.cli.commands import run
from orsched.common import registry

PAGES = ("own-policy", "own-reader", "own-cost-model")
PUBLIC = ("orsched", "orsched.extending")


def code_of(root, page):
    text = (root / "docs" / f"{page}.md").read_text()
    return re.findall(r"```(?:python|\{code-cell\} ipython3)\n(.*?)```", text, re.S)


@pytest.mark.parametrize("page", PAGES)
def test_the_guides_import_from_the_public_modules_only(repo_root, page):
    found = set()
    for node in ast.walk(ast.parse("\n".join(code_of(repo_root, page)))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    assert {name for name in found if name.startswith("orsched")} == set(PUBLIC)


def test_the_guide_for_readers_runs_as_it_stands(repo_root, capsys):
    names = {}
    for code in code_of(repo_root, "own-reader"):
        exec(compile(code, "own-reader", "exec"), names)
    out = capsys.readouterr().out
    assert "format gateway: 2 of 3 requests, 1 left out (status timeout)" in out
    assert "[         0 1750000000] [120 300]" in out
    assert "2 prompt" in out


def test_every_name_is_documented_and_is_the_one_of_the_library():
    for name in extending.__all__:
        thing = getattr(extending, name)
        if inspect.isclass(thing) or inspect.isfunction(thing) or inspect.ismodule(thing):
            assert inspect.getdoc(thing), name
        if name in orsched.__all__:  # orsched.prediction is the package, extending.predict the laws
            assert getattr(orsched, name) is thing, name
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
    known = {
        "policies": {"own": "my_extension:Mine"},
        "readers": {"own": "my_extension:reader"},
    }
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
