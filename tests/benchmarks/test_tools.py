"""What measures, counts and repeats: arguments, frozen results, mutants, budgets of lines."""

import ast
import json

import pytest

from benchmarks import dispatching, exact_means, fleet_bounds, frozen, latency_search, lines, sharp
from benchmarks.lines import ROOMS, ROOT, Counts, Room, by_room, count, exceeded, now, room_of, rows
from benchmarks.mutants import TARGETS, mutants, outcome
from benchmarks.reproductions import disaggregation, four_workloads, six_workloads
from benchmarks.speed import packing_seeds, worker
from benchmarks.speed.packing_seeds import Answer, summary
from benchmarks.speed.section import Options
from tests.certificates.kinds import kinds
from tests.refusals import refused


@pytest.mark.parametrize("wrong", ["0", "-1", "1.5", "x", "", "nan"])
def test_what_is_no_number_of_something_is_said(wrong, capsys):
    for script, option in (
        (disaggregation.main, "--seeds"), (disaggregation.main, "--requests"),
        (six_workloads.main, "--jobs"), (six_workloads.main, "--tuning"),
        (dispatching.main, "--seeds"), (latency_search.main, "--seeds"),
        (four_workloads.main, "--seeds"),
    ):  # fmt: skip
        assert refused("", script, [f"{option}={wrong}"], kind=SystemExit).code == 2
        assert "at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("what", sharp.LARGE)
def test_each_task_of_a_large_size_says_what_it_took(what):
    row = sharp.large(what, "6x2", 0, 0.2)
    assert (row["size"], row["what"]) == ("6x2", what)
    assert float(row["CPU s"]) >= 0
    assert float(row["peak MiB"]) > 10
    if what in ("hybrid", "windows"):
        assert 0 <= float(row["gap %"]) < 50
    else:
        assert row["gap %"] == "-"


@pytest.mark.parametrize("section", ["names", "files"])
def test_two_runs_are_equal_and_a_changed_row_is_listed(section, tmp_path, capsys):
    path = tmp_path / "frozen.json"
    assert frozen.main(["write", str(path), "--only", section]) == 0
    assert frozen.main(["compare", str(path)]) == 0
    held = json.loads(path.read_text())
    key = sorted(held[section])[0]
    held[section][key] = "other"
    held[section]["gone"] = 1
    path.write_text(json.dumps(held))
    capsys.readouterr()
    assert frozen.main(["compare", str(path)]) == 1
    printed = capsys.readouterr().out
    assert f"{section}: {key}: " in printed
    assert f"{section}: gone: 1 -> absent" in printed
    text = 'orsched: 2 s: simulating\n"decision_p99_s": 3.8e-05,\nmakespan 2.00\n'
    assert frozen._without_times(text) == '"decision_p99_s": TIME,\nmakespan 2.00\n'


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


def test_comments_docstrings_and_empty_lines_are_no_code_and_long_functions_are_counted():
    assert count(SOURCE) == Counts(1, 14, 6, 2, 0)
    assert count(LONG).long == 2
    assert count(LONG.replace(", i", "").replace("    x = 1\n", "    x = 1\n", 1)).long == 1
    assert count("class A:\n    def f(self, a, b, c, d, e, f, g, h): ...\n").long == 0


def test_an_example_in_a_docstring_counts_in_no_budget():
    shown = '    """Return it.\n\n    Example:\n\n    >>> f(2)\n    2\n    """'
    example = SOURCE.replace('    """Return it."""', shown)
    assert count(example).lines == 14 + 2  # an empty line, the quotes
    assert count(example.replace(">>>", "...")).lines == 14 + 6


def test_files_belong_to_a_room_and_those_at_the_top_to_the_door():
    files = [("models/a.py", "1\n"), ("models/b/c/d.py", "x = 1\n"), ("tests/e.py", "1\n")]
    found = by_room(iter(files))
    assert {name: counts.lines for name, counts in found.items()} == {"models": 2}
    assert room_of("orsched/__init__.py") == "door"
    table = rows(found, {"models": Counts(2, 5, 5, 0), "gone": Counts(1, 3, 3, 0)})
    changes = {row["room"]: row["change"] for row in table}
    assert (changes["models"], changes["gone"], changes["all"]) == (-3, -3, -6)


def test_every_folder_belongs_to_one_room_and_links_are_not_counted_twice():
    names = [name for name, _ in now()]
    assert len(names) == len(set(names)) > 300
    assert not [name for name in names if name.startswith("orsched/models/")]
    folders = {path.rpartition("/")[0] for path in names} - {"orsched"}
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


def test_without_torch_the_section_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "find_spec", lambda name: None)
    section = worker.run(Options(tmp_path, repeats=1, tiny=True))
    assert (section.rows, section.targets) == ([], [])
    assert "not installed" in section.text()


def test_both_sides_do_the_same_steps(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    pytest.importorskip("transformers", reason="the extra 'runner' is not installed")
    monkeypatch.setattr(worker, "DTYPES", ("float64",))
    monkeypatch.setattr(worker, "SHAPES", (worker.Shape("tiny", 3, 20),))
    section = worker.run(Options(tmp_path, repeats=1, tiny=True))
    assert [row["step"] for row in section.rows] == ["round", "equal", "ragged", "scattered"]
    assert all(row["ratio"] > 0 for row in section.rows)
    shape = worker.SHAPES[0]
    ours, theirs = worker.Ours(shape, "float64"), worker.Transformers(shape, "float64")
    prompts = [[slot + 1] * 20 for slot in range(3)]
    for side in (ours, theirs):
        side.prefill(prompts)
    theirs.next = ours.worker.slots.tokens[:-1, None].clone()
    for side in (ours, theirs):
        side.before_rounds()
        side.rounds()
    assert torch.equal(theirs.next[:, 0], ours.worker.slots.tokens[:-1])


def test_rows_say_what_was_proven(capsys):
    exact_means.main(["--sizes", "4x2", "--seeds", "1", "--seconds", "20"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 4x2")]
    assert len(lines) == 4
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[3] == "1 of 1"
        assert float(cells[-2]) <= 1 <= float(cells[-1])


def test_a_proof_that_the_checker_refuses_is_none():
    answers = [
        Answer(7, 0.5, 0.4, 10, 10, 0),
        Answer(8, 1.5, 1.4, 11, 10, 0),
        Answer(9, 0.1, 0.1, 10, 10, 1),
    ]
    text = summary("H", answers)
    assert "seeds 7 to 9: 1 of 3 proven, 1 refused" in text
    assert text.count("over 1 s: 1") == 2
    assert "slowest: 8 (CPU 1.40 s, wall 1.50 s), 7" in text
    assert "not proven: seed 8, makespan 11, bound 10" in text
    assert "not proven: seed 9" in text


def test_an_instance_of_a_family_is_packed_and_checked(capsys, tmp_path):
    assert packing_seeds.measure("E4", 3, 5.0).proven
    log = tmp_path / "answers.csv"
    assert (
        packing_seeds.main(["E4", "--first", "3", "--count", "2", "--cpu", "--log", str(log)]) == 0
    )
    assert "E4, seeds 3 to 4: 2 of 2 proven" in capsys.readouterr().out
    lines = log.read_text(encoding="utf-8").splitlines()
    assert lines[0] == ",".join(Answer._fields)
    assert [line.split(",")[0] for line in lines[1:]] == ["3", "4"]


def test_a_limit_in_seconds_of_cpu_ends_a_packing(capsys):
    assert (
        packing_seeds.main(["H", "--first", "20009", "--count", "1", "--cpu", "--limit", "0.2"])
        == 0
    )
    assert "not proven: seed 20009" in capsys.readouterr().out


MUTATED = '''"""One."""


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
    found = dict(mutants(MUTATED, 100, 1))
    assert len(found) == 10
    assert ast.unparse(ast.parse(MUTATED)) not in found
    assert sum("line 8" in said for said in found.values()) == 5
    assert not any("line 12" in said for said in found.values())
    assert list(mutants(MUTATED, 4, 2)) == list(mutants(MUTATED, 4, 2))


def test_a_failing_test_is_told_from_one_that_passes(tmp_path):
    (tmp_path / "test_two.py").write_text("def test_a(): pass\ndef test_b(): assert 1 > 2\n")
    found = outcome(tmp_path, ["test_two.py"], all_of_them=True)
    assert found == {"test_two::test_a": True, "test_two::test_b": False}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_module_and_its_tests_are_where_the_table_says(target):
    assert (ROOT / target.path).exists()
    assert all((ROOT / each).exists() for each in target.tests)


def test_bounds_of_fleets_are_printed_with_their_checks(capsys, monkeypatch):
    """Prices prove more than the volume of all workers; what ``vllm`` does takes at least that."""
    small = kinds()["fleet_prices"].instance
    monkeypatch.setattr(fleet_bounds, "cases", lambda seeds: iter([("small", small)]))
    row = fleet_bounds.row_of("small", small)
    assert row["fleet_prices"] >= row["kv_volume"]
    assert fleet_bounds.schedule_row("small", small)["makespan"] >= row["fleet_prices"]
    fleet_bounds.main([])
    fleet_bounds.main(["--schedules"])
    printed = capsys.readouterr().out
    assert "fleet_prices" in printed
    assert "check_cpu_s" in printed
