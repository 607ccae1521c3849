"""Policies by their specification, and schedules whatever rows their rounds are divided into."""

from __future__ import annotations

from orsched.common.registry import resolve
from orsched.heuristics.gated import GatedParams, GatedPolicy
from orsched.heuristics.pang import GatedMethod
from orsched.simulator.policy import Information
from orsched.solving.method_choice import read_spec


def build(instance, spec, seed, parameters=None):
    """Return a fresh policy: ``name[@information][+parameter=value]...``."""
    read = read_spec(spec)
    method = resolve("methods", read.name)
    information = Information(read.information or method.information[0])
    if isinstance(method, GatedMethod):
        instance.require_stages(method.name)
        params = GatedParams(**{**method.defaults.to_dict(), **read.parameters})
        return GatedPolicy(params, information, method.name)
    return method.build(instance, information, {**read.parameters, **(parameters or {})}, seed)[0]


def merged(schedule):
    """Return who is served when, whatever rows the rounds are divided into."""
    steps, work = schedule.steps, schedule.work
    names = ("request", "client", "phase", "first_step", "last_step", "tokens", "stay")
    columns = [getattr(work, name).tolist() for name in names]
    return {
        (
            request,
            client,
            phase,
            int(steps.worker[first]),
            int(steps.start_ns[first]),
            int(steps.end_ns[last]),
            tokens,
            stay,
        )
        for request, client, phase, first, last, tokens, stay in zip(*columns, strict=True)
    }
