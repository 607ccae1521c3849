"""The page of invariants names every kind of violation, and tests that exist and cite it."""

from __future__ import annotations

import re

import pytest

from orsched.checker import ViolationKind


@pytest.fixture(scope="module")
def page(repo_root):
    return (repo_root / "docs" / "invariants.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tests(repo_root):
    """Names of tests with their text, from the folders that the page speaks of."""
    found = {}
    for folder in ("checker", "heuristics", "metrics", "models", "product", "simulator", "solver"):
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
