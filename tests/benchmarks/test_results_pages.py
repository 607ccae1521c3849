"""The tables of the result pages are those of their CSV files, and these name their source."""

import os
import re

import pytest

from benchmarks import paper_pages, write_results
from benchmarks.write_results import (
    CHEAP,
    DOCS,
    NUMBER,
    PLACE,
    Table,
    filled,
    main,
    markdown,
    pages,
    printed_tables,
    read,
    record,
    write,
)  # fmt: skip
from orsched.instances.datasets import VARIABLE
from tests.refusals import refused

CPU_NAMES = r"AMD|EPYC|Intel|Xeon|Ryzen|shared cores"
DATES = r"\b20\d\d-\d\d-\d\d\b"
WRITTEN = "<!-- written by "
"""How a page begins its part that another command than ``write_results`` writes as a whole."""

RECORDED = [
    (page, place[1])
    for page in pages()
    for place in PLACE.findall((DOCS / f"results-{page}.md").read_text())
]


@pytest.mark.parametrize("page", pages())
def test_a_page_has_the_bytes_of_its_tables(page):
    text = (DOCS / f"results-{page}.md").read_text()
    assert filled(page) == text, f"python -m benchmarks.write_results {page}"
    assert text.count("<!-- table: ") == len(PLACE.findall(text)), "a table has no end"


def test_every_file_is_on_its_page_once():
    found = {(path.parent.name, path.stem) for path in DOCS.glob("results-data/*/*")}
    assert (sorted(RECORDED), len(RECORDED)) == (sorted(found), len(found))


def test_every_result_page_has_recorded_tables_or_is_written_as_a_whole():
    for path in DOCS.glob("results-*.md"):
        assert path.stem.removeprefix("results-") in pages() or WRITTEN in path.read_text()


@pytest.mark.parametrize("page", pages())
def test_dates_and_machines_stand_in_the_sources_alone(page):
    text = PLACE.sub("", (DOCS / f"results-{page}.md").read_text()).partition(WRITTEN)[0]
    assert re.findall(f"{DATES}|{CPU_NAMES}", text) == []


def test_other_pages_hold_no_dates_and_no_machines(repo_root):
    for path in [*DOCS.glob("*.md"), repo_root / "README.md", repo_root / "CONTRIBUTING.md"]:
        text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.S | re.M)
        if not path.name.startswith("results-"):
            assert re.findall(f"{DATES}|{CPU_NAMES}", text) == [], path.name


@pytest.mark.full
@pytest.mark.parametrize("which", CHEAP)
def test_a_cheap_table_is_what_its_command_prints_now(which):
    recorded = read(*which.split("/"))
    if VARIABLE in " ".join(recorded.source.get("note", [])) and not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} does not name the data sets")
    (command,) = recorded.source["command"]
    again = record(command, int(recorded.source.get("nth", ["1"])[0]), None)
    assert differences(recorded.rows, again.rows, CHEAP[which]) == []


def differences(rows, others, tolerance):
    """Return the cells that differ by more than a relative tolerance, CPU seconds left out."""
    if rows[0] != others[0] or len(rows) != len(others):
        return [rows[0], others[0]]
    return [
        (name, old, new)
        for one, two in zip(rows[1:], others[1:], strict=True)
        for name, old, new in zip(rows[0], one, two, strict=True)
        if "CPU" not in name and not close(old, new, tolerance)
    ]


def close(old, new, tolerance):
    first, second = ([float(found[0].replace(",", "").replace("\N{MINUS SIGN}", "-"))
                      for found in NUMBER.finditer(cell)] for cell in (old, new))  # fmt: skip
    if NUMBER.sub("", old) != NUMBER.sub("", new) or len(first) != len(second):
        return False
    return all(abs(a - b) <= tolerance * abs(a) for a, b in zip(first, second, strict=True))


PRINTED = """
== full_mip: a title of  two spaces
case      solver  proven  CPU s
8 x 3     scip         5   3.64
10 x 3    -            0      -
PASS  something: 3  (target)

   n  what it is
----  ----------
   7  a b
1200

| a | b |
| --- | ---: |
| x \\| y | 1 |
"""


def test_tables_are_found_in_what_a_program_prints():
    assert printed_tables(PRINTED) == [
        [["case", "solver", "proven", "CPU s"], ["8 x 3", "scip", "5", "3.64"],
         ["10 x 3", "-", "0", "-"]],
        [["n", "what it is"], ["7", "a b"]],
        [["a", "b"], ["x \\| y", "1"]],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "tolerance", "same"),
    [
        ("1,000 s", "1,001 s", 0.01, True),
        ("1,000 s", "1,001 s", 0, False),
        ("1,000 s", "1,000 s", 0, True),
        ("a 1", "b 1", 1, False),
        ("-0.5 %", "0.5 %", 0.5, False),
        ("-", "3", 1, False),
    ],
)
def test_a_cell_is_compared_in_words_and_numbers(old, new, tolerance, same):
    head = ["a", "CPU s"]
    found = differences([head, [old, "1"]], [head, [new, "2"]], tolerance)
    assert (found == []) == same


@pytest.fixture
def docs(tmp_path, monkeypatch):
    monkeypatch.setattr(write_results, "DOCS", tmp_path)
    rows = [["method", "JCT s", "share"], ["**fcfs** | x", "1,200.5", "+3 %"], ["`sjf`", "-", ""]]
    write("p", "t", Table({"command": ["python -m a", "b | c"], "date": ["2026-01-02"]}, rows))
    (tmp_path / "results-p.md").write_text("# P\n\n<!-- table: t -->\nold\n<!-- end -->\nend\n")
    return tmp_path


def test_a_table_is_filled_in_with_its_source(docs, capsys):
    assert main(["--check"]) == 1
    assert "old" in (docs / "results-p.md").read_text()
    assert main([]) == 0
    assert (docs / "results-p.md").read_text() == (
        "# P\n\n<!-- table: t -->\n"
        "| method | JCT s | share |\n| --- | ---: | ---: |\n"
        "| **fcfs** \\| x | 1,200.5 | +3 % |\n| `sjf` | - |  |\n\n"
        "*Source: `python -m a`, `b | c`; 2026-01-02; [t.csv](results-data/p/t.csv).*\n"
        "<!-- end -->\nend\n"
    )
    assert main(["p", "--check"]) == 0
    assert capsys.readouterr().out.split("\n") == [
        "results-p.md", "results-p.md", "every table is as recorded", "",
    ]  # fmt: skip


def test_a_command_is_recorded(docs):
    program = "print('a  b'); print('1  2'); print(); print('c  d'); print('3  4')"
    main(["--record", "p", "u", "--nth", "2", "--seeds", "0 to 9", "--", "python", "-c", program])
    table = read("p", "u")
    assert table.rows == [["c", "d"], ["3", "4"]]
    assert table.source["nth"] == ["2"]
    assert table.source["seeds"] == ["0 to 9"]
    assert table.source["command"][0].startswith("python -c 'print")
    assert {"commit", "machine", "date"} <= set(table.source)
    refused(
        "prints 2 tables",
        main,
        ["--record", "p", "u", "--nth", "3", "--", "python", "-c", program],
        kind=SystemExit,
    )
    refused(
        "prints no table",
        main,
        ["--record", "p", "u", "--", "python", "-c", "1/0"],
        kind=SystemExit,
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "names no command"),
        ("# command: x\na,b\n", "no rows"),
        ("# command: x\na,b\n1\n", "row 2 has 1 cells, the header 2"),
        ("# command: x\n# host: y\na,b\n1,2\n", "the key 'host' is unknown"),
    ],
)
def test_a_file_that_is_not_complete_is_refused(text, said, docs):
    (docs / "results-data/p/t.csv").write_text(text)
    refused(said, markdown, "p", "t", kind=SystemExit)


def test_a_table_without_a_file_is_refused(docs):
    refused("has no file", markdown, "p", "nothing", kind=SystemExit)


def test_reruns_of_a_paper_are_recorded_where_its_page_has_a_place(monkeypatch, tmp_path):
    monkeypatch.setattr(paper_pages, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(write_results, "DOCS", tmp_path / "docs")
    places = "".join(f"<!-- table: {name} -->\n<!-- end -->\n" for name in ("table-3", "printed"))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "results-pang.md").write_text(places)
    only = [each for each in paper_pages.entries("pang") if each.kind == "table"]
    monkeypatch.setattr(paper_pages, "entries", lambda name: only)
    monkeypatch.setattr(paper_pages, "CHANGES", {})
    paper_pages.record("pang", None, quick=False)
    written = {path.stem for path in tmp_path.rglob("*.csv")}
    assert written == {"table-3", "printed"}
    table = read("pang", "printed")
    assert table.source["command"] == ["orsched paper pang --figure N --full"]
    assert ["Table 3", "prompt mean", "68.43", "68.43", "Table III"] in table.rows
