"""Imports go one way: from the command line down to the words."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from tests.packaging.layers import LATE, LAYERS, WAY, imports, layer_of, modules
from tests.packaging.layers_picture import svg


@pytest.fixture(scope="module")
def found(repo_root):
    return imports(repo_root)


def up(found):
    """Return the imports of a higher layer."""
    return [i for i in found if 0 <= layer_of(i.importer) < layer_of(i.imported or "cli")]


def test_every_module_has_a_layer(repo_root):
    known = modules(repo_root)
    assert len(known) > 300
    missing = [name for name in known if name and layer_of(name) < 0]
    assert missing == [], "give it a layer in tests/packaging/layers.py"


def test_every_entry_of_the_table_is_a_module_and_stands_once(repo_root):
    named = [name for layer in LAYERS for name in layer.modules]
    assert len(named) == len(set(named))
    assert set(named) <= set(modules(repo_root))


def test_what_is_imported_at_the_top_of_a_module_is_not_above_it(found):
    wrong = {(i.importer, i.imported) for i in up(found) if not i.late}
    assert wrong == set(), "move it, or import it where it is used and say why in LATE"


def test_imports_of_what_is_above_are_listed(found):
    late = {(i.importer, i.imported) for i in up(found) if i.late}
    assert late - set(LATE) == set(), "an import inside a function goes up and is not in LATE"
    assert set(LATE) - late == set(), "LATE lists what is no longer imported"


def test_reading_sees_links_functions_and_types(found):
    seen = {(i.importer, i.imported): (i.late, i.typing) for i in found}
    assert seen["models.bounds", "instance"] is not None  # through the link orsched/models
    assert seen["instance", "report.tables"] == (True, False)
    assert seen["instance", "links"] == (False, True)
    assert seen["instance", "workers"] == (False, False)


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


@pytest.mark.parametrize("name", ["docs/layout.md", "CONTRIBUTING.md"])
def test_the_files_that_the_pages_on_the_code_name_exist(name, repo_root):
    named = re.findall(r"`([\w/]+(?:\.py|/))`", (repo_root / name).read_text())
    assert named
    known = [path for path in named if "/" in path.rstrip("/") or path.endswith("/")]
    beside = repo_root / "benchmarks"  # CONTRIBUTING names its folders without it
    missing = [p for p in known if not ((repo_root / p).exists() or (beside / p).exists())]
    assert missing == []
