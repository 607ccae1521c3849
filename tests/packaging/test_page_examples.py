"""The Python of each page runs as it stands; a fragment says in a comment why it cannot."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>.*?) -->\n)?"
    r"^```(?P<kind>python|\{code-cell\} ipython3)\n(?::tags:.*\n\n?)?(?P<code>.*?)^```",
    re.M | re.S,
)
SLOW = ("compare", "compare-and-search", "own-policy", "run", "vllm", "worker")
"""Pages with simulations of some seconds, or a model."""


def blocks(page):
    """Return why each block cannot run, or None, with its code."""
    return [(found["why"], found["code"]) for found in BLOCK.finditer(page.read_text())]


def with_python():
    """Yield each page that has ``python`` blocks."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        if "\n```python\n" in page.read_text():
            marks = [pytest.mark.full] if page.stem in SLOW else []
            yield pytest.param(page, id=page.stem, marks=marks)


@pytest.mark.parametrize("page", list(with_python()))
def test_the_blocks_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch):
    """Code cells run, too: ``python`` blocks of the same page may use their names."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path / "docs" if "code-cell" in page.read_text() else tmp_path)
    names = {"__name__": "page"}
    for why, code in blocks(page):
        if why is None:
            exec(compile(code, page.name, "exec"), names)
    assert len(names) > 2


def test_a_fragment_says_why_it_does_not_run():
    text = (ROOT / "docs" / "vllm.md").read_text()
    fragments = [why for why, _ in blocks(ROOT / "docs" / "vllm.md") if why]
    assert text.count("<!-- not run: ") == len(fragments)
    assert all(len(why.split()) > 1 for why in fragments)
