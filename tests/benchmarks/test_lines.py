"""The counts of lines."""

from __future__ import annotations

from benchmarks import lines
from benchmarks.lines import ROOMS, Counts, Room, by_room, count, exceeded, now, room_of, rows

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


LONG = "def f(a, b, c, d, e, f, g, h, i): ...\ndef g():\n" + "    x = 1\n" * 60


def test_comments_docstrings_and_empty_lines_are_no_code():
    assert count(SOURCE) == Counts(1, 14, 6, 2, 0)


def test_a_function_is_long_by_its_lines_or_its_parameters():
    assert count(LONG).long == 2
    assert count(LONG.replace(", i", "").replace("    x = 1\n", "    x = 1\n", 1)).long == 1
    assert count("class A:\n    def f(self, a, b, c, d, e, f, g, h): ...\n").long == 0


def test_files_belong_to_a_room_and_those_at_the_top_to_the_door():
    files = [("models/a.py", "1\n"), ("models/b/c/d.py", "x = 1\n"), ("tests/e.py", "1\n")]
    found = by_room(iter(files))
    assert {name: counts.lines for name, counts in found.items()} == {"models": 2}
    assert room_of("orsched/__init__.py") == "door"
    table = rows(found, {"models": Counts(2, 5, 5, 0), "gone": Counts(1, 3, 3, 0)})
    changes = {row["room"]: row["change"] for row in table}
    assert (changes["models"], changes["gone"], changes["all"]) == (-3, -3, -6)


def test_every_folder_belongs_to_one_room():
    folders = {path.rpartition("/")[0] for path, _ in now()} - {"orsched"}
    for folder in folders:
        homes = [n for n, room in ROOMS.items() if any(
            f"{folder}/".startswith(f"{each}/") for each in room.folders)]  # fmt: skip
        assert len(homes) == 1, folder


def test_a_room_above_its_budget_is_named(monkeypatch):
    monkeypatch.setattr(lines, "ROOMS", {"small": Room(("models",), 10, 5, 1)})
    monkeypatch.setattr(lines, "LONG_FUNCTIONS", 0)
    assert exceeded({"small": Counts(1, 10, 8, 1)}) == []
    assert exceeded({"small": Counts(2, 11, 8, 1, 3)}) == [
        "small: 11 lines, the budget is 10",
        "small: 2 files, the budget is 1",
        "3 functions above 60 lines or 8 parameters, the budget is 0",
    ]


def test_links_are_not_counted_twice():
    names = [name for name, _ in now()]
    assert len(names) == len(set(names)) > 300
    assert not [name for name in names if name.startswith("orsched/models/")]
