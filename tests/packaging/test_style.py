"""Sentences that users see: first lines that ``orsched info`` prints, and words to avoid."""

import ast
import inspect
import re
from importlib import import_module

import pytest

from benchmarks.prose import Text, banned, faults, library_strings, sentences, texts
from orsched.common.registry import names, resolve
from orsched.instances.catalog import GENERATORS
from orsched.simulator.policy import Policy
from tests.packaging.layers import modules

AVOIDED = re.compile(r"\b(nobody|whoever|somebody)\b", re.IGNORECASE)
"""Words for which the actor is named instead: no policy, each worker, a user."""


def policies(kind=Policy):
    """Yield the classes of policies that orsched has, private ones left out."""
    for each in kind.__subclasses__():
        if each.__module__.startswith("orsched.heuristics") and not each.__name__.startswith("_"):
            yield each
        yield from policies(each)


def first_line(what):
    return (inspect.getdoc(what) or "").partition("\n")[0]


def test_the_first_line_of_a_policy_a_generator_and_a_cost_model_is_a_sentence(repo_root):
    for name in modules(repo_root):
        if name.startswith("heuristics."):
            import_module(f"orsched.{name}")
    costs = (resolve("cost_models", name) for name in names("cost_models"))
    shown = [*{*policies()}, *GENERATORS.values(), *costs]
    assert len(shown) > 30
    assert [each for each in shown if not first_line(each).endswith(".")] == []


@pytest.mark.parametrize("name", names("methods"))
def test_the_summary_of_a_method_is_one_line(name):
    summary = resolve("methods", name).summary
    assert 10 < len(summary) < 100
    assert summary == " ".join(summary.split())
    assert summary[-1] not in ".,:;"


def test_docstrings_and_pages_name_who_acts(repo_root):
    pages = [repo_root / "README.md", *sorted((repo_root / "docs").glob("*.md"))]
    found = [page.name for page in pages if AVOIDED.search(page.read_text(encoding="utf-8"))]
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    for name, path in modules(repo_root).items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = ast.get_docstring(node) if isinstance(node, documented) else None
            if AVOIDED.search(text or ""):
                found.append(f"{name}:{getattr(node, 'lineno', 1)}")
    assert found == []


STRINGS = 68
"""The most strings of the library with banned words; this number only falls."""


@pytest.mark.parametrize("text", texts(), ids=lambda text: text.name)
def test_what_users_read_is_plain(text):
    assert faults(text) == [], "python -m benchmarks.prose --faults NAME"


def test_the_strings_of_the_library_are_plain():
    found = list(library_strings())
    assert len(found) <= STRINGS, "python -m benchmarks.prose --strings"


LONG = " ".join(["word"] * 41)


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ("Nobody waits.", 1),
        ("It is no number. There is no number. It is no longer there.", 1),
        ("Is there a bound? It is there, as it stands. It stands for a bound.", 2),
        (f"A {LONG}. Short is good here.", 1),
        ("```text\nnobody is no number\n```\n\n| nobody |\n| --- |\n", 0),
        (f"See `{LONG}` and [](a.md). A list has items:\n\n- {LONG[:100]}\n- {LONG[:100]}\n", 0),
        (" ".join(f"A {LONG[:150]} {k}." for k in range(9)), 1),
    ],
)
def test_banned_words_and_long_sentences_are_found(said, count):
    assert len(faults(Text("docs/a.md", said, "page"))) == count


def test_code_tables_and_formulas_are_no_prose():
    text = "# A title\n\nGive $x\n+ y$ to `a. B` (see et al. 3). It ends\n$$z. Y$$\nhere.\n"
    assert sentences(text) == ["Give Formula to Code (see et al 3).", "It ends Formula here."]
    assert banned("`stands` stands") == ["Code stands"]
