"""The optimum on several workers: every division of the requests, each worker searched alone."""

from itertools import product

from hypothesis import strategies as st

from orsched import BlockMemory, InfeasibleError, Worker
from tests.models.cases import COSTS, FALLING, small

DIVISIBLE = tuple(cost for cost in COSTS if cost != FALLING)


@st.composite
def divisible(draw, workers=3, most=4):
    """Draw an instance of a few requests and unequal workers; some fit onto none of them."""
    instance = draw(small(most, late=(0, 100, 300)))
    listed = [
        Worker(
            draw(st.integers(1, 3)),
            draw(st.sampled_from(DIVISIBLE)),
            draw(st.sampled_from((None, 6, 9, 12))),
            BlockMemory(draw(st.integers(8, 30)), 1, "whole") if draw(st.booleans()) else None,
            name=f"worker-{k}",
        )
        for k in range(draw(st.integers(1, workers)))
    ]
    return instance.replace(workers=tuple(listed))


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
