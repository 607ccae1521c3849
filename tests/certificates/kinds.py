"""A bound of every kind: an instance, and a certificate that proves a bound on an objective."""

from functools import cache
from typing import NamedTuple

import orsched
from orsched import BlockMemory, Instance, Link, Requests, Worker
from orsched.costs import AffineCost, BilinearCost, LevelsCost, PoolingCost, RooflineCost
from orsched.models.bounds import stages_rounds_bound
from orsched.models.packing import PackingResult
from tests.decoding import decoding
from tests.in_order import in_order

COST = in_order(AffineCost, 25, 1, 29, 2)
STAGES = in_order(AffineCost, 40, 1, 10, 1)
POOLED = in_order(PoolingCost, 10, 10**6, 5 * 10**6, 10**6, 10**6)
FALLING = in_order(BilinearCost, 10**6, 10**6, 10**6, -1, 10**6, 10**6, 10**6, 10**6)
NO_PACKING = ([2, 6, 7, 4, 3, 2], 3)
"""Rounds and clients: 8 would have to be full, nothing fits beside the 7; 9 are enough."""
PROOFS = {
    "dual": {"duals": [[7, 1]]},
    "cover": {"duals": [[2, 2], [3, 3], [4, 4], [6, 6]]},
    "tree": {"duals": [[2, 2], [3, 3], [4, 4], [6, 6]], "tree": [[[1, 0, 0, 0, 0], None]]},
}
"""Three proofs that 8 are not enough, as a search for a packing may return them."""


class Kind(NamedTuple):
    """An instance with a bound whose certificate has an entry of this value, found by its path."""

    instance: Instance
    path: tuple[str, ...]
    value: str
    objective: str = "makespan"
    allows: tuple[str, ...] = ()
    proof: str | None = None

    def bound(self, monkeypatch):
        """Return the bound, with the proof of its packing as the search would have found it."""
        if self.proof is not None:
            monkeypatch.setattr(stages_rounds_bound, "pack", finding(self.proof))
        return orsched.bound(self.instance, self.objective, allows=self.allows)


ROOM = BlockMemory(20, 1, "whole")
PAGES = BlockMemory(8, 4, "paged")
ROOFLINE = in_order(RooflineCost, 10**6, 9 * 10**6, 10**6, 0, 0)


def finding(proof, value=9, **changes):
    """Return a search for a packing that finds 9 for ``NO_PACKING``, with such a proof."""

    def pack(jobs, clients, time_limit=None):
        certificate = {"bound": proof, "value": value, **PROOFS[proof], **changes}
        return PackingResult(value, value, True, [0, 0, 1, 2, 2, 2], certificate, 0.0)

    return pack


def problem(prompts, rounds, worker, **more):
    """Return an instance; ``arrivals``, and fields: ``first_token`` is ``decode`` by default."""
    requests = Requests(prompts, rounds, arrival_ns=more.pop("arrivals", None))
    return Instance(requests, worker, **{"first_token": "decode", **more})


def due(worker):
    """Return an instance with due dates, and weights of which one is 0."""
    limits, weights = [50, 900, 300, 2000, 10], [2, 1, 3, 1, 0]
    requests = Requests(
        [9, 2, 7, 4, 3], [3, 9, 2, 8, 5], arrival_ns=[0, 5, 0, 9, 90], deadline_ns=limits,
        weights=weights,
    )  # fmt: skip
    return Instance(requests, worker, first_token="decode")


@cache
def kinds():
    """Return an example of each kind of certificate, and of each reason that it may give."""
    rounds, clients = NO_PACKING
    prompts, outputs = [9, 2, 7, 4, 3, 5], [3, 9, 2, 8, 5, 7]
    many = problem(prompts, outputs, Worker(2, COST, 12))
    levels = Worker(2, LevelsCost(levels=((9, 5), (16, 12), (40, 60)), round_fixed_ns=3))
    fast, slow = Worker(2, COST, name="a"), Worker(1, COST.scaled(3), name="b")
    equal = (Worker(clients, COST, name="a"), Worker(clients, COST, name="b"))
    both = tuple(Worker(4, in_order(AffineCost, 0, 0, 10, 10), name=name) for name in "ab")
    apart = (Worker(2, COST, name="a", role="prefill"), Worker(2, COST, name="b", role="decode"))
    pooled = (Worker(2, POOLED), Worker(1, POOLED.scaled(2), name="b"))
    sharing = (Worker(12, in_order(AffineCost, 0, 9, 40, 4)),) * 2
    in_turn = problem([9, 2, 7], [3, 9, 2], Worker(1, COST), arrivals=[0, 200, 400])
    uneven, weights = ([1] * 9, [30, 90, 20] * 3), [1, 2, 3] * 3
    late = problem([3], [2], Worker(1, FALLING), arrivals=[7])
    by_name = {
        "makespan": {
            "pools": problem(
                [9, 2, 7], [3, 9, 2], apart, first_token="prefill",
                link=Link(ns_per_token=7, latency_ns=50),
            ),
            "empty": problem([], [], fast),
            "last_arrival": late,
            "joint": problem(
                [1] * 13, [10, 26, 4, 5, 35, 7, 24, 38, 4, 33, 14, 3, 6], Worker(5, STAGES)
            ),
            "charged": problem(prompts, outputs, (fast, slow)),
            "shared": problem([1] * 12, [9] * 12, equal),
            "kv_volume": problem([5] * 6, [9] * 6, Worker(4, ROOFLINE, memory=PAGES)),
            "fleet_prices": problem([1] * 17, [12] + [2] * 16, both),
        },
        "mean_jct": {
            "arrivals": late,
            "alone": problem([3], [2], Worker(1, COST), arrivals=[7]),
            "ranked": in_turn,
            "mean_busy": problem([9, 2, 7, 4] * 3, [3, 9, 2, 8] * 3, (Worker(4, COST), slow)),
            "shared_rounds": problem(
                [20] * 12, [30] * 12, sharing, arrivals=[320 * k for k in range(12)]
            ),
            "ranks": problem(*uneven, Worker(3, COST)),
        },
        "weighted_jct_mean": {
            "weighted_busy": decoding(*uneven, (Worker(3, COST), slow), weights=weights),
            "weighted_ranks": decoding(*uneven, Worker(3, COST), weights=[2] * 9),
        },
        "ttft_p99": {"in_time": problem(*uneven, Worker(3, COST))},
        "mean_ttft": {
            "queue": in_turn,
            "queue_ranks": problem(*uneven, Worker(3, COST)),
            "queue_busy": many,
        },
    }  # fmt: skip
    by_reason = {
        "decode_rounds": {
            "volume": problem([1] * 4, [2] * 4, Worker(2, COST)),
            "longest": problem([1] * 3, [9, 1, 1], Worker(2, COST)),
            "lifted": problem([1] * 3, [3, 3, 3], Worker(2, COST)),
            "rounds by memory": problem([1] * 7, [1] * 3 + [9] * 4, Worker(4, COST, None, ROOM)),
            "large requests": problem([1] * 7, [1] * 3 + [10] * 4, Worker(4, COST, None, ROOM)),
            **dict.fromkeys(PROOFS, problem([1] * len(rounds), rounds, Worker(clients, COST))),
        },
        "prefill_stages": {
            "clients": problem([1] * 4, [2] * 4, Worker(2, COST)),
            "cap": problem([4] * 9, [2] * 9, Worker(9, COST, 12)),
            "large prompts": problem([7] * 5, [2] * 5, Worker(5, COST, 12)),
            "stages by memory": problem([1] * 3 + [8] * 5, [1] * 8, Worker(8, COST, None, ROOM)),
        },
    }
    bound = ("bound",)
    found = {
        "long": Kind(
            problem([1] * 11, [38, 35, 9, 24, 39, 31, 38, 5, 39, 1, 31], Worker(4, STAGES)),
            ("long",), "35",
        ),
        "ends": Kind(
            problem([1] * 10, [13, 14, 15, 14, 15, 11, 15, 15, 15, 7], Worker(4, STAGES)),
            bound, "joint",
        ),
        "charged levels": Kind(
            problem([9, 2, 30, 4], [3, 9, 2, 8], (levels, slow)), bound, "charged"
        ),
        "pooling": Kind(problem([9, 2], [3, 4], pooled), bound, "charged"),
        "chunks": Kind(many, ("allows",), "['chunks', 'mixed']", allows=("chunks", "mixed")),
        "chunked prompt": Kind(
            problem([20, 3], [2, 3], Worker(2, COST, 12)), ("allows",), "['chunks']",
            allows=("chunks",),
        ),
        "restarts": Kind(many, ("allows",), "['restarts']", allows=("restarts",)),
        "late": Kind(due(fast), bound, "late", "lateness_max"),
        "tardy": Kind(due(fast), bound, "tardy", "weighted_tardiness_mean"),
        "starts": Kind(
            due(Worker(1, COST.scaled(3))), bound, "starts", "weighted_tardiness_mean"
        ),
        "due without a floor": Kind(due(late.worker), bound, "arrivals", "lateness_max"),
    }  # fmt: skip
    for objective, instances in by_name.items():
        found |= {name: Kind(each, bound, name, objective) for name, each in instances.items()}
    for part, instances in by_reason.items():
        for name, each in instances.items():
            reason = "memory" if name.endswith("by memory") else name.replace(" ", "_")
            proof = name if name in PROOFS else None
            found[name] = Kind(each, (part, "reason"), reason, proof=proof)
    return found
