"""Policies by their specification, what they serve, and schedules whatever rows rounds are in."""

import random

from orsched import InfeasibleError, Information, InputError, PolicyError
from orsched.common.registry import resolve
from orsched.heuristics.gated import GatedParams, GatedPolicy
from orsched.heuristics.pang import GatedMethod
from orsched.simulator import simulate_policy
from orsched.solving.method_choice import read_spec
from tests.random_instances import random_batching_instance

UNSERVED = (InputError, PolicyError, InfeasibleError)


def build(instance, spec, seed=0, parameters=None):
    """Return a fresh policy: ``name[@information][+parameter=value]...``."""
    read = read_spec(spec)
    method = resolve("methods", read.name)
    information = Information(read.information or method.information[0])
    if isinstance(method, GatedMethod):
        instance.require_stages(method.name)
        params = GatedParams(**{**method.defaults.to_dict(), **read.parameters})
        return GatedPolicy(params, information, method.name)
    given = parameters if len(instance.workers) > 1 else None  # those of a dispatcher
    return method.build(instance, information, {**read.parameters, **(given or {})}, seed)[0]


def served(text, spec, count, parameters=None, most=8, change=None):
    """Yield seed, random numbers, instance and schedule of what a policy can serve."""
    for seed in range(count):
        rng = random.Random(f"{text} {seed}")
        instance = random_batching_instance(rng, most)
        instance = change(instance) if change else instance
        try:
            policy = build(instance, spec, seed, parameters)
            schedule = simulate_policy(instance, policy).schedule
        except UNSERVED:
            continue
        yield seed, rng, instance, schedule


def merged(schedule):
    """Return who is served when, whatever rows the rounds are divided into."""
    steps, work = schedule.steps, schedule.work
    first, last = work.first_step, work.last_step
    columns = (
        work.request, work.client, work.phase, work.tokens, work.stay, steps.worker[first],
        steps.start_ns[first], steps.end_ns[last],
    )  # fmt: skip
    return set(zip(*(column.tolist() for column in columns), strict=True))
