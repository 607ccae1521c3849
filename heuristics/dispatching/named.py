"""The dispatchers by name, and the one that is taken where none is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.heuristics.dispatching.dispatchers import (
    FewestRequests,
    LeastWork,
    MostHits,
    RoundRobin,
)
from orsched.heuristics.dispatching.soonest import Soonest

if TYPE_CHECKING:
    from orsched.heuristics.dispatching.dispatchers import Dispatcher

DEFAULT = "soonest"

DISPATCHERS: dict[str, type[Dispatcher]] = {
    kind.name: kind for kind in (Soonest, RoundRobin, FewestRequests, LeastWork, MostHits)
}
