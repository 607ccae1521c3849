"""Modules that were renamed: the names that the documentation showed go on working, and say so."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize(("old", "new"), [("multi_cloud", "mico"), ("slices", "scls")])
def test_an_old_package_has_the_new_objects_and_warns(old, new):
    package, renamed = (import_module(f"orsched.heuristics.{name}") for name in (old, new))
    for name in renamed.__all__:
        with pytest.warns(DeprecationWarning, match=f"orsched.heuristics.{new}"):
            assert getattr(package, name) is getattr(renamed, name)
    with pytest.raises(AttributeError), pytest.warns(DeprecationWarning, match=new):
        _ = package.nothing
    assert not hasattr(package, "__path__")


def test_an_old_name_can_be_imported_from_its_module():
    with pytest.warns(DeprecationWarning, match="is now"):
        from orsched.heuristics.multi_cloud import ABLATION
    assert ABLATION is import_module("orsched.heuristics.mico").ABLATION
