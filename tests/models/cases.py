"""Small instances under every cost model, for bounds beside exhaustive search."""

from hypothesis import strategies as st

from orsched import BlockMemory, Instance, Requests, Worker
from orsched import costs as models
from orsched.checker.certificates import bound_violations
from orsched.models.bounds.bounds import makespan_bound
from tests.in_order import in_order

AFFINE = tuple(
    in_order(models.AffineCost, *times)
    for times in (
        (25, 1, 29, 2), (0, 0, 7, 0), (100, 3, 1, 1), (3, 1, 20, 0), (40, 3, 1, 1), (2, 0, 40, 1),
        (9, 1, 10, 2), (0, 0, 0, 0),
    )
)  # fmt: skip
LEVELS = (
    models.LevelsCost(levels=((4, 10), (9, 16)), round_fixed_ns=5),
    models.LevelsCost(levels=((9, 30),), round_fixed_ns=1),
    models.LevelsCost(levels=((9, 5), (16, 12), (40, 60)), round_fixed_ns=3),
    models.LevelsCost(levels=((6, 3), (12, 5)), round_fixed_ns=4),
)
MEGA = 10**6
FALLING = in_order(models.BilinearCost, MEGA, -1, 0, 10**7, MEGA, 0, 0, 10**7)
"""A stage of which nothing is known: it may be shorter with another prompt."""
COSTS = (
    *AFFINE,
    *LEVELS,
    in_order(models.BilinearCost, MEGA, 2 * MEGA, 10**5, 3 * MEGA, 10**5, MEGA, MEGA, 2 * MEGA),
    in_order(models.BilinearCost, MEGA, MEGA, 0, 10**7, 10**5, MEGA, MEGA, 2 * 10**7),
    in_order(models.BilinearCost, *[1] * 8),
    FALLING,
    in_order(models.PoolingCost, 10**5, MEGA, 5 * MEGA, MEGA, MEGA),
    in_order(models.PoolingCost, MEGA, 0, MEGA, 3 * MEGA, 9 * MEGA),
    in_order(models.PoolingCost, *[1] * 5),
    in_order(models.RooflineCost, MEGA, 30 * MEGA, 4 * MEGA, MEGA, 3 * 10**5),
    in_order(models.RooflineCost, *[1] * 5),
    in_order(models.RooflineCost, MEGA, 5 * MEGA, 3 * MEGA, 10**5, 10**5,
             pieces=((1, 9 * MEGA), (2, 4 * MEGA), (4, MEGA))),
    in_order(
        models.LinearCost, 30 * MEGA, MEGA, 10**5, 20 * MEGA, 3 * MEGA, MEGA, 4 * MEGA, MEGA
    ),
)  # fmt: skip
CHEAP_STAGES = (
    in_order(models.AffineCost, 9, 0, 10, 1), in_order(models.AffineCost, 3, 1, 10, 0),
    in_order(models.AffineCost, 1, 0, 7, 0), in_order(models.AffineCost, 0, 0, 7, 0), LEVELS[3],
    models.LevelsCost(levels=((4, 2), (12, 9)), round_fixed_ns=10),
)  # fmt: skip
"""Where few stages take fewer rounds to save a stage."""


@st.composite
def small(
    draw, most=4, least=1, costs=COSTS, *, longest=(9, 4), clients=3, caps=(None, 9, 12),
    blocks=(13, 30), late=(0, 0, 100), workers=(1, 1),
):  # fmt: skip
    """Feasible instances that the exhaustive search can solve, on equal workers."""
    n = draw(st.integers(least, most))
    column = lambda low, high: draw(st.lists(st.integers(low, high), min_size=n, max_size=n))  # noqa: E731
    memory = BlockMemory(draw(st.integers(*blocks)), 1, "whole") if draw(st.booleans()) else None
    cost, cap = draw(st.sampled_from(costs)), draw(st.sampled_from(caps))
    worker = Worker(draw(st.integers(1, clients)), cost, cap, memory)
    arrivals, predicted = column(0, draw(st.sampled_from(late))), column(1, longest[1])
    prompts, outputs = (column(1, long) for long in longest)
    return Instance(
        Requests(prompts, outputs, arrival_ns=arrivals, predicted_tokens=predicted),
        (worker,) * draw(st.integers(*workers)),
        first_token=draw(st.sampled_from(("decode", "prefill"))),
    )


def shuffled(instance, rng):
    """The instance with its rows in another order."""
    return instance.replace(
        requests=instance.requests.take(rng.sample(range(len(instance)), len(instance)))
    )


def proven(instance, found=None, objective="makespan"):
    """Return a bound, that on the makespan without a search by default; its certificate holds."""
    found = makespan_bound(instance) if found is None else found
    assert bound_violations(instance, found.to_dict(), objective) == []
    return found


def values_of(schedule):
    """The figures of a schedule that bounds are compared with, by objective."""
    means = {f"mean_{name}": schedule.results[f"{name}_ns"]["mean"] for name in ("jct", "ttft")}
    return {"makespan": schedule.makespan_ns, **means}
