"""The baselines of co-location as registered methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orsched.common.units import seconds_to_ns
from orsched.heuristics.colocation.draft import UNLIMITED, ArrivalPool, PrefixGroups
from orsched.heuristics.colocation.policy import Colocation, ColocationParams, require_seconds
from orsched.heuristics.policy_method import PolicyMethod
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.heuristics.colocation.draft import Draft, Room
    from orsched.simulator.policy import View


@dataclass(frozen=True)
class HygenParams(ColocationParams):
    """Parameters of ``hygen``.

    Attributes:
        latency_budget_s: longest step in seconds with bulk work, with or without interactive
            requests; HyGen profiles it for each service. None: the least TPOT of the interactive
            classes, or no limit where no class has one.
    """

    latency_budget_s: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_seconds(self.latency_budget_s, "latency_budget_s")


class Hygen(Colocation):
    """Serve interactive requests, then bulk tokens within a latency budget a step (HyGen).

    As far as the model goes (Sun et al., arXiv 2501.14808): bulk work is taken in the order of a
    depth-first walk of the prefix tree. The predictor, a regression there, is the worker's cost
    model: without error."""

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


@dataclass(frozen=True)
class ConserveParams(ColocationParams):
    """Parameters of ``conserve``.

    Attributes:
        latency_budget_s: longest step in seconds with interactive requests; None: the least TPOT of
            their classes.
        safepoint_s: longest step in seconds without them. ConServe interrupts such a step between
            two layers when a request arrives; a step of the simulator is not interrupted.
    """

    latency_budget_s: float | None = None
    safepoint_s: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_seconds(self.latency_budget_s, "latency_budget_s")
        require_seconds(self.safepoint_s, "safepoint_s")


class Conserve(Colocation):
    """ConServe (Qiao et al., arXiv 2410.01228) as far as the model goes.

    As there: bulk requests first come first served, in large steps while no interactive request is
    there and within a latency budget beside one; when one needs memory, bulk requests give it up at
    once, and go on from what was kept. There every token's cache is copied to the host beside the
    computation and copied back; here what was computed stays in the worker's prefix cache until its
    blocks are taken, so resuming costs nothing as long as they are not, and their computation
    after. Without a prefix cache it is recomputed."""

    def __init__(self, instance: Instance, params: ConserveParams) -> None:
        super().__init__("conserve", instance, params, ArrivalPool())
        self.budget_ns = budget_ns(self, params.latency_budget_s)
        self.safepoint_ns = seconds_to_ns(params.safepoint_s, "safepoint_s")

    def bulk_limit_ns(self, view: View, draft: Draft) -> int:
        """Return the budget of the step."""
        return self.safepoint_ns if draft.due_ns >= UNLIMITED else self.budget_ns

    def next_bulk(self, view: View, draft: Draft, room: Room, limit_ns: int) -> int | None:
        """Return the first that waits."""
        pool = self.pool
        assert isinstance(pool, ArrivalPool)
        return pool.first()


HYGEN = PolicyMethod(
    "hygen",
    (Information.NONE,),
    "bulk work within a latency budget of each step, by shared prefixes (HyGen-like)",
    lambda instance, params, information, seed: Hygen(instance, params),
    HygenParams,
    rounds_at_once=lambda params: 1,
)

CONSERVE = PolicyMethod(
    "conserve",
    (Information.NONE,),
    "bulk work that gives way at once and keeps what it computed (ConServe-like)",
    lambda instance, params, information, seed: Conserve(instance, params),
    ConserveParams,
    rounds_at_once=lambda params: 1,
)
