"""What was renamed: the old names that the documentation showed go on working, and say so."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("models.child", "models.killable_call", ("ChildOutcome", "Reason", "run_in_child")),
        ("runner.fleet", "runner.worker_pool", ("RunSettings", "require_fit")),
    ],
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


@pytest.mark.parametrize("module", ["orsched.runner", "orsched.runner.execution"])
def test_the_result_of_a_run_has_its_old_name_as_well(module):
    found = import_module(module)
    with pytest.warns(DeprecationWarning, match=rf"is now {module}\.RunResult") as said:
        assert found.Ran is found.RunResult
    assert said[0].filename == __file__
    assert "Ran" not in getattr(found, "__all__", ())
