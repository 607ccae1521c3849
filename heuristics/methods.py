"""The four methods of Pang: fcfs, offline, online, hybrid.

Where the paper is vague the choices are those that reproduce its makespans best (the page
*Reproducing Pang* has the table); every other choice is a parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orsched.heuristics.fcfs import FirstComeFirstServed
from orsched.heuristics.gated import GatedParams, GatedPolicy
from orsched.heuristics.planning import as_known, in_time, pack_known, plan
from orsched.heuristics.policy_method import PolicyMethod, read_params
from orsched.methods import Outcome, Progress, Run
from orsched.policy import Information, Policy
from orsched.result import Termination
from orsched.simulator import simulate_policy

if TYPE_CHECKING:
    from orsched.instance import Instance

_NONE, _PREDICTED, _CLAIRVOYANT = (
    Information.NONE,
    Information.PREDICTED,
    Information.CLAIRVOYANT,
)


def _read(defaults: GatedParams, parameters: dict[str, Any]) -> GatedParams:
    """Return the defaults with some parameters replaced."""
    params: GatedParams = read_params(GatedParams, {**defaults.to_dict(), **parameters})
    return params


def simulate_once(
    instance: Instance, policy: Policy, run: Run, parameters: dict[str, Any]
) -> Outcome:
    """Run one policy from start to end."""
    done = simulate_policy(instance, policy, deadline=lambda: in_time(run))
    run.report(Progress(policy.name, 1, done.schedule.makespan_ns, True))
    return Outcome(done.schedule, Termination.FINISHED, done.decision_ns, parameters)


@dataclass(frozen=True)
class GatedMethod:
    """A ``GatedPolicy`` with its defaults, simulated once."""

    name: str
    information: tuple[Information, ...]
    summary: str
    defaults: GatedParams

    def __call__(self, instance: Instance, run: Run) -> Outcome:
        """Simulate the policy, on one worker that does not pad."""
        instance.require_stages(self.name)
        params = _read(self.defaults, run.parameters)
        packing = None
        if params.assignment == "packing" and run.information is not _NONE:
            packing = pack_known(as_known(instance, run.information), run)
        classes = instance.requests.service_class.tolist()
        policy = GatedPolicy(params, run.information, self.name, packing, classes)
        return simulate_once(instance, policy, run, params.to_dict())


@dataclass(frozen=True)
class PlannedMethod(GatedMethod):
    """A ``GatedPolicy`` whose open parameters are chosen on the known lengths beforehand."""

    def __call__(self, instance: Instance, run: Run) -> Outcome:
        """Plan on what is known, then run the chosen policy on the truth."""
        instance.require_stages(self.name)
        params = _read(self.defaults, run.parameters)
        return plan(instance, self.name, params, frozenset(run.parameters), run)


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
    "sorting with stealing and the Lagrangian gate (Pang, Algorithm 1 and section IV-C)",
    GatedParams("round_robin", "longest", steal=True, gate="waited_time"),
)

HYBRID = PlannedMethod(
    "hybrid",
    (_CLAIRVOYANT, _PREDICTED),
    "packing, sorting with stealing and the derived gate, planned on the known lengths",
    GatedParams("packing", "longest", steal=True, gate="idle_cost"),
)
