"""Sentences that users see: first lines that ``orsched info`` prints, and words to avoid."""

import ast
import inspect
import re
from importlib import import_module

import pytest

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
