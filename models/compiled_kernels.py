"""Kernels compiled with numba (extra ``fast``): the plain ones' own source, loaded once more.
Compiling takes seconds the first time on a machine; then it lies in numba's cache beside the
source. So it happens in a thread, while the search goes on in plain Python."""

from __future__ import annotations

import logging
import os
import sys
import threading
from contextlib import suppress
from functools import cache
from importlib import util
from importlib.util import find_spec
from inspect import isfunction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_LOG = logging.getLogger("orsched")
_LONG = 2.0
"""Seconds after which a wait is said."""


class Kernels:
    """The compiled module of a search, once it is ready. ``module``: it; until then, and where it
    cannot be compiled, what stands in for it, or None."""

    def __init__(
        self, compile_it: Callable[[], Any], what: str, stand_in: Any = None, missing: str = ""
    ) -> None:
        """Begin to load. ``what`` cannot be compiled, in a warning; ``missing``: what is said
        without numba."""
        self.module = self._stand_in = stand_in
        self._compile, self._what, self._missing = compile_it, what, missing
        self._thread = threading.Thread(target=self._load, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return when it is compiled, or cannot be."""
        self._thread.join(_LONG)
        if self._thread.is_alive():
            _LOG.info("numba compiles the search, once on a machine; this can take a minute")
            self._thread.join()

    def get(self, wait: bool) -> Any:
        """Return the module as it is now, or once it has loaded."""
        if wait:
            self.wait()
        return self.module

    @property
    def is_compiled(self) -> bool:
        """Whether the module is the compiled one."""
        return self.module is not self._stand_in

    @property
    def is_loading(self) -> bool:
        """Whether it is being compiled."""
        return self._thread.is_alive()

    def entry(self, name: str) -> Any:
        """Return a function of the module; None as long as there is none."""
        return getattr(self.module, name, None)

    def _load(self) -> None:
        try:
            self.module = self._compile()
        except ModuleNotFoundError:
            if self._missing:
                _LOG.info(self._missing)
        except Exception as error:  # numba fails in many ways; the plain kernels are always there
            _LOG.warning("numba cannot compile %s: %s", self._what, error)


@cache
def suggest_numba(faster: str) -> None:
    """Say, once in a process, how much faster a search would be with numba where it is missing."""
    if find_spec("numba") is None:
        _LOG.warning("%s with numba: pip install 'orsched[fast]'", faster)


def compiled_copies(*sources: ModuleType, **options: Any) -> ModuleType:
    """Load sources again with every function compiled; return the last one. Each takes what it
    imports from the others compiled, so those come before it. Numba's cache asks for the age of a
    function's own file; it is given that of all, since an edit of what a function calls makes what
    is cached of it wrong, too."""
    import numba

    files = [os.stat(str(source.__file__)) for source in sources]
    ages = tuple((file.st_mtime, file.st_size) for file in files)
    made: dict[str, ModuleType] = {}
    for source in sources:
        module = made[source.__name__] = _loaded_again(source)
        for key, item in list(vars(module).items()):
            if not isfunction(item):
                continue
            if item.__module__ in made:
                setattr(module, key, getattr(made[item.__module__], key))
            elif item.__module__ == module.__name__:
                kernel = numba.njit(item, nogil=True, cache=True, **options)
                with suppress(AttributeError):  # another numba, or one that is told not to compile
                    kernel._cache._cache_file._source_stamp = ages
                setattr(module, key, kernel)
    return module


def _loaded_again(plain: ModuleType) -> ModuleType:
    """Return a second module of the same source, under a name of its own."""
    package, _, stem = plain.__name__.rpartition(".")
    spec = util.spec_from_file_location(f"{package}._compiled_{stem}", plain.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
