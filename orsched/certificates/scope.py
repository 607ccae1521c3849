"""For which schedules a bound holds (``data.schedule_classes``), and the floor under them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orsched.certificates.prefix_sharing import FOR_ALL, has_prefix_cache
from orsched.common.errors import InputError
from orsched.costs import floor_of
from orsched.data.schedule_classes import ALL_SCHEDULES, ALLOWANCES, ScheduleClass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.costs import Floor
    from orsched.data.instance import Instance
    from orsched.data.workers import Worker


@dataclass(frozen=True)
class Scope:
    """What the schedules of a bound may do beside pauses.

    Attributes:
        chunks, mixed, restarts: features of ``orsched.data.schedule_classes``.
        yielding: restarts, where a prefill that is done again yields a token.
        cached: such a prefill may find all that it needs but one token in a prefix cache.
    """

    chunks: bool = False
    mixed: bool = False
    restarts: bool = False
    yielding: bool = False
    cached: bool = False

    @classmethod
    def allowing(cls, names: Iterable[str], instance: Instance) -> Scope:
        """Return the scope of these allowances; ``InputError`` for others."""
        known = set(names)
        for name in sorted(known.difference(ALLOWANCES)):
            raise InputError(
                f"{name!r} is nothing that a bound can allow",
                field="allows",
                remedy=f"{', '.join(ALLOWANCES)}",
            )
        restarts = "restarts" in known
        again = restarts and instance.first_token == "prefill"
        cached = again and has_prefix_cache(instance)
        return cls("chunks" in known, "mixed" in known, restarts, again, cached)

    @classmethod
    def read(cls, claim: dict[str, Any], instance: Instance) -> Scope:
        """Return what a certificate allows; ``ValueError`` unless it says so in the one way."""
        found = cls.allowing(claim.get("allows", ()), instance)
        if found.stated() != {name: claim[name] for name in claim if name == "allows"}:
            raise ValueError(f"the allowances are {claim['allows']!r}")
        return found

    @property
    def names(self) -> list[str]:
        """The allowances as they stand in a certificate, sorted."""
        return [name for name in ALLOWANCES if getattr(self, name)]

    @property
    def schedules(self) -> ScheduleClass:
        """The class of schedules."""
        return ScheduleClass.allowing(self.names)

    @property
    def is_plain(self) -> bool:
        """Whether requests are prefilled whole and once, between the rounds."""
        return not self.names

    def stated(self) -> dict[str, Any]:
        """Return the field of a certificate; none for plain schedules."""
        return {} if self.is_plain else {"allows": self.names}

    def floor_of(self, worker: Worker) -> Floor | None:
        """Return the floor under the steps of these schedules that the cost model states."""
        return self.holding(floor_of(worker.cost), worker)

    def holding(self, floor: Floor | None, worker: Worker) -> Floor | None:
        """Return what a floor that a worker's cost model states says of these schedules."""
        if floor is None or (self.mixed and floor.mixed is None):
            return None
        if (worker.padding or self.yielding) and not floor.stage.grows:
            return None
        return floor.of_chunks() if self.chunks else floor

    def require_floor(self, worker: Worker) -> Floor:
        """Return the floor under the steps of these schedules; ``ValueError`` where none is."""
        floor = self.floor_of(worker)
        if floor is None:
            raise ValueError("the cost model has no floor")
        return floor


PLAIN = Scope()


def schedules_of(*certificates: dict[str, Any]) -> ScheduleClass:
    """Return the class of schedules for which certificates say that all their bounds hold."""
    features = ALL_SCHEDULES.features
    for certificate in certificates:
        if certificate["bound"] not in FOR_ALL:
            allows = certificate.get("one_worker", certificate).get("allows", ())
            features &= ScheduleClass.allowing(allows).features
    return ScheduleClass(features)
