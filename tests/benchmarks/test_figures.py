"""The figures of the result pages are drawn from the tables that stand there now."""

import re

import pytest

from benchmarks import figures
from benchmarks.figures import FIGURES, main, number
from tests.refusals import refused


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.page)
def test_a_figure_is_of_the_tables_of_its_page(figure):
    assert f"(_static/{figure.path.name})" in (figures.DOCS / f"{figure.page}.md").read_text()
    assert f"<dc:source>{figure.digest()}</dc:source>" in figure.path.read_text(), (
        f"the tables changed: python -m benchmarks.figures {figure.page}"
    )
    assert figure.path.stat().st_size < 60_000


def test_another_number_is_another_digest(monkeypatch, tmp_path):
    (tmp_path / "pang.md").write_text(
        (figures.DOCS / "pang.md").read_text().replace("| 199.06 |", "| 199.07 |")
    )
    (pang,) = (figure for figure in FIGURES if figure.page == "pang")
    before = pang.digest()
    monkeypatch.setattr(figures, "DOCS", tmp_path)
    assert pang.digest() != before


def test_the_command_draws_what_is_asked_for(monkeypatch, tmp_path, capsys):
    pages = tmp_path / "docs"
    (pages / "_static").mkdir(parents=True)
    (pages / "pang.md").write_text((figures.DOCS / "pang.md").read_text())
    monkeypatch.setattr(figures, "DOCS", pages)
    assert main(["pang"]) == 0
    assert capsys.readouterr().out == "docs/_static/figure-pang.svg\n"
    drawn = (pages / "_static" / "figure-pang.svg").read_text()
    for word in ("orsched", "Pang et al.", "proven lower bound", "hybrid"):
        assert word in drawn
    refused("", main, ["nothing"], kind=SystemExit)


def test_numbers_of_cells():
    assert (number("**176.07**"), number("−3.3 ±1.8 (scls_continuous)", 1)) == (176.07, 1.8)


TABLES_ALONE = {"regret", "tried-and-left-out"}
"""Pages whose tables name what no picture could: thirty rows of methods, or code that is gone."""


def test_every_page_of_results_has_a_picture(repo_root):
    docs = repo_root / "docs"
    listed = re.findall(r"^- \[\]\(([\w-]+)\.md\)", (docs / "results.md").read_text(), re.M)
    assert len(listed) > 4
    for page in set(listed) - TABLES_ALONE:
        text = (docs / f"{page}.md").read_text()
        drawn = re.findall(r"!\[.+?\]\((_static/[\w.-]+)\)", text)
        assert drawn or "{code-cell}" in text, page
        for name in drawn:
            assert (docs / name).is_file(), name
