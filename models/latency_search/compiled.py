"""The moves compiled with numba (extra ``fast``): the same sources, loaded once more.

Compiling takes half a minute the first time on a machine; then it lies in numba's cache beside the
source. So it happens in a thread, while the search begins in plain Python, on lists (``listed``).
"""

from __future__ import annotations

import logging
import threading
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.models.latency_search import decoding, moves
from orsched.models.latency_search.listed import listed
from orsched.models.latency_search.tables import tables_of
from orsched.models.module_copy import module_copy

if TYPE_CHECKING:
    from types import ModuleType

_LOG = logging.getLogger("orsched")
_PLACE = "orsched.models.latency_search._compiled_"


class Engine:
    """The entries of the moves: those on lists, then the compiled ones once they are ready."""

    def __init__(self) -> None:
        self.module: Any = listed()
        self._thread = threading.Thread(target=self._load, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return when the moves are compiled, or cannot be."""
        self._thread.join()

    @property
    def is_compiled(self) -> bool:
        """Whether the moves are the compiled ones."""
        return self.module is not listed()

    def _load(self) -> None:
        try:
            self.module = _compile()
        except ModuleNotFoundError:
            return
        except Exception as error:  # numba fails in many ways; the plain moves are always there
            _LOG.warning("numba cannot compile the moves, latency_search runs slower: %s", error)


@cache
def suggest_numba() -> None:
    """Say, once in a process, what is missing where there is no numba."""
    if find_spec("numba") is None:
        _LOG.warning(
            "latency_search is 10 to 70 times faster with numba: pip install 'orsched[fast]'"
        )


@cache
def engine() -> Engine:
    """Return the engine of this process; the first call starts to compile it."""
    return Engine()


def _compile() -> ModuleType:
    """Compile decoder and moves, and try each entry once."""
    fast_decoding = _compiled(decoding, {})
    fast = _compiled(moves, {"decode": fast_decoding.decode})
    whole, real = np.ones((1, 7), np.int64), np.zeros((1, 4))
    times, limits = np.ones((1, 8)), np.ones((1, 6), np.int64)
    t = tables_of(whole, real, times, limits, 0.0, [[0]], [1.0] * moves.KINDS)
    value = fast.evaluate_all(t)
    fast.run_moves(t, value, value, np.zeros(moves.DRAWS), np.zeros(1))
    fast.evaluate(t, 0, 0, 0.0, decoding.INFINITE, False)
    return fast


def _compiled(plain: ModuleType, names: dict[str, Any]) -> ModuleType:
    """Load a source again, with every function compiled and some names taken from elsewhere."""
    import numba

    name = _PLACE + plain.__name__.rpartition(".")[2]
    module = module_copy(plain, name)
    for key, item in names.items():
        setattr(module, key, item)
    for key, item in list(vars(module).items()):
        if callable(item) and getattr(item, "__module__", None) == name:
            setattr(module, key, numba.njit(item, nogil=True, cache=True))
    return module
