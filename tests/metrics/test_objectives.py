"""Service-level objectives where a pace is not defined."""

from __future__ import annotations

import orsched
from orsched.data.schedule import Steps, Work
from orsched.metrics.summary import SLO, summarise
from tests.in_order import in_order


def test_a_request_of_one_token_has_no_pace_even_if_its_batch_holds_it():
    worker = orsched.Worker(2, in_order(orsched.costs.AffineCost, 4, 1, 8, 1))
    instance = orsched.Instance(orsched.Requests([3, 3], [1, 4]), worker, first_token="prefill")
    steps = in_order(Steps, [0, 0], [0, 1], [0, 10], [10, 40], [1, 3])
    work = Work([0, 0, 1, 1], [0, 0, 1, 1], [0, 2, 0, 1], [0, 1, 0, 1], [0, 1, 0, 1], [3, 1, 3, 1])
    schedule = orsched.Schedule(instance.sha256, steps, work, "own", "none")
    assert orsched.check(instance, schedule) == []
    assert summarise(instance, schedule, SLO(ttft_ns=10, tpot_ns=10))["slo"]["attained"] == 2
    assert summarise(instance, schedule, SLO(ttft_ns=10, tpot_ns=9))["slo"]["attained"] == 1
