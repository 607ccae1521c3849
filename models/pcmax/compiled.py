"""The loops of ``beliefs`` compiled with numba (extra ``fast``): the same source, loaded once more.

Compiling takes seconds the first time on a machine; then it lies in numba's cache beside the
source. So it happens in a thread, while the search goes on without.
"""

from __future__ import annotations

import logging
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.models.loaded_again import loaded_again
from orsched.models.pcmax import beliefs as plain

if TYPE_CHECKING:
    from types import ModuleType

_LOG = logging.getLogger("orsched")
_NAME = "orsched.models.pcmax._compiled_beliefs"


class Compiled:
    """The compiled module, once it is ready."""

    def __init__(self) -> None:
        self._module: ModuleType | None = None
        self._thread = threading.Thread(target=self._load, daemon=True)
        self._thread.start()

    def get(self, wait: bool) -> Any:
        """Return the compiled module; None without numba, or if not ready and not waited for."""
        if wait:
            self._thread.join()
        return self._module

    def _load(self) -> None:
        try:
            self._module = _compile()
        except ImportError:
            _LOG.info("packing proves more with numba: pip install orsched[fast]")
        except Exception as error:  # numba fails in many ways; there is a way without
            _LOG.warning("numba cannot compile belief propagation: %s", error)


@cache
def compiled() -> Compiled:
    """Return the compiled loops of this process; the first call starts to load them."""
    return Compiled()


def _compile() -> ModuleType:
    """Load the source of the loops again, with every function compiled."""
    import numba

    module = loaded_again(plain, _NAME)
    for name in ("choose", "search", "pass_messages"):  # each after what it calls
        function = numba.njit(getattr(module, name), nogil=True, cache=True)
        setattr(module, name, function)
    none, zero = np.zeros(1, dtype=np.int64), np.zeros(1)
    module.pass_messages(np.zeros(2, np.int64), none, zero, zero, zero, 1)
    module.search(np.zeros(2, np.int64), none, none, none, none, none.copy(), 0, none, none)
    return module
