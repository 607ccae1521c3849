"""The loops of the packing compiled with numba (extra ``fast``), from the plain ones' own source.

Compiling takes seconds the first time on a machine; then it lies in numba's cache beside the
source. So it happens in a thread, while the search continues in plain Python.
"""

from __future__ import annotations

import logging
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.models.module_copy import module_copy
from orsched.models.pcmax import belief_propagation, exchanges

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_LOG = logging.getLogger("orsched")
_NAMES = "orsched.models.pcmax._compiled_"


class Compiled:
    """A compiled module, once it is ready."""

    def __init__(self, compile_it: Callable[[], ModuleType]) -> None:
        self._module: ModuleType | None = None
        self._compile = compile_it
        self._thread = threading.Thread(target=self._load, daemon=True)
        self._thread.start()

    def get(self, wait: bool) -> Any:
        """Return the compiled module; None without numba, or if not ready and not waited for."""
        if wait:
            self._thread.join()
        return self._module

    def _load(self) -> None:
        try:
            self._module = self._compile()
        except ImportError:
            _LOG.info("packing proves more with numba: pip install orsched[fast]")
        except Exception as error:  # numba fails in many ways; there is a way without
            _LOG.warning("numba cannot compile loops of the packing: %s", error)


@cache
def compiled() -> Compiled:
    """Return the compiled loops of ``belief_propagation``; the first call starts to load them."""
    return Compiled(_belief_propagation)


@cache
def compiled_exchanges() -> Compiled:
    """Return the compiled loops of ``exchanges``; the first call starts to load them."""
    return Compiled(_exchanges)


def _belief_propagation() -> ModuleType:
    module = _compile(belief_propagation, ("choose", "search", "pass_messages"))
    none, zero = np.zeros(1, dtype=np.int64), np.zeros(1)
    module.pass_messages(np.zeros(2, np.int64), none, zero, zero, zero, 1)
    module.search(np.zeros(2, np.int64), none, none, none, none, none.copy(), 0, none, none)
    return module


def _exchanges() -> ModuleType:
    names = ("subsets", "best_relief", "any_change", "swap", "reliever", "changer", "walk")
    module = _compile(exchanges, names)
    row, table = np.zeros(1, dtype=np.int64), np.zeros((1, 1 << exchanges.WIDTH), dtype=np.int64)
    jobs = np.zeros((1, exchanges.WIDTH), dtype=np.int64)
    clients = exchanges.Clients(jobs, row, row.copy(), table, table.copy(), row.copy())
    module.subsets(clients, 0, np.zeros(1), 0)
    module.walk(clients, np.zeros(1), 0)
    return module


def _compile(plain: ModuleType, names: tuple[str, ...]) -> ModuleType:
    """Load a source again, with these functions compiled: each after what it calls."""
    import numba

    module = module_copy(plain, _NAMES + plain.__name__.rpartition(".")[2])
    for name in names:
        function = numba.njit(getattr(module, name), nogil=True, cache=True)
        setattr(module, name, function)
    return module
