"""An affine cost in the place of one that does not split into stages and rounds.

The search counts stages and rounds; where a round's time depends on contexts, or a stage's on more
than its tokens, it searches under the line through the steps of a schedule at hand, and every plan
that it finds is carried out under the real cost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from orsched.calibration.observed import step_contents
from orsched.costs import AffineCost
from orsched.data.schedule import DECODE, PREFILL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

    Floats = NDArray[np.float64]


def affine_beside(instance: Instance, schedule: Schedule) -> Instance:
    """Return the instance with the affine cost that is nearest to the times of a schedule's steps.

    Stages by their tokens, rounds by their requests, least squares, each part at least 0: a round
    takes at least 1 ns.
    """
    steps, worker = step_contents(instance, schedule), instance.worker
    took = (steps.end_ns - steps.start_ns).astype(np.float64)
    stages, rounds = steps.phase == PREFILL, steps.phase == DECODE
    stage = _line(steps.tokens[stages], took[stages], np.ones(int(stages.sum())))
    each = steps.rounds[rounds].astype(np.float64)
    round_ = _line(steps.active[rounds], took[rounds] / each, each)
    cost = AffineCost(
        prefill_fixed_ns=stage[0],
        prefill_token_ns=stage[1],
        round_fixed_ns=max(1, round_[0]),
        round_client_ns=round_[1],
    )
    # caps that the real cost model has of its own are those of its worker from now on
    line = replace(worker, cost=cost, prefill_cap_tokens=worker.prefill_limit)
    return instance.replace(workers=line)


def _line(x: Floats, times: Floats, weights: Floats) -> tuple[int, int]:
    """Return a fixed part and one a unit, at least 0 each, by weighted least squares."""
    if len(x) == 0:
        return 0, 0
    at, mean = float(np.average(x, weights=weights)), float(np.average(times, weights=weights))
    spread = float(np.average((x - at) ** 2, weights=weights))
    slope = float(np.average((x - at) * (times - mean), weights=weights))
    per = max(0.0, slope / spread) if spread > 0 else 0.0
    fixed = mean - per * at
    if fixed < 0:
        return 0, max(0, round(mean / at))
    return round(fixed), round(per)
