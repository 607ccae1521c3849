"""HyGen-like: a latency budget for each step, bulk requests in the order of the prefix tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orsched.common.units import seconds_to_ns
from orsched.heuristics.colocation.deadlines import require_seconds
from orsched.heuristics.colocation.draft import UNLIMITED
from orsched.heuristics.colocation.params import ColocationParams
from orsched.heuristics.colocation.policy import Colocation
from orsched.heuristics.colocation.pools import PrefixGroups

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.heuristics.colocation.draft import Draft
    from orsched.heuristics.colocation.room import Room
    from orsched.simulator.policy import View


@dataclass(frozen=True)
class HygenParams(ColocationParams):
    """Parameters of ``hygen``.

    Attributes:
        latency_budget_s: what a step with bulk work may last, with interactive requests in it or
            not; HyGen profiles it for each service. None: the least TPOT of the interactive
            classes, no limit where none has one.
    """

    latency_budget_s: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_seconds(self.latency_budget_s, "latency_budget_s")


class Hygen(Colocation):
    """HyGen (Sun et al., arXiv 2501.14808) as far as the model goes.

    As there: interactive requests first, then bulk tokens as long as the predicted time of the step
    is within the latency budget; bulk requests in the order of a depth-first walk of the prefix
    tree. The predictor, a regression there, is the worker's cost model: without error.
    """

    def __init__(self, instance: Instance, params: HygenParams) -> None:
        super().__init__("hygen", instance, params, PrefixGroups(instance))
        self.chain = b""
        self.budget_ns = budget_ns(self, params.latency_budget_s)

    def bulk_limit_ns(self, view: View, draft: Draft) -> int:
        """Return the latency budget."""
        return self.budget_ns

    def next_bulk(self, view: View, draft: Draft, room: Room, limit_ns: int) -> int | None:
        """Return the next request of the walk."""
        pool = self.pool
        assert isinstance(pool, PrefixGroups)
        request = pool.next_after(self.chain)
        self.chain = pool.chain(request)
        return request


def budget_ns(policy: Colocation, budget_s: float | None) -> int:
    """Return the latency budget: by default the least TPOT of the interactive classes, if any."""
    if budget_s is not None:
        return seconds_to_ns(budget_s, "latency_budget_s")
    deadlines = policy.deadlines
    limits = [deadlines.limits[kind][1] for kind in deadlines.interactive_kinds]
    return min([limit for limit in limits if limit is not None], default=UNLIMITED)
