"""Policies of the user's own as methods: a class, and an object."""

from __future__ import annotations

import inspect
import math
from copy import deepcopy
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.common.own_code import class_of
from orsched.heuristics.policy_method import LiveMethod, dispatched, split
from orsched.simulator.policy import Information, Policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.data.instance import Instance

_HOOKS = ("start", "on_arrival", "on_first_token", "on_finish", "on_preempt", "decide")


@dataclass(frozen=True)
class OwnMethod(LiveMethod):
    """A policy class of the user's own, by its ``module:Class`` or its registered name.

    On several workers a class that serves one worker gets a dispatcher, with the parameters
    ``dispatch`` (soonest, round_robin, fewest_requests, least_work, prefix) and ``steal``, as named
    ones do; on one worker these say nothing, unless the class has parameters of these names.

    Attributes:
        information: empty: the class itself says it.
    """

    name: str
    policy: type[Policy]
    information: tuple[Information, ...] = ()

    @property
    def summary(self) -> str:
        """The first line of the class's documentation."""
        return (inspect.getdoc(self.policy) or "").partition("\n")[0]

    def build(
        self,
        instance: Instance,
        information: Information,
        parameters: dict[str, Any],
        seed: int,
        seconds_left: float = math.inf,
    ) -> tuple[Policy, dict[str, Any]]:
        """Return a new policy and the parameters that were given."""
        alone, own = len(instance.workers) == 1, parameters
        if alone or not self.policy.many_workers:
            own, shared = split(parameters, _arguments(self.policy) if alone else ())
        self._require_arguments(own)
        if self.policy.many_workers or (alone and not instance.fleet_changes):
            return self._made(own), parameters
        return dispatched(lambda: self._made(own), shared), parameters

    def _made(self, parameters: dict[str, Any]) -> Policy:
        """Return a new policy; raises ``InputError`` also where its hooks cannot be called."""
        try:
            policy: Any = self.policy(**parameters)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise InputError(
                f"cannot make a policy of {self.name!r}: {error}",
                field="policy",
                remedy="correct the class, or give an object of it",
            ) from None
        if not isinstance(policy, Policy):
            raise InputError(
                f"{self.name!r} is not a Policy",
                field="policy",
                remedy="derive it from orsched.Policy",
            )
        kinds = [str(kind) for kind in Information]
        if policy.information not in kinds:
            raise InputError(
                f"{self.name!r} declares the information {policy.information!r}",
                field="policy",
                remedy=f"one of: {', '.join(kinds)}",
            )
        for name in _HOOKS:
            self._require_hook(policy, name)
        return policy

    def _require_hook(self, policy: Policy, name: str) -> None:
        called = list(inspect.signature(getattr(Policy, name)).parameters)
        try:
            inspect.signature(getattr(policy, name)).bind(*called[1:])
        except (TypeError, ValueError):
            written = f"{name}({', '.join(called)})"
            raise InputError(
                f"{self.name!r} cannot be called as {written}",
                field="policy",
                remedy=f"write: def {written}",
            ) from None

    def _require_arguments(self, parameters: dict[str, Any]) -> None:
        """Raise ``InputError`` that lists the class's parameters if one is unknown or missing."""
        try:
            known = inspect.signature(self.policy)
        except (TypeError, ValueError):
            return
        try:
            known.bind(**parameters)
        except TypeError as error:
            strange = next((name for name in parameters if name not in known.parameters), "")
            raise InputError(
                f"{self.name}: {error}",
                field="parameters",
                remedy=known_names(strange, known.parameters, none="it has none"),
            ) from None


_RAN = "_orsched_ran_with"


@dataclass(frozen=True)
class PolicyObject(LiveMethod):
    """A policy object, for one run: what it counted and queued in it would carry over to another.

    One that sets its state up in ``start``, or that has none, may run again. On several workers one
    that serves one worker gets a dispatcher, with a copy of it on each worker; it stays as it is.
    """

    policy: Policy
    name: str = "policy"
    information: tuple[Information, ...] = ()
    summary: str = "a policy object"

    def build(
        self,
        instance: Instance,
        information: Information,
        parameters: dict[str, Any],
        seed: int,
        seconds_left: float = math.inf,
    ) -> tuple[Policy, dict[str, Any]]:
        """Return the object, and the parameters with which it says that it was made.

        Raises ``InputError`` for one that has run before, and may have kept something of it, and
        for one that several workers need and that cannot be copied.
        """
        self.require_fresh()
        if len(instance.workers) > 1 and not self.policy.many_workers:
            return dispatched(self._copies(), split(parameters)[1]), parameters
        vars(self.policy).setdefault(_RAN, _constants(self.policy))
        return self.policy, parameters

    def _copies(self) -> Callable[[], Policy]:
        try:
            pristine = deepcopy(self.policy)
        except Exception as error:
            name = type(self.policy).__name__
            raise InputError(
                f"this object of {name} serves one worker, and cannot be copied: {error}",
                field="policy",
                remedy=f"give the class, {name}",
            ) from None
        return lambda: deepcopy(pristine)

    def require_fresh(self) -> None:
        """Raise ``InputError`` if the object has run before, and may have kept something of it."""
        before = vars(self.policy).get(_RAN, self)
        if before is self or type(self.policy).start is not Policy.start:
            return
        if before is None or before != _constants(self.policy):
            name = type(self.policy).__name__
            raise InputError(
                f"this object of {name} has run before, and its state would carry over",
                field="policy",
                remedy=f"give the class, {name}, or a new object; or set its state up in start",
            )


def _constants(policy: Policy) -> dict[str, Any] | None:
    """Return the attributes of an object if they are plain values, which nothing can alter."""
    found = {name: value for name, value in vars(policy).items() if name != _RAN}
    plain = (bool, int, float, str, bytes, NoneType)
    return found if all(isinstance(value, plain) for value in found.values()) else None


def own_method(target: str, field: str = "policy") -> OwnMethod:
    """Return ``module:Class`` or a path as a method; its code runs. Raises as ``class_of``."""
    return OwnMethod(target, class_of(target, Policy, field))


def _arguments(cls: type[Policy]) -> set[str]:
    """Return the names of the arguments that a class takes."""
    try:
        return set(inspect.signature(cls).parameters)
    except (TypeError, ValueError):
        return set()
