"""The expansion compiled with numba (extra ``fast``): the same source, loaded once more.

Compiling takes seconds the first time on a machine; then it lies in numba's cache beside the
source. So it happens in a thread, while the search begins in plain Python.
"""

from __future__ import annotations

import logging
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

from orsched.models.best_first import expansion, filling
from orsched.models.best_first.packed import Packed
from orsched.models.module_copy import module_copy

if TYPE_CHECKING:
    from types import ModuleType

    from orsched.models.best_first.states import States

_LOG = logging.getLogger("orsched")
_PLACE = "orsched.models.best_first._compiled_"


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


def _compile() -> ModuleType:
    """Compile both sources; the search then takes what it needs of the other one from there."""
    packing = _compiled(filling, {})
    return _compiled(expansion, {"packs": packing.packs})


def _compiled(plain: ModuleType, names: dict[str, Any]) -> ModuleType:
    """Load a source again, with every function compiled and some names taken from elsewhere."""
    import numba

    name = _PLACE + plain.__name__.rpartition(".")[2]
    module = module_copy(plain, name)
    for key, item in names.items():
        setattr(module, key, item)
    # Without nrt, which only allocation needs, no references are counted: several times faster.
    options: dict[str, Any] = {"nogil": True, "cache": True, "_nrt": False}
    for key, item in list(vars(module).items()):
        if callable(item) and getattr(item, "__module__", None) == name:
            setattr(module, key, numba.njit(item, **options))
    return module
