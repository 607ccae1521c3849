"""A policy with its parameters as a method: what ``solve``, ``compare`` and ``simulate`` call."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, fields
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar

from orsched.common.errors import InfeasibleError, InputError, PolicyError, known_names
from orsched.common.own_code import class_of
from orsched.common.parameters import read_params as read_params
from orsched.common.scalars import STEPS, require_bool, require_number, require_one_of
from orsched.common.units import MAX_TOKENS
from orsched.costs import ridge_tokens
from orsched.heuristics.dispatching.central import CENTRAL, Central
from orsched.heuristics.dispatching.dispatched import Dispatched
from orsched.heuristics.dispatching.dispatchers import DEFAULT, DISPATCHERS, MostHits
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information, Policy
from orsched.solving.methods import Outcome, Progress, Run
from orsched.solving.result import Termination

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from orsched.data.instance import Instance


ANY = (Information.NONE, Information.PREDICTED, Information.CLAIRVOYANT)
"""For policies that run with whatever is known of lengths."""


BUDGET, RIDGE = "max_num_batched_tokens", "ridge"
"""A token budget, and the word for that of the cost model (``ridge_tokens``)."""


@dataclass(frozen=True)
class NoParams:
    """No parameters."""


@dataclass(frozen=True)
class Dispatching:
    """How requests go to workers, for policies that serve one worker each.

    Attributes:
        dispatch: soonest, round_robin, fewest_requests, least_work, prefix, latency, or central:
            one queue, from which each worker takes requests as it has room.
        steal: whether a worker without work takes waiting requests from others.
        load_weight: cached prompt tokens that an open request of a worker outweighs (``prefix``).
    """

    dispatch: str = DEFAULT
    steal: bool = False
    load_weight: float = 0.0

    def __post_init__(self) -> None:
        require_one_of(self.dispatch, "dispatch", (*DISPATCHERS, CENTRAL))
        require_bool(self.steal, "steal")
        require_number(self.load_weight, "load_weight", 0, MAX_TOKENS)
        if self.load_weight and self.dispatch != MostHits.name:
            raise InputError(
                f"{self.dispatch} has no load_weight",
                field="load_weight",
                remedy="leave it out, or take dispatch=prefix",
            )


class LiveMethod(ABC):
    """A method that is a policy: the same object decides in the simulator and on a real worker;
    ``live`` is whether it decides as it goes, False for one that plans first."""

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
            notes=self.remarks(instance, run.parameters), counted=policy.counted(),
        )  # fmt: skip

    def remarks(self, instance: Instance, parameters: dict[str, Any]) -> tuple[str, ...]:
        """Return what a user should know of the method on these workers."""
        return ()

    @abstractmethod
    def build(
        self,
        instance: Instance,
        information: Information,
        parameters: dict[str, Any],
        seed: int,
        seconds_left: float = math.inf,
    ) -> tuple[Policy, dict[str, Any]]:
        """Return a fresh policy for an instance, and all its parameters as plain values;
        ``seconds_left`` bounds what it works out beforehand. Raises ``InputError``."""

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
        rounds_at_once: from the parameters, the decode rounds after which the policy decides again
            while requests wait; None: where something happens.
    """

    name: str
    information: tuple[Information, ...]
    summary: str
    make: Callable[[Instance, Any, Information, int], Policy]
    params: type = NoParams
    many_workers: bool = False
    dispatch: str = DEFAULT
    needs_roles: bool = False
    rounds_at_once: Callable[[Any], int | None] | None = None

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
        params, shared = self._read(parameters, instance)
        values: dict[str, Any] = _plain(params)

        def make() -> Policy:
            return self.make(instance, params, information, seed)

        if self.many_workers or (alone and not instance.fleet_changes):  # nothing to dispatch
            return make(), values
        return dispatched(make, shared), {**values, **({} if alone else asdict(shared))}

    def remarks(self, instance: Instance, parameters: dict[str, Any]) -> tuple[str, ...]:
        """Say what a ridge is, and where a method for workers of different roles meets none."""
        found = self._of_engine(instance, parameters)
        if parameters.get(BUDGET) == RIDGE:
            tokens = _least_ridge(instance)
            found.append(f"{BUDGET}={RIDGE}: {tokens} tokens, derived from the cost model")
        if self.needs_roles and instance.link is None:
            found.append(
                f"all workers prefill and decode, so {self.name} only shares requests out; "
                "a split such as --workers 2P2D:free gives workers roles"
            )
        return tuple(found)

    def check_parameters(self, parameters: dict[str, Any]) -> None:
        """Raise ``InputError`` for parameters that are wrong on whatever instance."""
        self._read(parameters)

    def require_fit(
        self, instance: Instance, information: Information, parameters: dict[str, Any]
    ) -> None:
        """Refuse an instance that the policy does not serve: it is asked with the first request."""
        params, _ = self._read(parameters, instance)
        fits = getattr(params, "require_fit", None)
        if fits is not None:
            fits(instance, parameters)
        budget = getattr(params, BUDGET, None)
        if budget is not None:
            STEPS.require(_tokens_to_compute(instance) // budget, BUDGET)
        if self.rounds_at_once is not None:
            _require_rounds(instance, self.rounds_at_once(params))
        first = instance.replace(requests=instance.requests.take(range(min(1, len(instance)))))
        policy, _ = self.build(first, information, parameters, 0)
        with suppress(InfeasibleError, PolicyError):  # which the run reports, with the moment
            simulate_policy(first, policy)

    def _read(
        self, parameters: dict[str, Any], instance: Instance | None = None
    ) -> tuple[Any, Dispatching]:
        """Return the policy's parameters, and those of the dispatcher of several workers; without
        an instance a ridge is any number."""
        known = [item.name for item in fields(self.params)]
        if self.many_workers:
            for name in SHARED:
                if name in parameters and name not in known:
                    raise InputError(
                        f"{self.name} chooses workers itself", field=name, remedy="leave it out"
                    )
        given = {"dispatch": self.dispatch, **self._engine(instance, known), **parameters}
        own, shared = split(given, known)
        if BUDGET in known and own.get(BUDGET) == RIDGE:
            own[BUDGET] = MAX_TOKENS if instance is None else _least_ridge(instance)
        return read_params(self.params, own, SHARED), shared

    def _engine(self, instance: Instance | None, known: Collection[str]) -> dict[str, Any]:
        """Return the settings of the workers' engines among the policy's parameters."""
        if instance is None:
            return {}
        own = _settings(instance)
        return {name: value for name, value in own.items() if name in known}

    def _of_engine(self, instance: Instance, parameters: dict[str, Any]) -> list[str]:
        """Say which settings of the engine hold, and which do not."""
        engines = dict.fromkeys(each.engine.partition("+")[0] for each in instance.workers)
        settings = _settings(instance)
        known, parts = [item.name for item in fields(self.params)], dict[str, list[str]]()
        of_workers = {
            "max_num_seqs": {worker.clients for worker in instance.workers},
            "enable_prefix_caching": {worker.caches_prefixes for worker in instance.workers},
            "max_model_len": {settings.get("max_model_len")},
        }
        for name, value in settings.items():
            if name in of_workers:
                kind = "" if of_workers[name] == {value} else "overridden "
            else:
                other = "overridden " if name in parameters else ""
                kind = other if name in known else "without "
            parts.setdefault(kind, []).append(f"{name}={str(value).lower()}")
        said = [f"{kind}{', '.join(each)}" for kind, each in sorted(parts.items())]
        return [f"{self.name} as {', '.join(engines)} has it: {'; '.join(said)}"] if said else []


def _plain(params: Any) -> dict[str, Any]:
    """Return parameters as plain values; those that may be objects say themselves how."""
    found: dict[str, Any] = params.to_dict() if hasattr(params, "to_dict") else asdict(params)
    return found


def _settings(instance: Instance) -> dict[str, Any]:
    """Return the settings that the workers' engines share; of those that differ the smallest."""
    first, *others = (worker.settings for worker in instance.workers)
    shared = {name for name in first if all(name in other for other in others)}
    return {n: min(first[n], *(o[n] for o in others), first[n]) for n in first if n in shared}


def _least_ridge(instance: Instance) -> int:
    return min(ridge_tokens(worker.cost) for worker in instance.workers)


def _tokens_to_compute(instance: Instance) -> int:
    """Return the prompt tokens of all requests without those that a prefix cache may hold."""
    tokens, prefixes = int(instance.requests.prompt_tokens.sum()), instance.requests.prefixes
    return tokens if prefixes is None else tokens - len(prefixes.ids) * prefixes.block_tokens


def _require_rounds(instance: Instance, at_once: int | None) -> None:
    """Refuse outputs that take too many decode steps of so many rounds; None: any number of them.
    No request has fewer steps than its output asks for, and a step serves all clients at most."""
    outputs = instance.requests.output_tokens
    if at_once is None or not len(outputs):
        return
    steps = -(-outputs // at_once)
    clients = max(worker.clients for worker in instance.workers)
    together = int(steps.sum()) // (clients * len(instance.workers))
    STEPS.require(max(int(steps.max()), together), "output_tokens", "decode steps")


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
    if shared.dispatch == CENTRAL:
        return Central(make)
    dispatcher = DISPATCHERS[shared.dispatch]()
    if isinstance(dispatcher, MostHits):
        dispatcher.load_weight = shared.load_weight
    return Dispatched(make, dispatcher, steal=shared.steal)


_HOOKS = ("start", "on_arrival", "on_first_token", "on_finish", "on_preempt", "decide")


@dataclass(frozen=True)
class OwnMethod(LiveMethod):
    """A policy class of the user's own, by its ``module:Class`` or its registered name.

    On several workers a class that serves one worker gets a dispatcher, with the parameters
    ``dispatch`` (soonest, round_robin, fewest_requests, least_work, prefix, latency), ``steal`` and
    ``load_weight``, as named ones do; on one worker these say nothing, unless the class has
    parameters of these names. ``information`` is empty: the class itself says it.
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
    """A policy object, for one run: what it counted and queued would carry over to another, unless
    it sets its state up in ``start`` or has none. On several workers one that serves one worker
    gets a dispatcher, with a copy of it on each worker; it stays as it is."""

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
        """Return the object, and the parameters with which it says that it was made; ``InputError``
        as ``require_fresh``, and where several workers need it and it cannot be copied."""
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
    try:
        return set(inspect.signature(cls).parameters)
    except (TypeError, ValueError):
        return set()
