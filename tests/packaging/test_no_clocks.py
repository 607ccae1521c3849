"""No test of the short tier depends on wall time: a busy machine fails none of them."""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

CLOCKS = {"perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns"}
WALL = {"time", "time_ns"}
NUMBER = re.compile(r"[0-9.e-]+")
LIMITS = {
    "time_limit", "cell_time_limit", "--time-limit", "--cell-time-limit", "--cpu-limit"
}  # fmt: skip
TIERS = ("mark.full", "mark.browser", "mark.gpu")
UP_FROM_THE_START_S, NEVER_REACHED_S = 1e-3, 100.0
GUARD_S = 30.0
"""Fewest seconds after which a test that hangs is ended."""

ALLOWED = {
    "fuzz/__main__.py": "a program, which prints how long it took",
    "cli/test_interrupts.py": "a guard against hangs",
    "runner/devices/test_settings.py": "a wait takes at least its time, on any machine",
    "runner/devices/test_processes.py": "a guard against hangs",
    "runner/loop/test_live.py": "a device in real time: only an order is asserted",
    "runner/stand_in_gpu.py": "a stand-in of a GPU's clock, of which only the order is asserted",
    "solving/test_progress.py": "a guard against hangs",
    "planning/study/test_kill.py": "a guard against hangs",
    "planning/study/test_processes.py": "a guard against hangs",
    "common/test_subprocess_call.py": "a guard against hangs",
}
"""Files that read the wall clock, and why none of their outcomes depends on it."""

RUNS_OUT = {
    "cli/test_terminal.py": "the phase that is ended would go on for ever",
    "heuristics/test_policies.py": "one iteration ends it before",
    "models/best_first/test_best_first.py": "the search takes many times its limit, or no clock",
    "models/full_mip/test_behaviour.py": "the search takes many times its limit",
    "models/mip/test_mip.py": "the search takes many times its limit",
    "models/pcmax/test_certificates.py": "valid whenever it ends",
    "models/test_bound_scope.py": "what is kept is returned without a search",
    "solving/test_objectives.py": "a remark that depends on the limit alone",
}
"""Files with time limits that may run out, and why their outcomes are the same on any machine."""


@pytest.fixture(scope="module")
def short_tier(repo_root):
    """Nodes of the code of the short tier by file."""
    folder = repo_root / "tests"
    found = {}
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text())
        if not any(_is_tier(node) for node in tree.body):
            found[str(path.relative_to(folder))] = list(_walk(tree))
    assert len(found) > 250
    return found


def _is_tier(node):
    """Whether a statement marks a whole file as one of another tier."""
    marks = isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)
    return marks and any(tier in ast.unparse(node) for tier in TIERS)


def _walk(node):
    for child in ast.iter_child_nodes(node):
        marks = [ast.unparse(each) for each in getattr(child, "decorator_list", ())]
        if not any(tier in mark for mark in marks for tier in TIERS):
            yield child
            yield from _walk(child)


def _clocks(nodes):
    """Lines that read the wall clock."""
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    return [func.lineno for func in calls if _is_clock(func)]


def _is_clock(func):
    if isinstance(func, ast.Name):
        return func.id in CLOCKS
    if not isinstance(func, ast.Attribute):
        return False
    return func.attr in CLOCKS or (func.attr in WALL and ast.unparse(func.value) == "time")


def _limits(nodes):
    """Lines with a time limit as a number, in Python or on a command line, and its seconds."""
    for node in nodes:
        pairs = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str):  # a line of words
            for flag, number in pairwise(node.value.split(" ")):
                if flag in LIMITS and NUMBER.fullmatch(number):
                    yield node.lineno, float(number)
        if isinstance(node, ast.keyword):
            pairs = [(node.arg, node.value)]
        elif isinstance(node, ast.Dict):
            rows = zip(node.keys, node.values, strict=True)
            pairs = [(getattr(key, "value", None), value) for key, value in rows]
        elif isinstance(node, (ast.List, ast.Tuple, ast.Call)):
            row = node.args if isinstance(node, ast.Call) else node.elts
            pairs = [(getattr(a, "value", None), b) for a, b in pairwise(row)]
        for name, value in pairs:
            if isinstance(name, str) and name in LIMITS and isinstance(value, ast.Constant):
                given = value.value
                if name.startswith("--") and isinstance(given, str) and NUMBER.fullmatch(given):
                    given = float(given)
                if isinstance(given, (int, float)) and not isinstance(given, bool):
                    yield value.lineno, given


def test_no_test_reads_the_wall_clock(short_tier):
    found = {name: lines for name, nodes in short_tier.items() if (lines := _clocks(nodes))}
    assert {name: lines for name, lines in found.items() if name not in ALLOWED} == {}
    assert [name for name in ALLOWED if name not in found] == []


def test_no_time_limit_of_a_test_may_run_out_or_not(short_tier):
    """One is up from the start, as ``tests.stops.TimeUp`` is, or is never reached."""
    found = {}
    for name, nodes in short_tier.items():
        limits = list(_limits(nodes))
        if late := [line for line, s in limits if UP_FROM_THE_START_S < s < NEVER_REACHED_S]:
            found[name] = late
    assert {name: lines for name, lines in found.items() if name not in RUNS_OUT} == {}
    assert [name for name in RUNS_OUT if name not in found] == []


def test_guards_against_hangs_leave_a_busy_machine_time(short_tier):
    nodes = [(name, node) for name, nodes in short_tier.items() for node in nodes]
    given = [(name, node.value) for name, node in nodes
             if isinstance(node, ast.keyword) and node.arg == "timeout"
             and isinstance(getattr(node.value, "value", None), (int, float))]  # fmt: skip
    assert [(name, each.lineno) for name, each in given if each.value < GUARD_S] == []


def test_what_it_looks_for_is_found():
    """The test of the tests: each kind of clock and limit, and none of another tier."""
    source = """
import time
from time import monotonic

def test_a():
    assert time.perf_counter() - monotonic() < time.time()
    solve(case, time_limit=2, **{"time_limit": 3})
    run("solve", "x", "--time-limit", "4.5")
    run(["--time-limit", 5], ["--time-limit", "2min"])
    call("solve x --time-limit 6", "it says --time-limit twice")

@pytest.mark.full
def test_b():
    assert perf_counter() < 3
"""
    nodes = list(_walk(ast.parse(source)))
    assert len(_clocks(nodes)) == 3
    assert sorted(seconds for _, seconds in _limits(nodes)) == [2, 3, 4.5, 5, 6]
    assert Path(__file__).name not in ALLOWED
