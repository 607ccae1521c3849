"""What the checker shares with other parts, and that its page names each kind of violation."""

import re
import subprocess
import sys

import pytest

from orsched.checker import ViolationKind

SHARED = {
    "common.columns", "metrics.class_metrics", "metrics.prefix_blocks", "metrics.prefix_replay",
    "metrics.summary", "metrics.timeline", "metrics.timeline_rows", "metrics.token_times",
}  # fmt: skip
"""The one reading of a schedule, which ``tests/by_the_book.py`` is held against."""

FOREIGN = (
    "simulator", "heuristics", "runner", "data.step", "solving.solver", "planning", "views",
    "instances", "models.packing", "models.pcmax", "models.windows", "models.full_mip",
)  # fmt: skip
"""What makes schedules, searches or shows: none of it is there when the checker is."""

CODE = """
import importlib, pkgutil, sys
import orsched.checker
for module in pkgutil.iter_modules(orsched.checker.__path__):
    importlib.import_module(f"orsched.checker.{module.name}")
print(*(name.removeprefix("orsched.") for name in sys.modules if name.startswith("orsched.")))
"""


def test_the_checker_shares_no_code_with_what_makes_schedules(tmp_path):
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    loaded = set(done.stdout.split())
    assert loaded >= SHARED
    assert [name for name in loaded for part in FOREIGN if f"{name}.".startswith(f"{part}.")] == []


@pytest.fixture(scope="module")
def page(repo_root):
    return (repo_root / "docs" / "invariants.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tests(repo_root):
    """Names of tests with their text, from the folders that the page speaks of."""
    found = {}
    for folder in ("checker", "heuristics", "metrics", "models", "product", "simulator", "solving"):
        for path in sorted((repo_root / "tests" / folder).glob("test_*.py")):
            parts = re.split(r"^(?=def |@)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
            for part in parts:
                if match := re.match(r"def (test_\w+)", part):
                    found[match[1]] = part
    return found


def rows(page):
    return re.findall(r"^\| (INV-\d+) \|.*\| ([^|]*) \|$", page, flags=re.MULTILINE)


def test_numbers_are_consecutive(page):
    numbers = [number for number, _ in rows(page)]
    assert numbers == [f"INV-{i}" for i in range(1, len(numbers) + 1)]
    assert set(re.findall(r"INV-\d+", page)) == set(numbers)


def test_each_invariant_is_tested_under_its_number(page, tests):
    for number, cell in rows(page):
        named = re.findall(r"`(test_\w+)`", cell)
        assert named
        for name in named:
            assert re.search(rf"{number}\b", tests[name]), f"{name} does not cite {number}"


def test_tests_cite_numbers_that_exist(page, tests):
    known = {number for number, _ in rows(page)}
    cited = {number for text in tests.values() for number in re.findall(r"INV-\d+", text)}
    assert cited <= known


def test_each_kind_of_violation_is_explained(page):
    assert {kind.value for kind in ViolationKind} <= set(re.findall(r"`(\w+)`", page))
