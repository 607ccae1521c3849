"""Figures are drawn from the tables of their pages."""

import re

import pytest

from benchmarks import figures
from benchmarks.figures import FIGURES, main, number
from benchmarks.pages import numbers, tables
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
    assert first[1] == ["gittins, no aging", "8.30", "-4.7 [-9.9, +0.6]"]
    assert tables(text, "Two") == []


def test_numbers_are_those_of_cells_and_names_are_none():
    assert numbers("GPT-2, p95, LLaMA2, -3.5 % and 1,024..2,048") == ["-3.5", "1024", "2048"]


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
