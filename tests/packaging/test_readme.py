"""README and start page show what their commands print, and their links lead somewhere."""

from __future__ import annotations

import re

import pytest

from benchmarks import readme

PAGES = [*readme.PAGES, "examples/README.md"]


@pytest.mark.parametrize("name", readme.PAGES)
def test_the_output_is_what_the_commands_print(name, repo_root):
    text = (repo_root / name).read_text()
    assert len(readme.BLOCK.findall(text)) == 2, name
    assert readme.current(text) == text, "python -m benchmarks.readme"


def test_other_output_is_found():
    page = "```console\n$ orsched --version\norsched 0\n```\n"
    assert readme.BLOCK.findall(page) == [("$ orsched --version\n", "orsched 0\n")]
    assert readme.BLOCK.findall("```console\n$ orsched info\n$ orsched data\n```\n") == []


def test_the_picture_is_there_and_small(repo_root):
    assert readme.PICTURE.stat().st_size < 60_000
    for name, prefix in (("README.md", "docs/"), ("docs/index.md", "")):
        assert f"({prefix}_static/{readme.PICTURE.name})" in (repo_root / name).read_text()


@pytest.mark.parametrize("name", PAGES)
def test_the_links_lead_somewhere(name, repo_root):
    page = repo_root / name
    targets = re.findall(r"\]\(([^)\s#]+)", page.read_text())
    for target in targets:
        if target.startswith("http"):
            assert target.startswith("https://arxiv.org/abs/"), target
        else:
            assert (page.parent / target).exists(), target


def test_the_readme_is_short(repo_root):
    text = (repo_root / "README.md").read_text()
    assert len(text.splitlines()) <= 92
    assert "pip install" in text
    assert "This is for you if" in text
    assert text.count("![") == 1


def test_no_page_runs_a_plan_for_another_machine(repo_root):
    """A real worker follows the plan of an instance that was calibrated for it."""
    pages = [repo_root / "README.md", *(repo_root / "docs").glob("*.md")]
    for page in pages:
        for line in page.read_text().splitlines():
            if line.startswith("$ orsched run pang"):
                assert "--worker virtual" in line, page.name
