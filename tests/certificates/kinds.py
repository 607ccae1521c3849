"""A bound of every kind: an instance, and a certificate that proves a bound on an objective."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import orsched
from orsched.costs import AffineCost, BilinearCost, LevelsCost, PoolingCost
from orsched.data.instance import Instance
from orsched.data.links import Link
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.models.bounds import stages_rounds_bound
from orsched.models.packing import PackingResult
from tests.decoding import decoding
from tests.in_order import in_order

if TYPE_CHECKING:
    import pytest

COST = in_order(AffineCost, 25, 1, 29, 2)
STAGES = in_order(AffineCost, 40, 1, 10, 1)
POOLED = in_order(PoolingCost, 10, 10**6, 5 * 10**6, 10**6, 10**6)
FALLING = in_order(BilinearCost, 10**6, 10**6, 10**6, -1, 10**6, 10**6, 10**6, 10**6)
NO_PACKING = ([2, 6, 7, 4, 3, 2], 3)
"""Rounds and clients: 8 would have to be full, nothing fits beside the 7; 9 are enough."""
PROOFS: dict[str, dict[str, Any]] = {
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

    def bound(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Return the bound, with the proof of its packing as the search would have found it."""
        if self.proof is not None:
            monkeypatch.setattr(stages_rounds_bound, "pack", finding(self.proof))
        return orsched.bound(self.instance, self.objective, allows=self.allows)


ROOM = BlockMemory(20, 1, "whole")


def finding(proof: str, value: int = 9, **changes: Any) -> Any:
    """Return a search for a packing that finds 9 for ``NO_PACKING``, with such a proof."""

    def pack(jobs: list[int], clients: int, time_limit: float | None = None) -> PackingResult:
        certificate = {"bound": proof, "value": value, **PROOFS[proof], **changes}
        return PackingResult(value, value, True, [0, 0, 1, 2, 2, 2], certificate, 0.0)

    return pack


def problem(
    prompts: list[int], rounds: list[int], worker: Worker | tuple[Worker, ...], **more: Any
) -> Instance:
    """Return an instance; ``arrivals``, and fields: ``first_token`` is ``decode`` by default."""
    return Instance(
        Requests(prompts, rounds, arrival_ns=more.pop("arrivals", None)),
        worker,
        **{"first_token": "decode", **more},
    )


def _rounds(reason: str, instance: Instance) -> Kind:
    return Kind(instance, ("decode_rounds", "reason"), reason)


def _stages(reason: str, instance: Instance) -> Kind:
    return Kind(instance, ("prefill_stages", "reason"), reason)


@cache
def kinds() -> dict[str, Kind]:
    """Return an example of each kind of certificate, and of each reason that it may give."""
    rounds, clients = NO_PACKING
    ones = [1] * len(rounds)
    unpackable = problem(ones, rounds, Worker(clients, COST))
    many = problem([9, 2, 7, 4, 3, 5], [3, 9, 2, 8, 5, 7], Worker(2, COST, 12))
    levels = Worker(2, LevelsCost(levels=((9, 5), (16, 12), (40, 60)), round_fixed_ns=3))
    fast, slow = Worker(2, COST, name="a"), Worker(1, COST.scaled(3), name="b")
    both = problem([9, 2, 7, 4, 3, 5], [3, 9, 2, 8, 5, 7], (fast, slow))
    equal = (Worker(clients, COST, name="a"), Worker(clients, COST, name="b"))
    apart = (Worker(2, COST, name="a", role="prefill"), Worker(2, COST, name="b", role="decode"))
    found = {
        "pools": Kind(
            problem([9, 2, 7], [3, 9, 2], apart, first_token="prefill",
                    link=Link(ns_per_token=7, latency_ns=50)),
            ("bound",), "pools",
        ),
        "empty": Kind(problem([], [], fast), ("bound",), "empty"),
        "last_arrival": Kind(
            problem([3], [2], Worker(1, FALLING), arrivals=[7]), ("bound",), "last_arrival"
        ),
        "longest_request": Kind(
            problem([9, 1, 1], [3, 1, 1], Worker(3, COST), arrivals=[90, 0, 0]),
            ("bound",),
            "longest_request",
        ),
        "joint": Kind(
            problem(
                [1] * 13, [10, 26, 4, 5, 35, 7, 24, 38, 4, 33, 14, 3, 6], Worker(5, STAGES)
            ),
            ("bound",), "joint",
        ),
        "long": Kind(
            problem([1] * 11, [38, 35, 9, 24, 39, 31, 38, 5, 39, 1, 31], Worker(4, STAGES)),
            ("long",), "35",
        ),
        "ends": Kind(
            problem([1] * 10, [13, 14, 15, 14, 15, 11, 15, 15, 15, 7], Worker(4, STAGES)),
            ("bound",), "joint",
        ),
        "charged": Kind(both, ("bound",), "charged"),
        "charged levels": Kind(
            problem([9, 2, 30, 4], [3, 9, 2, 8], (levels, slow)), ("bound",), "charged"
        ),
        "shared": Kind(problem([1] * 12, [9] * 12, equal), ("bound",), "shared"),
        "volume": _rounds("volume", problem([1] * 4, [2] * 4, Worker(2, COST))),
        "longest": _rounds("longest", problem([1] * 3, [9, 1, 1], Worker(2, COST))),
        "lifted": _rounds("lifted", problem([1] * 3, [3, 3, 3], Worker(2, COST))),
        "rounds by memory": _rounds(
            "memory", problem([1] * 7, [1] * 3 + [9] * 4, Worker(4, COST, None, ROOM))
        ),
        "large requests": _rounds(
            "large_requests",
            problem([1] * 7, [1] * 3 + [10] * 4, Worker(4, COST, None, ROOM)),
        ),
        "clients": _stages("clients", problem([1] * 4, [2] * 4, Worker(2, COST))),
        "cap": _stages("cap", problem([4] * 9, [2] * 9, Worker(9, COST, 12))),
        "large prompts": _stages("large_prompts", problem([7] * 5, [2] * 5, Worker(5, COST, 12))),
        "stages by memory": _stages(
            "memory", problem([1] * 3 + [8] * 5, [1] * 8, Worker(8, COST, None, ROOM))
        ),
        "chunks": Kind(many, ("allows",), "['chunks', 'mixed']", allows=("chunks", "mixed")),
        "chunked prompt": Kind(
            problem([20, 3], [2, 3], Worker(2, COST, 12)), ("allows",), "['chunks']",
            allows=("chunks",),
        ),
        "restarts": Kind(many, ("allows",), "['restarts']", allows=("restarts",)),
        "arrivals": Kind(
            problem([3], [2], Worker(1, FALLING), arrivals=[7]), ("bound",), "arrivals", "mean_jct"
        ),
        "alone": Kind(
            problem([3], [2], Worker(1, COST), arrivals=[7]), ("bound",), "alone", "mean_jct"
        ),
        "ranked": Kind(
            problem([9, 2, 7], [3, 9, 2], Worker(1, COST), arrivals=[0, 200, 400]),
            ("bound",), "ranked", "mean_jct",
        ),
        "mean_busy": Kind(
            problem([9, 2, 7, 4] * 3, [3, 9, 2, 8] * 3, (Worker(4, COST), slow)),
            ("bound",), "mean_busy", "mean_jct",
        ),
        "shared_rounds": Kind(
            problem(
                [20] * 12, [30] * 12, (Worker(12, in_order(AffineCost, 0, 9, 40, 4)),) * 2,
                arrivals=[320 * k for k in range(12)],
            ),
            ("bound",), "shared_rounds", "mean_jct",
        ),
        "queue": Kind(
            problem([9, 2, 7], [3, 9, 2], Worker(1, COST), arrivals=[0, 200, 400]),
            ("bound",), "queue", "mean_ttft",
        ),
        "ranks": Kind(
            problem([1] * 9, [30, 90, 20] * 3, Worker(3, COST)), ("bound",), "ranks", "mean_jct"
        ),
        "weighted_busy": Kind(
            decoding([1] * 9, [30, 90, 20] * 3, (Worker(3, COST), slow), weights=[1, 2, 3] * 3),
            ("bound",), "weighted_busy", "weighted_jct_mean",
        ),
        "weighted_ranks": Kind(
            decoding([1] * 9, [30, 90, 20] * 3, Worker(3, COST), weights=[2] * 9),
            ("bound",), "weighted_ranks", "weighted_jct_mean",
        ),
        "queue_ranks": Kind(
            problem([1] * 9, [30, 90, 20] * 3, Worker(3, COST)),
            ("bound",), "queue_ranks", "mean_ttft",
        ),
        "queue_busy": Kind(many, ("bound",), "queue_busy", "mean_ttft"),
        "pooling": Kind(
            problem([9, 2], [3, 4], (Worker(2, POOLED), Worker(1, POOLED.scaled(2), name="b"))),
            ("bound",), "charged",
        ),
    }  # fmt: skip
    for proof in PROOFS:
        found[proof] = _rounds(proof, unpackable)._replace(proof=proof)
    return found
