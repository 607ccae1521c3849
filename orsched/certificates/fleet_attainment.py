"""Certificates that a fleet lets no more than so many requests keep their limits.

With y_r the share of request r that keeps its limits, a fleet of speed M (its workers times their
weights) has in each window and by each measure ``sum of charges x y <= M x length``. Weights of
windows and measures, from whatever search, bound the sum of the y by weak duality:
``sum of y <= sum of weight x M x length + sum over r of max(0, 1 - sum of weight x charge)``,
in integers, without a solver. Requests that could not keep their limits alone count 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.budget import STEP, Budget
from orsched.certificates.fields import WEIGHT, Field, listed, one_of, table, whole
from orsched.certificates.fleet_demand import FAR, UNIT, Demand, Measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.certificates.fleet_demand import Limits
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.workers import Worker

_COST = 20
"""Cells that a request in a window counts for."""

_measure = table(
    {
        "stage": whole(0, 5),
        "round": whole(0, 5),
        "fixed": one_of("stage", "round", "both"),
        "share": one_of("clients", "memory"),
        "pace": whole(0, 2**20),
    }
)
_window = table(
    {
        "start_ns": whole(0, FAR),
        "end_ns": whole(0, FAR),
        "measure": whole(0, 64),
        "weight": whole(1, 2**120),
    }
)
FIELDS: dict[str, Field] = {
    "bound": one_of("attainment"),
    "weights": listed(whole(1, WEIGHT), 1, 64),
    "speed": whole(0, WEIGHT),
    "one": whole(1, 2**120),
    "measures": listed(_measure, 0, 64),
    "windows": listed(_window, 0, 4096),
    "attained": whole(0, 2**62),
}
_require = table(FIELDS)


def attained_at_most(
    instance: Instance,
    limits: Limits,
    machines: Sequence[Worker],
    claim: dict[str, Any],
    budget: Budget | None = None,
) -> int:
    """Return how many requests keep their limits at most, by a certificate's choices.

    The fleet is any number of each of the machines whose ``weights`` add up to at most ``speed``.

    Raises:
        ValueError: the certificate has wrong fields, or proves nothing of these machines.
    """
    _require(claim, "certificate")
    if len(claim["weights"]) != len(machines):
        raise ValueError(f"there are {len(claim['weights'])} weights of {len(machines)} machines")
    budget = budget or Budget()
    budget.spend(STEP * len(limits) + _COST * len(limits) * len(claim["windows"]))
    demand = Demand(instance, limits, machines, claim["weights"])
    return value_of(demand, claim)


def value_of(demand: Demand, claim: dict[str, Any]) -> int:
    """Return what the windows of a certificate prove of a demand, already worked out."""
    works = [demand.work(Measure(**each)) for each in claim["measures"]]
    priced = np.zeros(len(demand.after), object)
    total = 0
    for window in claim["windows"]:
        start, end = window["start_ns"], window["end_ns"]
        if end < start or window["measure"] >= len(works):
            raise ValueError("a window ends before it starts, or has no measure")
        charges: IntColumn = demand.within(works[window["measure"]], start, end)
        priced += charges.astype(object) * window["weight"]
        total += window["weight"] * claim["speed"] * (end - start) * UNIT
    one = claim["one"]
    for each in priced[demand.possible]:
        if each < one:
            total += one - each
    return int(min(total // one, int(demand.possible.sum())))
