"""The moves compiled with numba (extra ``fast``): the same source, loaded once more.

Compiling takes seconds the first time on a machine; then it lies in numba's cache beside the
source. So it happens in a thread, while the search continues in plain Python.
"""

from __future__ import annotations

import logging
import threading
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.models.module_copy import module_copy
from orsched.models.windows import moves as plain
from orsched.models.windows.tables import Tables

if TYPE_CHECKING:
    from types import ModuleType

    from orsched.models.windows.structure import Windows

_LOG = logging.getLogger("orsched")
_NAME = "orsched.models.windows._compiled_moves"


class Compiled:
    """The compiled ``run_moves``, once it is ready."""

    def __init__(self) -> None:
        self.run_moves: Any = None
        self.swap_requests: Any = None
        self._thread = threading.Thread(target=self._load, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return when the moves are compiled, or cannot be."""
        self._thread.join()

    @property
    def is_loading(self) -> bool:
        """Whether they are being compiled."""
        return self._thread.is_alive()

    def _load(self) -> None:
        try:
            module = _compile()
        except ModuleNotFoundError:
            return
        except Exception as error:  # numba fails in many ways; the plain moves are always there
            _LOG.warning("numba cannot compile the moves, windows runs slower: %s", error)
            return
        self.swap_requests = module.swap_requests
        self.run_moves = module.run_moves


@cache
def suggest_numba() -> None:
    """Say, once in a process, what is missing where there is no numba."""
    if find_spec("numba") is None:
        _LOG.warning("windows is about 100 times faster with numba: pip install 'orsched[fast]'")


@cache
def compiled() -> Compiled:
    """Return the compiled moves of this process; the first call starts to load them."""
    return Compiled()


def _compile() -> ModuleType:
    """Load the source of the moves again, with every function compiled."""
    import numba

    module = module_copy(plain, _NAME)
    module.index = np.uint64  # type: ignore[attr-defined]
    # Without nrt, which only allocation needs, no references are counted: six times faster.
    options: dict[str, Any] = {"nogil": True, "cache": True, "_nrt": False}
    for name, item in list(vars(module).items()):
        if callable(item) and getattr(item, "__module__", None) == _NAME:
            setattr(module, name, numba.njit(item, **options))
    empty: list[Any] = [[0] for _ in range(len(Tables._fields) - 1)]
    whole, draws = np.zeros(1, np.int64), np.zeros(plain.DRAWS)
    module.run_moves(as_arrays(Tables(1, *empty)), 0, draws, whole, 0)
    module.swap_requests(whole, whole, whole, whole, whole, whole, whole, draws, whole)
    return module


def as_arrays(tables: Tables) -> Tables:
    """Return the tables as arrays, which the compiled moves take."""
    width, *lists = tables
    arrays: list[Any] = [np.array(table, np.int64) for table in lists]
    arrays[-1] = arrays[-1].astype(np.int32)
    return Tables(width, *arrays)


def write_back(arrays: Any, state: Windows) -> None:
    """Copy the arrays into a state's lists."""
    for array, table in zip(arrays[1:], state.tables[1:], strict=True):
        table[:] = array.tolist()
