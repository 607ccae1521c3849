"""The expansion compiled with numba (extra ``fast``): the same source, loaded once more.

Compiling takes seconds the first time on a machine; then it lies in numba's cache beside the
source. So it happens in a thread, while the search begins in plain Python.
"""

from __future__ import annotations

import logging
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

from orsched.models.best_first import expansion
from orsched.models.best_first.packed import Packed
from orsched.models.module_copy import module_copy

if TYPE_CHECKING:
    from orsched.models.best_first.states import States

_LOG = logging.getLogger("orsched")
_NAME = "orsched.models.best_first._compiled_expansion"


class Engine:
    """The compiled module, once it is ready."""

    def __init__(self, example: States) -> None:
        self.module: Any = None
        self._example = example
        self._thread = threading.Thread(target=self._load, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return when it is compiled, or cannot be."""
        self._thread.join()

    def _load(self) -> None:
        try:
            module = _compile()
            search = Packed(self._example, 2**60, 0, 2**60, engine=module)
            search.run(lambda: True, lambda: False)  # the first call compiles
            search.grow()
        except ModuleNotFoundError:
            return
        except Exception as error:  # numba fails in many ways; the plain search is always there
            _LOG.warning("numba cannot compile the best-first search, it runs slower: %s", error)
            return
        self.module = module


@cache
def _engines() -> list[Engine]:
    return []


def engine(example: States) -> Engine:
    """Return the engine of this process; the first call starts to load it, by an example."""
    known = _engines()
    if not known:
        known.append(Engine(example))
    return known[0]


def _compile() -> Any:
    """Load the source of the expansion again, with every function compiled."""
    import numba

    module = module_copy(expansion, _NAME)
    # Without nrt, which only allocation needs, no references are counted: several times faster.
    options: dict[str, Any] = {"nogil": True, "cache": True, "_nrt": False}
    for name, item in list(vars(module).items()):
        if callable(item) and getattr(item, "__module__", None) == _NAME:
            setattr(module, name, numba.njit(item, **options))
    return module
