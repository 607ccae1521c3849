"""Deprecated: filling prefill stages from a queue; ``orsched.heuristics.batch_builder`` does."""

from __future__ import annotations

from typing import TYPE_CHECKING
from warnings import warn

from orsched.heuristics.batch_builder import BatchBuilder

if TYPE_CHECKING:
    from collections import deque

    from orsched.policy import View


def take_stage(view: View, queue: deque[int]) -> list[int]:
    """Pop requests into one prefill stage; deprecated, use ``BatchBuilder(view).take(queue)``."""
    warn("use BatchBuilder(view).take(queue) of orsched.heuristics.batch_builder in place of "
         "take_stage", DeprecationWarning, stacklevel=2)  # fmt: skip
    return BatchBuilder(view).take(queue)
