"""The Python of each page runs as it stands; a fragment says in a comment why it cannot."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>.*?) -->\n)?"
    r"^```(?P<kind>python|\{code-cell\} ipython3)\n"
    r"(?:---\n(?P<options>.*?)\n---\n|:tags:.*\n\n?)?(?P<code>.*?)^```",
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


DRAWS = re.compile(r"^(?:axes = |.*\.plot\()", re.M)
LOOKS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728")
"""Colours of matplotlib's cycle, which readers with colour blindness confuse."""


def test_every_picture_has_words_for_readers_who_do_not_see_it():
    pages = [ROOT / "README.md", ROOT / "LAYOUT.md", *sorted((ROOT / "docs").glob("*.md"))]
    shown = 0
    for page in pages:
        text = page.read_text()
        words = re.findall(r"!\[([^\]]*)\]\(", text)
        for found in BLOCK.finditer(text):
            if found["kind"] != "python" and DRAWS.search(found["code"]):
                words.append((found["options"] or "").partition("alt: ")[2])
        shown += len(words)
        assert [each for each in words if len(each.split()) < 4] == [], page.name
    assert shown > 30


def test_pictures_have_colours_that_readers_with_colour_blindness_tell_apart():
    pictures = sorted((ROOT / "docs" / "_static").glob("*.svg"))
    assert len(pictures) > 20
    for picture in pictures:
        assert not [each for each in LOOKS if each in picture.read_text().lower()], picture.name


def test_a_fragment_says_why_it_does_not_run():
    text = (ROOT / "docs" / "vllm.md").read_text()
    fragments = [why for why, _ in blocks(ROOT / "docs" / "vllm.md") if why]
    assert text.count("<!-- not run: ") == len(fragments)
    assert all(len(why.split()) > 1 for why in fragments)
