"""What the tests of slices share: a worker whose times are easy to add up, and runs of policies."""

from orsched import BilinearCost, BlockMemory, Instance, Requests, Worker
from orsched.heuristics.scls import SlicedPolicy, SliceParams
from tests.heuristics.building import solved

MS = 1_000_000

PLAIN = BilinearCost.from_ms((0, 0, 1, 0), (0, 0, 0, 1))
"""A stage takes 1 ms a token of the longest prompt, a round 1 ms, for however many requests."""


def padding_worker(clients=8, cost=PLAIN, blocks=None, cap=None):
    memory = None if blocks is None else BlockMemory(blocks, 1, "paged")
    return Worker(clients, cost, cap, memory, padding=True)


def instance(prompts, outputs, arrivals_ms=None, workers=1, limit=None, rule="decode", **worker):
    arrivals = None if arrivals_ms is None else [round(t * MS) for t in arrivals_ms]
    fleet = (padding_worker(**worker),) * workers
    requests = Requests(prompts, outputs, arrival_ns=arrivals)
    return Instance(requests, fleet, rule, output_limit_tokens=limit)


def run(problem, policy=None, **params):
    """Return the checked schedule and the policy."""
    policy = SlicedPolicy(SliceParams(**params)) if policy is None else policy
    return solved(problem, policy), policy


def steps(schedule):
    """Return (worker, phase, start in ms, end in ms, rounds) of each step."""
    s = schedule.steps
    columns = (s.worker, s.phase, s.start_ns / MS, s.end_ns / MS, s.rounds)
    return list(zip(*(column.tolist() for column in columns), strict=True))
