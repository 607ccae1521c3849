"""Modules that were renamed: the names that the documentation showed go on working, and say so."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [("models.child", "models.killable_call", ("ChildOutcome", "Reason", "run_in_child"))],
)
def test_an_old_module_has_the_new_objects_and_warns(old, new, names):
    module, renamed = (import_module(f"orsched.{name}") for name in (old, new))
    for name in names:
        with pytest.warns(DeprecationWarning, match=f"is now orsched.{new}"):
            assert getattr(module, name) is getattr(renamed, name)
    with pytest.raises(AttributeError), pytest.warns(DeprecationWarning, match=new):
        _ = module.nothing


def test_an_old_name_can_be_imported_from_its_module():
    with pytest.warns(DeprecationWarning, match="is now"):
        from orsched.models.child import run_in_child
    assert run_in_child is import_module("orsched.models.killable_call").run_in_child
