"""The four methods of Pang: fcfs, offline, online, hybrid.

Where the paper is vague the choices are those that reproduce its makespans best (the page
*Reproducing Pang* has the table); every other choice is a parameter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from orsched.heuristics.fcfs import FirstComeFirstServed
from orsched.heuristics.gated import GatedParams, GatedPolicy
from orsched.heuristics.planning import as_known, pack_known, plan
from orsched.heuristics.policy_method import LiveMethod, PolicyMethod, read_params, split
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.simulator.policy import Policy
    from orsched.solving.methods import Outcome, Run

_NONE, _PREDICTED, _CLAIRVOYANT = (
    Information.NONE,
    Information.PREDICTED,
    Information.CLAIRVOYANT,
)


def _read(defaults: GatedParams, parameters: dict[str, Any]) -> GatedParams:
    """Return the defaults with some parameters replaced; a dispatcher's say nothing here."""
    own, _ = split(parameters, defaults.to_dict())
    params: GatedParams = read_params(GatedParams, {**defaults.to_dict(), **own})
    return params


@dataclass(frozen=True)
class GatedMethod(LiveMethod):
    """A ``GatedPolicy`` with its defaults, on one worker that does not pad."""

    name: str
    information: tuple[Information, ...]
    summary: str
    defaults: GatedParams

    def build(
        self,
        instance: Instance,
        information: Information,
        parameters: dict[str, Any],
        seed: int,
        seconds_left: float = math.inf,
    ) -> tuple[Policy, dict[str, Any]]:
        """Return a fresh policy with its packing, for which a quarter of the time is taken."""
        instance.require_stages(self.name)
        params = _read(self.defaults, parameters)
        packing = None
        if params.assignment == "packing" and information is not _NONE:
            packing = pack_known(as_known(instance, information), seconds_left)
        classes = instance.requests.service_class.tolist()
        policy = GatedPolicy(params, information, self.name, packing, classes)
        return policy, params.to_dict()

    def check_parameters(self, parameters: dict[str, Any]) -> None:
        """Raise ``InputError`` for parameters that are wrong on whatever instance."""
        _read(self.defaults, parameters)

    def require_fit(
        self, instance: Instance, information: Information, parameters: dict[str, Any]
    ) -> None:
        """Refuse workers that do not take stages, and predictions that the instance lacks."""
        instance.require_stages(self.name)
        if information is not _NONE:
            as_known(instance, information)


@dataclass(frozen=True)
class PlannedMethod(GatedMethod):
    """A ``GatedPolicy`` whose open parameters are chosen on the known lengths beforehand."""

    live: ClassVar[bool] = False

    def __call__(self, instance: Instance, run: Run) -> Outcome:
        """Plan on what is known, then run the chosen policy on the truth."""
        instance.require_stages(self.name)
        params = _read(self.defaults, run.parameters)
        return plan(instance, self.name, params, frozenset(run.parameters) - {"dispatch"}, run)


FCFS = PolicyMethod(
    "fcfs",
    (_NONE,),
    "first come first served, prefill first (vLLM V0, Pang's baseline)",
    lambda instance, params, information, seed: FirstComeFirstServed(),
)

OFFLINE = GatedMethod(
    "offline",
    (_CLAIRVOYANT, _PREDICTED),
    "makespan packing onto the clients, then fcfs's gate (Pang, offline request scheduling)",
    GatedParams("packing", "arrival", steal=False, gate="prefill_first"),
)

ONLINE = GatedMethod(
    "online",
    (_NONE, _PREDICTED),
    "sorting with stealing and the waited-time gate (Pang, Algorithm 1 and section IV-C)",
    GatedParams("round_robin", "longest", steal=True, gate="waited_time"),
)

HYBRID = PlannedMethod(
    "hybrid",
    (_CLAIRVOYANT, _PREDICTED),
    "packing, sorting with stealing and the derived gate, planned on the known lengths",
    GatedParams("packing", "longest", steal=True, gate="idle_cost"),
)
