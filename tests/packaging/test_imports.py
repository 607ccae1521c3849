"""Imports go one way: from the command line down to the words."""

import re
from graphlib import TopologicalSorter
from importlib import import_module

import pytest

from tests.packaging.layers import LAYERS, WAY, imports, layer_of, modules
from tests.packaging.layers_picture import svg


@pytest.fixture(scope="module")
def found(repo_root):
    return imports(repo_root)


def up(found):
    return [i for i in found if 0 <= layer_of(i.importer) < layer_of(i.imported or "cli")]


def test_every_module_has_a_layer_and_every_entry_is_a_module_and_stands_once(repo_root):
    known = modules(repo_root)
    assert len(known) > 300
    missing = [name for name in known if name and layer_of(name) < 0]
    assert missing == [], "give it a layer in tests/packaging/layers.py"
    named = [name for layer in LAYERS for name in layer.modules]
    assert len(named) == len(set(named))
    assert set(named) <= set(known)


def test_no_import_goes_up(found):
    wrong = {(i.importer, i.imported) for i in up(found)}
    assert wrong == set(), "move it, pass it in, or look it up by name (common/registry.py)"


def test_there_is_no_circle_of_imports(found):
    graph = {}
    for each in found:
        if each.importer != each.imported:
            graph.setdefault(each.importer, set()).add(each.imported)
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError


def test_reading_sees_links_functions_and_types(found):
    seen = {(i.importer, i.imported): (i.late, i.typing) for i in found}
    assert ("models.bounds.bounds", "data.instance") in seen  # through the link orsched/models
    assert seen["solving.solver", "solving.comparison"] == (False, False)
    assert seen["data.instance", "data.links"] == (False, True)
    assert seen["data.instance", "data.workers"] == (False, False)
    assert any(late for late, _ in seen.values())


@pytest.mark.parametrize("stop", WAY, ids=lambda stop: stop.where)
def test_the_way_of_a_request_is_through_what_exists(stop):
    module, _, name = stop.where.partition(":")
    assert LAYERS[layer_of(module)].name == stop.layer
    found = import_module(f"orsched.{module}")
    for part in name.split("."):
        found = getattr(found, part)


def test_the_picture_is_drawn_from_the_table(repo_root):
    drawn = (repo_root / "docs" / "_static" / "layers.svg").read_text(encoding="utf-8")
    assert drawn == svg(), "python -m tests.packaging.layers_picture draws it anew"


@pytest.mark.parametrize("name", ["LAYOUT.md", "CONTRIBUTING.md"])
def test_the_files_that_the_pages_on_the_code_name_exist(name, repo_root):
    named = re.findall(r"`([\w/]+(?:\.py|/))`", (repo_root / name).read_text())
    assert named
    known = [path for path in named if "/" in path.rstrip("/") or path.endswith("/")]
    beside = repo_root / "benchmarks"  # CONTRIBUTING names its folders without it
    missing = [p for p in known if not ((repo_root / p).exists() or (beside / p).exists())]
    assert missing == []
