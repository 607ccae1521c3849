"""Faults put into central modules, one at a time: which of them no test sees, which tests see none.

python -m benchmarks.mutants [--modules loop structure kernel] [--mutants 30] [--seed 1] [--idle]

Of each module ``--mutants`` places are drawn with ``--seed``: a comparison is moved, ``+`` becomes
``-``, ``and`` becomes ``or``, a condition is negated, a whole number grows by one, a statement is
left out. The module's tests run on each, in a copy of the tree, and end at the first that fails.
A mutant that no test fails on is printed with its line: a test is missing, or the two are the
same (judge it). ``--idle`` lets all tests run on each mutant, and prints those that never failed:
tests of something else, or of nothing.
"""

from __future__ import annotations

import argparse
import ast
import copy
import random
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.arguments import count
from benchmarks.speed.section import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 600
"""A mutant that keeps its tests busy for longer counts as seen."""


class Target(NamedTuple):
    """A module and the tests that are there for it."""

    path: str
    tests: tuple[str, ...]


TARGETS = {
    "loop": Target("orsched/simulator/loop.py", ("tests/simulator",)),
    "structure": Target("orsched/checker/structure.py", ("tests/checker",)),
    "kernel": Target("models/latency_search/decoding.py", ("tests/models/latency_search",)),
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
}  # fmt: skip


def faults(tree: ast.Module) -> Iterator[tuple[ast.AST, int]]:
    """Yield each place where ``spoil`` has something to do, with its line.

    What is raised, said or declared is left alone: texts have tests of their own.
    """
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.AnnAssign):
            continue
        if spoil(copy.deepcopy(node)):
            yield node, getattr(node, "lineno", 0)
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list"):
                below = value if isinstance(value, list) else [value]
                waiting += [each for each in below if isinstance(each, ast.AST)]


def spoil(node: ast.AST) -> str:
    """Put a fault into a node; return what it was, or nothing where there is none to put."""
    match node:
        case ast.Compare() if type(node.ops[0]) in COMPARISONS:
            node.ops[0] = COMPARISONS[type(node.ops[0])]()
            return "comparison"
        case ast.BinOp() | ast.AugAssign() if type(node.op) in OPERATORS:
            node.op = OPERATORS[type(node.op)]()
            return "operator"
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            return "and/or"
        case ast.If() | ast.While() | ast.IfExp():
            node.test = ast.UnaryOp(ast.Not(), node.test)
            return "condition"
        case ast.Constant() if type(node.value) is int:
            node.value += 1
            return "number"
        case ast.Expr() if isinstance(node.value, ast.Call):
            node.value = ast.Constant(None)
            return "call left out"
    return ""


def mutants(source: str, many: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield the spoilt texts of a module, each with its line and what was done."""
    lines = source.splitlines()
    places = len(list(faults(ast.parse(source))))
    for place in sorted(random.Random(seed).sample(range(places), min(many, places))):
        tree = ast.parse(source)
        node, line = list(faults(tree))[place]
        what = spoil(node)
        yield (
            ast.unparse(ast.fix_missing_locations(tree)),
            (f"line {line}, {what}: {lines[line - 1].strip()}"),
        )


def outcome(folder: Path, tests: Sequence[str], *, all_of_them: bool) -> dict[str, bool]:
    """Return whether each test that ran passed; a run without an end has the row ``no end``."""
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
    command += ["-m", "not full", f"--junitxml={report}", *tests]
    try:
        subprocess.run(
            command if all_of_them else [*command, "-x"],
            cwd=folder, capture_output=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"no end": False}
    if not report.exists():
        return {"no start": False}
    cases = ET.parse(report).iter("testcase")
    return {
        f"{each.get('classname')}::{each.get('name')}": not {"failure", "error"}
        & {child.tag for child in each}
        for each in cases
    }


def judged(name: str, many: int, seed: int, *, idle: bool) -> tuple[dict[str, object], list[str]]:
    """Return a row of a module, and the lines of what no test saw and of tests that saw nothing."""
    target = TARGETS[name]
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept) / "tree"
        shutil.copytree(ROOT, folder, symlinks=True, ignore=shutil.ignore_patterns(".*", "_build"))
        source = (ROOT / target.path).read_text()
        before = outcome(folder, target.tests, all_of_them=True)
        if not all(before.values()):
            raise SystemExit(f"{name}: its tests fail without a fault in {target.path}")
        seen, drawn, said = dict.fromkeys(before, False), 0, []
        for text, what in mutants(source, many, seed):
            drawn += 1
            (folder / target.path).write_text(text)
            after = outcome(folder, target.tests, all_of_them=idle)
            print(f"{name}: {drawn} of {many}", file=sys.stderr)
            if all(after.values()):
                said.append(f"{name}: no test fails: {what}")
            for each, passed in after.items():
                seen[each] = seen.get(each, False) or not passed
    unseen = len(said)
    if idle:
        said += [f"{name}: never fails: {each}" for each in before if not seen[each]]
    return {"module": name, "mutants": drawn, "seen": drawn - unseen, "tests": len(before)}, said


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run, print the table and what was not seen."""
    parser = argparse.ArgumentParser(prog="mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--modules", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--mutants", type=count, default=30, help="places drawn of each module")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--idle", action="store_true", help="name tests that never fail as well")
    given = parser.parse_args(arguments)
    rows, said = [], []
    for name in given.modules:
        row, lines = judged(name, given.mutants, given.seed, idle=given.idle)
        rows.append(row)
        said += lines
    print("\n".join([*table(rows), "", *said]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
