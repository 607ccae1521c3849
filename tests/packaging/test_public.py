"""Everything exported exists, is documented, and is exported once."""

from __future__ import annotations

import importlib
import inspect
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]


def exported():
    """Pairs of package and name."""
    for package in PACKAGES:
        for name in getattr(importlib.import_module(package), "__all__", ()):
            yield package, name


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_a_docstring(package):
    assert (importlib.import_module(package).__doc__ or "").strip()


@pytest.mark.parametrize(("package", "name"), list(exported()))
def test_every_exported_name_exists_and_is_documented(package, name):
    thing = getattr(importlib.import_module(package), name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        doc = inspect.getdoc(thing) or ""
        # A dataclass without a docstring gets its signature as one.
        assert doc.strip(), f"{package}.{name} has no docstring"
        assert not doc.startswith(f"{name}("), f"{package}.{name} has no docstring"


@pytest.mark.parametrize(("package", "name"), list(exported()))
def test_every_public_method_is_documented(package, name):
    thing = getattr(importlib.import_module(package), name)
    if not inspect.isclass(thing):
        return
    for attribute, value in vars(thing).items():
        if attribute.startswith("_"):
            continue
        if inspect.isroutine(value) or isinstance(value, (property, classmethod, staticmethod)):
            assert inspect.getdoc(getattr(thing, attribute)), f"{name}.{attribute}"


def test_no_submodule_takes_the_place_of_a_public_name():
    """A module named like a function replaces it when imported, unless it can be called itself."""
    import orsched

    for package in PACKAGES:
        importlib.import_module(package)
    for name in orsched.__all__:
        found = getattr(orsched, name)
        assert not inspect.ismodule(found) or callable(found), name
    for path in (ROOT / "orsched").iterdir():
        if path.stem in orsched.__all__:
            assert callable(importlib.import_module(f"orsched.{path.stem}")), path.name
