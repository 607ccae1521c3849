"""Policies of the user's own as methods: a class, and an object."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orsched.errors import InputError
from orsched.heuristics.policy_method import LiveMethod, dispatched, split
from orsched.own_code import class_of
from orsched.policy import Information, Policy

if TYPE_CHECKING:
    from orsched.instance import Instance

_HOOKS = ("start", "on_arrival", "on_first_token", "on_finish", "on_preempt", "decide")


@dataclass(frozen=True)
class OwnMethod(LiveMethod):
    """A policy class of the user's own, by its ``module:Class`` or its registered name.

    On several workers a class that serves one worker gets a dispatcher, with the parameters
    ``dispatch`` (round_robin, fewest_requests, least_work, prefix) and ``steal``, as named ones do;
    on one worker these say nothing, unless the class has parameters of these names.

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
        if not self.policy.many_workers:
            own, shared = split(parameters, _arguments(self.policy) if alone else ())
        self._require_arguments(own)
        if self.policy.many_workers or alone:
            return self._made(own), parameters
        return dispatched(lambda: self._made(own), shared), parameters

    def _made(self, parameters: dict[str, Any]) -> Policy:
        """Return a new policy; raises ``InputError`` also where its hooks cannot be called."""
        try:
            policy: Any = self.policy(**parameters)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise InputError(
                f"cannot make a policy of {self.name!r}: {error}", field="policy"
            ) from None
        if not isinstance(policy, Policy):
            raise InputError(f"{self.name!r} is not a Policy", field="policy")
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
            names = ", ".join(known.parameters) or "it has none"
            raise InputError(
                f"{self.name}: {error}", field="parameters", remedy=f"known: {names}"
            ) from None


@dataclass(frozen=True)
class PolicyObject(LiveMethod):
    """A policy object, for one run."""

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
        """Return the object, and the parameters with which it says that it was made."""
        return self.policy, parameters


def own_method(target: str) -> OwnMethod:
    """Return ``module:Class`` as a method; the module is imported. Raises as ``class_of``."""
    return OwnMethod(target, class_of(target, Policy))


def _arguments(cls: type[Policy]) -> set[str]:
    """Return the names of the arguments that a class takes."""
    try:
        return set(inspect.signature(cls).parameters)
    except (TypeError, ValueError):
        return set()
