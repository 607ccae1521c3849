"""A module's source loaded once more, to be compiled beside the plain one."""

from __future__ import annotations

import sys
from importlib import util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def module_copy(plain: ModuleType, name: str) -> ModuleType:
    """Return a second module of the same source, under a name of its own."""
    spec = util.spec_from_file_location(name, plain.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
