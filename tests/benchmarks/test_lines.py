"""The counts of lines."""

from __future__ import annotations

from benchmarks.lines import Counts, by_folder, count, now, rows

SOURCE = '''"""What it is."""

# a comment
def f(x):
    """Return it."""
    text = """two
lines"""
    return x, text


class A:
    """B."""

    def g(self): ...
'''


def test_comments_docstrings_and_empty_lines_are_no_code():
    assert count(SOURCE) == Counts(1, 14, 6, 2)


def test_folders_are_two_levels_and_others_do_not_count():
    files = [("models/a.py", "1\n"), ("models/b/c/d.py", "x = 1\n"), ("tests/e.py", "1\n")]
    found = by_folder(iter(files))
    assert {name: counts.lines for name, counts in found.items()} == {"models": 1, "models/b": 1}
    table = rows(found, {"models": Counts(2, 5, 5, 0), "gone": Counts(1, 3, 3, 0)})
    assert [(row["folder"], row["change"]) for row in table] == [
        ("gone", -3), ("models", -4), ("models/b", 1), ("all", -6),
    ]  # fmt: skip


def test_links_are_not_counted_twice():
    names = [name for name, _ in now()]
    assert len(names) == len(set(names)) > 300
    assert not [name for name in names if name.startswith("orsched/models/")]
