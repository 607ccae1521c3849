"""The mutants of a module are other programs, and a failing test shows as one."""

from __future__ import annotations

import ast

import pytest

from benchmarks.mutants import ROOT, TARGETS, mutants, outcome

SOURCE = '''"""One."""


def least(values: list[int], most: int = 7) -> int:
    """Return the least."""
    found = most
    for value in values:
        if value < found and value > 0:
            found = value
        values.append(found - 1)
    if not values:
        raise ValueError(f"{most + 1}")
    return found
'''


def test_every_place_gives_another_program_and_says_its_line():
    found = dict(mutants(SOURCE, 100, 1))
    assert len(found) == 10
    assert ast.unparse(ast.parse(SOURCE)) not in found
    assert sum("line 8" in said for said in found.values()) == 5
    assert not any("line 12" in said for said in found.values())
    assert list(mutants(SOURCE, 4, 2)) == list(mutants(SOURCE, 4, 2))


def test_a_failing_test_is_told_from_one_that_passes(tmp_path):
    (tmp_path / "test_two.py").write_text("def test_a(): pass\ndef test_b(): assert 1 > 2\n")
    found = outcome(tmp_path, ["test_two.py"], all_of_them=True)
    assert found == {"test_two::test_a": True, "test_two::test_b": False}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_module_and_its_tests_are_where_the_table_says(target):
    assert (ROOT / target.path).exists()
    assert all((ROOT / each).exists() for each in target.tests)
