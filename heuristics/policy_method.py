"""A policy with its parameters as a method: what ``solve``, ``compare`` and ``simulate`` call."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from orsched.common.errors import InfeasibleError, InputError, PolicyError
from orsched.common.limits import STEPS
from orsched.common.parameters import read_params as read_params
from orsched.common.scalars import require_bool, require_one_of
from orsched.heuristics.dispatching.dispatched import Dispatched
from orsched.heuristics.dispatching.named import DEFAULT, DISPATCHERS
from orsched.simulator import simulate_policy
from orsched.solving.methods import Outcome, Progress, Run
from orsched.solving.result import Termination

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from orsched.data.instance import Instance
    from orsched.simulator.policy import Information, Policy


@dataclass(frozen=True)
class NoParams:
    """No parameters."""


@dataclass(frozen=True)
class Dispatching:
    """How requests go to workers, for policies that serve one worker each.

    Attributes:
        dispatch: soonest, round_robin, fewest_requests, least_work or prefix.
        steal: whether a worker without work takes waiting requests from others.
    """

    dispatch: str = DEFAULT
    steal: bool = False

    def __post_init__(self) -> None:
        require_one_of(self.dispatch, "dispatch", DISPATCHERS)
        require_bool(self.steal, "steal")


class LiveMethod(ABC):
    """A method that is a policy: the same object decides in the simulator and on a real worker.

    Attributes:
        live: whether it decides as it goes; False for one that plans first.
    """

    name: str
    information: tuple[Information, ...]
    live: ClassVar[bool] = True

    def __call__(self, instance: Instance, run: Run) -> Outcome:
        """Simulate the policy from start to end."""
        policy, parameters = self.build(
            instance, run.information, run.parameters, run.seed, run.stop.seconds_left
        )
        done = simulate_policy(instance, policy, run.observer, run.require_time)
        run.report(Progress(self.name, 1, done.schedule.makespan_ns, True))
        return Outcome(
            done.schedule, Termination.FINISHED, done.decision_ns, parameters,
            counted=policy.counted(),
        )  # fmt: skip

    @abstractmethod
    def build(
        self,
        instance: Instance,
        information: Information,
        parameters: dict[str, Any],
        seed: int,
        seconds_left: float = math.inf,
    ) -> tuple[Policy, dict[str, Any]]:
        """Return a fresh policy for an instance, and all its parameters as plain values.

        ``seconds_left`` bounds what it works out beforehand. Raises ``InputError``.
        """

    def check_parameters(self, parameters: dict[str, Any]) -> None:  # noqa: B027
        """Raise ``InputError`` for parameters that are wrong on whatever instance."""


@dataclass(frozen=True)
class PolicyMethod(LiveMethod):
    """A policy under its registered name.

    Attributes:
        name, summary: as registered.
        information: what the policy can run with, the default first.
        params: dataclass of its parameters, which checks them.
        make: builds a fresh policy from instance, parameters, information and seed.
        many_workers: whether the policy itself serves several workers; others get a dispatcher, and
            the parameters of ``Dispatching``.
        dispatch: the dispatcher where none is named.
        needs_roles: whether it is for workers of different roles.
    """

    name: str
    information: tuple[Information, ...]
    summary: str
    make: Callable[[Instance, Any, Information, int], Policy]
    params: type = NoParams
    many_workers: bool = False
    dispatch: str = DEFAULT
    needs_roles: bool = False

    def build(
        self,
        instance: Instance,
        information: Information,
        parameters: dict[str, Any],
        seed: int,
        seconds_left: float = math.inf,
    ) -> tuple[Policy, dict[str, Any]]:
        """Return a fresh policy for an instance, and all its parameters as plain values."""
        alone = len(instance.workers) == 1
        params, shared = self._read(parameters, alone)
        values: dict[str, Any] = asdict(params)

        def make() -> Policy:
            return self.make(instance, params, information, seed)

        if self.many_workers or (alone and not instance.fleet_changes):  # nothing to dispatch
            return make(), values
        return dispatched(make, shared), {**values, **({} if alone else asdict(shared))}

    def check_parameters(self, parameters: dict[str, Any]) -> None:
        """Raise ``InputError`` for parameters that are wrong on whatever instance."""
        self._read(parameters)

    def require_fit(
        self, instance: Instance, information: Information, parameters: dict[str, Any]
    ) -> None:
        """Refuse an instance that the policy does not serve: it is asked with the first request."""
        params, _ = self._read(parameters, len(instance.workers) == 1)
        fits = getattr(params, "require_fit", None)
        if fits is not None:
            fits(instance, parameters)
        budget = getattr(params, "max_num_batched_tokens", None)
        if budget is not None:
            STEPS.require(_tokens_to_compute(instance) // budget, "max_num_batched_tokens")
        first = instance.replace(requests=instance.requests.take(range(min(1, len(instance)))))
        policy, _ = self.build(first, information, parameters, 0)
        with suppress(InfeasibleError, PolicyError):  # which the run reports, with the moment
            simulate_policy(first, policy)

    def _read(self, parameters: dict[str, Any], alone: bool = True) -> tuple[Any, Dispatching]:
        """Return the policy's parameters, and those of the dispatcher of several workers."""
        known = [item.name for item in fields(self.params)]
        if self.many_workers:
            for name in SHARED:
                if name in parameters and name not in known:
                    raise InputError(
                        f"{self.name} chooses workers itself", field=name, remedy="leave it out"
                    )
        given = {"dispatch": self.dispatch, **parameters}
        own, shared = split(given, known)
        return read_params(self.params, own, SHARED), shared


def _tokens_to_compute(instance: Instance) -> int:
    """Return the prompt tokens of all requests without those that a prefix cache may hold."""
    tokens, prefixes = int(instance.requests.prompt_tokens.sum()), instance.requests.prefixes
    return tokens if prefixes is None else tokens - len(prefixes.ids) * prefixes.block_tokens


SHARED = tuple(item.name for item in fields(Dispatching))
"""The parameters of a dispatcher; on one worker they say nothing."""


def split(
    parameters: dict[str, Any], own: Collection[str] = ()
) -> tuple[dict[str, Any], Dispatching]:
    """Return a policy's parameters and those of its dispatcher; ``own`` are the policy's anyway."""
    sharing = [name for name in SHARED if name not in own]
    shared = {name: value for name, value in parameters.items() if name in sharing}
    rest = {name: value for name, value in parameters.items() if name not in sharing}
    return rest, read_params(Dispatching, shared)


def dispatched(make: Callable[[], Policy], shared: Dispatching) -> Policy:
    """Return a policy for several workers of one that serves one of them each."""
    return Dispatched(make, DISPATCHERS[shared.dispatch](), steal=shared.steal)
