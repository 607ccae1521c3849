"""The tables of the pages are what the commands on them print; figures are drawn from them."""

import os
import re

import pytest

from benchmarks import figures
from benchmarks.figures import FIGURES, main, number
from benchmarks.pages import PARTS, Part, numbers, printed, said, stray, strays, tables
from orsched.instances.datasets import VARIABLE
from tests.refusals import refused

PAGE = """
## One

| method | makespan s | K | Pang |
| --- | ---: | ---: | --- |
| fcfs | 199.06 | 1,724 | 201.00 s |
| **GPT-2** | +0.3 ± 0.1 % | 5 | |
| paper | 3 | 4 | |

## Two

| a |
| --- |
| 7 |
"""
PRINTED = ["method  information  seeds", "fcfs  none  10  199.06  1,724.40  5 us", "x 0.30 ±0.12 5"]


def test_the_tables_of_a_section_are_its_own():
    assert [len(table) for table in tables(PAGE, "One")] == [4]
    assert (tables(PAGE, "Two"), tables(PAGE, "Three")) == ([[["a"], ["7"]]], [])


def test_tables_that_stand_as_they_are_printed_are_tables():
    text = """
## One

```console
$ program  # not a heading of two  cells
```

```text
== seeds 0 to 4

policy           mean s  p99 over sjf, %
gittins, no aging  8.30  -4.7 [-9.9, +0.6]

risk  mean s
0     6.53
```

## Two
"""
    first, second = tables(text, "One")
    assert second == [["risk", "mean s"], ["0", "6.53"]]
    assert stray(first, ["gittins, no aging  x  8.30  -4.7 [-9.9, +0.6]"]) == []
    assert stray(first, ["gittins, no aging  x  8.30  -4.7 [-9.8, +0.6]"]) == [
        "8.30 | -4.7 [-9.9, +0.6]"
    ]
    assert tables(text, "Two") == []


@pytest.mark.parametrize(
    ("old", "new"), [("199.06", "199.07"), ("1,724", "1,725"), ("+0.3", "-0.3"), ("| 5", "| 6")]
)
def test_a_number_that_is_not_printed_is_found(old, new):
    assert stray(tables(PAGE, "One")[0], PRINTED) == []
    (row,) = stray(tables(PAGE.replace(old, new), "One")[0], PRINTED)
    assert new.strip("| ") in row


def test_numbers_are_rounded_as_the_page_has_them_and_never_the_other_way():
    assert said(["1724"], ["1724.4"])
    assert said(["+1.4"], ["1.41"])
    assert not said(["1724.4"], ["1724"])
    assert not said(["2", "1"], ["1", "2"])
    # names are no numbers
    assert numbers("GPT-2, p95, LLaMA2, -3.5 % and 1,024..2,048") == ["-3.5", "1024", "2048"]


def test_the_commands_and_sections_are_on_the_pages(repo_root):
    for part in PARTS:
        text = (repo_root / "docs" / part.page).read_text()
        for heading in part.headings:
            assert tables(text, heading), f"{part.page}: {heading}"


@pytest.mark.full
@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.page} {part.headings[0]}")
def test_the_page_has_what_its_command_prints(part):
    if part.data and not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} does not name the data sets")
    assert strays(part) == []


@pytest.mark.parametrize("data", [False, True])
def test_commands_see_the_data_sets_only_where_the_page_does(data, monkeypatch):
    monkeypatch.setenv(VARIABLE, "a folder")
    words = f"python -c 'import os; print(os.environ.get(\"{VARIABLE}\"))'"
    assert printed(Part("page.md", words, (), data=data)) == ["a folder" if data else "None"]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.page)
def test_a_figure_is_of_the_tables_of_its_page(figure):
    assert f"(_static/{figure.path.name})" in (figures.DOCS / f"{figure.page}.md").read_text()
    assert f"<dc:source>{figure.digest()}</dc:source>" in figure.path.read_text(), (
        f"the tables changed: python -m benchmarks.figures {figure.page}"
    )
    assert figure.path.stat().st_size < 60_000


def test_another_number_is_another_digest(monkeypatch, tmp_path):
    (tmp_path / "results-pang.md").write_text(
        (figures.DOCS / "results-pang.md").read_text().replace("| 3.42 |", "| 3.43 |")
    )
    (pang,) = (figure for figure in FIGURES if figure.page == "results-pang")
    before = pang.digest()
    monkeypatch.setattr(figures, "DOCS", tmp_path)
    assert pang.digest() != before


def test_the_command_draws_what_is_asked_for(monkeypatch, tmp_path, capsys):
    pages = tmp_path / "docs"
    (pages / "_static").mkdir(parents=True)
    (pages / "results-pang.md").write_text((figures.DOCS / "results-pang.md").read_text())
    monkeypatch.setattr(figures, "DOCS", pages)
    assert main(["results-pang"]) == 0
    assert capsys.readouterr().out == "docs/_static/figure-results-pang.svg\n"
    drawn = (pages / "_static" / "figure-results-pang.svg").read_text()
    for word in ("orsched", "Pang et al.", "pang-hybrid"):
        assert word in drawn
    refused("", main, ["nothing"], kind=SystemExit)


def test_numbers_of_cells():
    assert (number("**176.07**"), number("−3.3 ±1.8 (scls_continuous)", 1)) == (176.07, 1.8)


TABLES_ALONE = {"results-readings", "results-tried-and-left-out"}
"""Pages whose tables name what no picture could: thirty rows of methods, or code that is gone."""


def test_every_page_of_results_has_a_picture(repo_root):
    docs = repo_root / "docs"
    _, _, block = (docs / "index.md").read_text().partition(":caption: Results\n")
    listed = re.findall(r"^([\w-]+)$", block.partition("```")[0], re.M)
    assert len(listed) > 4
    for page in set(listed) - TABLES_ALONE:
        text = (docs / f"{page}.md").read_text()
        drawn = re.findall(r"!\[.+?\]\((_static/[\w.-]+)\)", text)
        assert drawn or "{code-cell}" in text, page
        for name in drawn:
            assert (docs / name).is_file(), name
