"""A policy with its parameters as a method: what ``solve``, ``compare`` and ``simulate`` call."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from orsched.errors import InputError
from orsched.heuristics.dispatching.dispatched import Dispatched
from orsched.heuristics.dispatching.dispatchers import DISPATCHERS
from orsched.heuristics.planning import in_time
from orsched.methods import Outcome, Progress, Run
from orsched.result import Termination
from orsched.simulator import simulate_policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.instance import Instance
    from orsched.policy import Information, Policy


@dataclass(frozen=True)
class NoParams:
    """No parameters."""


@dataclass(frozen=True)
class Dispatching:
    """How requests go to workers, for policies that serve one worker each.

    Attributes:
        dispatch: round_robin, fewest_requests or least_work.
        steal: whether a worker without work takes waiting requests from others.
    """

    dispatch: str = "round_robin"
    steal: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.dispatch, str) or self.dispatch not in DISPATCHERS:
            raise InputError(
                f"{self.dispatch!r} is unknown", field="dispatch", remedy=", ".join(DISPATCHERS)
            )
        if type(self.steal) is not bool:
            raise InputError("must be true or false", field="steal")


def read_params(kind: Any, parameters: dict[str, Any], known: Any = ()) -> Any:
    """Return a parameter dataclass filled from a dict; ``kind`` checks the values itself.

    Raises ``InputError`` that lists the parameters when one is unknown.
    """
    names = [item.name for item in fields(kind)]
    for name in parameters:
        if name not in names:
            listed = ", ".join([*names, *known]) or "it has none"
            raise InputError(
                f"there is no parameter {name!r}", field="parameters", remedy=f"known: {listed}"
            )
    return kind(**parameters)


@dataclass(frozen=True)
class PolicyMethod:
    """A policy under its registered name.

    Attributes:
        name, summary: as registered.
        information: what the policy can run with, the default first.
        params: dataclass of its parameters, which checks them.
        make: builds a fresh policy from instance, parameters, information and seed.
        many_workers: whether the policy itself serves several workers; others get a dispatcher, and
            the parameters of ``Dispatching``.
    """

    name: str
    information: tuple[Information, ...]
    summary: str
    make: Callable[[Instance, Any, Information, int], Policy]
    params: type = NoParams
    many_workers: bool = False

    def __call__(self, instance: Instance, run: Run) -> Outcome:
        """Simulate the policy from start to end."""
        policy, parameters = self.build(instance, run.information, run.parameters, run.seed)
        done = simulate_policy(instance, policy, deadline=lambda: in_time(run))
        run.report(Progress(self.name, 1, done.schedule.makespan_ns, True))
        return Outcome(
            done.schedule, Termination.FINISHED, done.decision_ns, parameters,
            counted=policy.counted(),
        )  # fmt: skip

    def build(
        self, instance: Instance, information: Information, parameters: dict[str, Any], seed: int
    ) -> tuple[Policy, dict[str, Any]]:
        """Return a fresh policy for an instance, and all its parameters as plain values."""
        alone = len(instance.workers) == 1
        sharing = [f.name for f in fields(Dispatching)]
        if self.many_workers:
            self._require_none(parameters, sharing)
            sharing = []
        elif alone:  # there is nothing to dispatch
            taken = {f.name for f in fields(self.params)}
            sharing = [name for name in sharing if name not in taken]
        own = {name: value for name, value in parameters.items() if name not in sharing}
        params = read_params(self.params, own, sharing)
        values: dict[str, Any] = asdict(params)
        shared = read_params(
            Dispatching, {name: value for name, value in parameters.items() if name in sharing}
        )
        if alone or self.many_workers:
            return self.make(instance, params, information, seed), values
        policy = Dispatched(
            lambda: self.make(instance, params, information, seed),
            DISPATCHERS[shared.dispatch](),
            steal=shared.steal,
        )
        return policy, {**values, **asdict(shared)}

    def _require_none(self, parameters: dict[str, Any], sharing: list[str]) -> None:
        """Raise ``InputError`` for parameters of a dispatcher, as the policy needs none."""
        unread = set(sharing).intersection(parameters)
        for name in sorted(unread.difference(f.name for f in fields(self.params))):
            raise InputError(
                f"{self.name} chooses the workers itself", field=name, remedy="leave it out"
            )
