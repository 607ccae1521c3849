"""The optimum on several workers: every division of the requests, each worker searched alone."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from orsched import BlockMemory, InfeasibleError, Instance, Requests, Worker
from orsched.costs import (
    AffineCost,
    BilinearCost,
    LevelsCost,
    LinearCost,
    PoolingCost,
    RooflineCost,
)
from tests.in_order import in_order

COSTS = (
    in_order(AffineCost, 25, 1, 29, 2),
    in_order(AffineCost, 0, 0, 7, 0),
    in_order(AffineCost, 2, 0, 40, 1),
    in_order(AffineCost, 0, 0, 0, 0),
    LevelsCost(levels=((4, 10), (9, 16)), round_fixed_ns=5),
    LevelsCost(levels=((9, 5), (16, 12), (40, 60)), round_fixed_ns=3),
    in_order(BilinearCost, 10**6, 2 * 10**6, 10**5, 3 * 10**6, 10**5, 10**6, 10**6, 2 * 10**6),
    in_order(BilinearCost, 10**6, 10**6, 0, 10**7, 10**5, 10**6, 10**6, 2 * 10**7),
    in_order(BilinearCost, 1, 1, 1, 1, 1, 1, 1, 1),
    in_order(PoolingCost, 10**5, 10**6, 5 * 10**6, 10**6, 10**6),
    in_order(PoolingCost, 10**6, 0, 10**6, 3 * 10**6, 9 * 10**6),
    in_order(PoolingCost, 1, 1, 1, 1, 1),
    in_order(RooflineCost, 10**6, 30 * 10**6, 4 * 10**6, 10**6, 3 * 10**5),
    in_order(RooflineCost, 1, 1, 1, 1, 1),
    in_order(LinearCost, 30 * 10**6, 10**6, 10**5, 20 * 10**6, 3 * 10**6, 10**6, 4 * 10**6, 10**6),
)


@st.composite
def divisible(draw, workers=3, most=4):
    """Draw an instance of a few requests and unequal workers; some fit onto none of them."""
    n = draw(st.integers(1, most))
    column = lambda low, high: draw(st.lists(st.integers(low, high), min_size=n, max_size=n))  # noqa: E731
    listed = [
        Worker(
            draw(st.integers(1, 3)),
            draw(st.sampled_from(COSTS)),
            draw(st.sampled_from((None, 6, 9, 12))),
            BlockMemory(draw(st.integers(8, 30)), 1, "whole") if draw(st.booleans()) else None,
            name=f"worker-{k}",
        )
        for k in range(draw(st.integers(1, workers)))
    ]
    arrivals = column(0, draw(st.sampled_from((0, 100, 300))))
    return Instance(
        Requests(column(1, 9), column(1, 4), arrival_ns=arrivals),
        tuple(listed),
        first_token=draw(st.sampled_from(("decode", "prefill"))),
    )


def least_over_divisions(instance, least_of_one, join):
    """Least value over all divisions, ``join`` of each worker's optimum; None: none is feasible."""
    known, best = {}, None
    for owners in product(range(len(instance.workers)), repeat=len(instance)):
        values = []
        for worker in sorted(set(owners)):
            rows = tuple(row for row, owner in enumerate(owners) if owner == worker)
            if (worker, rows) not in known:
                part = instance.replace(
                    requests=instance.requests.take(list(rows)), workers=instance.workers[worker]
                )
                try:
                    part.require_feasible()
                    known[worker, rows] = least_of_one(part)
                except InfeasibleError:
                    known[worker, rows] = None
            values.append(known[worker, rows])
        if None not in values:
            best = join(values) if best is None else min(best, join(values))
    return best
