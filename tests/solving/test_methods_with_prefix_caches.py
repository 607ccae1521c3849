"""Every registered method on workers with a prefix cache: a valid schedule, or a clear refusal."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import orsched
from orsched.checker import check
from orsched.common.errors import InfeasibleError, InputError
from orsched.common.registry import BUILT_IN, method_information
from orsched.common.stop import MaxIterations
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.data.prefixes import Prefixes
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from tests.in_order import in_order
from tests.simulator.prefix_workloads import prefix_instance

METHODS = [
    (name, information)
    for name in BUILT_IN["methods"]
    for information in method_information(name) or ()
]
SEEDS = (1, 2, 5, 12)
"""Small instances with hits, few blocks, and requests that are evicted."""

WITHOUT_CACHES = ("exact", "latency_search")
"""Methods that refuse instances with prefix caches, whatever is in them."""


def instances(at_once):
    """Instances of one worker and of two, with predictions."""
    found = []
    for workers in (1, 2):
        for seed in SEEDS:
            instance = prefix_instance(seed, workers)
            requests = instance.requests
            arrivals = np.zeros(len(requests), np.int64) if at_once else requests.arrival_ns
            predicted = np.maximum(1, requests.output_tokens - 1)
            requests = requests.replace(
                arrival_ns=arrivals,
                predicted_tokens=predicted,
                predicted_quantiles=np.stack([predicted, predicted + 1], axis=1),
                quantile_levels=(0.5, 0.9),
            )
            found.append(instance.replace(requests=requests))
        found.append(all_the_same(workers))
    return found


def all_the_same(workers):
    """Ten requests with one prompt, so that bounds must know what a cache saves."""
    prefixes = Prefixes.from_documents([0] * 10, 196, 4)
    requests = Requests(
        [200] * 10, [2] * 10, predicted_tokens=[2] * 10, prefixes=prefixes,
        predicted_quantiles=[[2, 2]] * 10, quantile_levels=(0.5, 0.9),
    )  # fmt: skip
    memory = BlockMemory(200, 4, "paged", PrefixCache())
    names = [f"w{index}" for index in range(workers)]
    cost = in_order(AffineCost, 0, 1000, 1, 1)
    return Instance(
        requests,
        tuple(Worker(2, cost, memory=memory, name=name) for name in names),
        first_token="decode",
    )


@pytest.mark.parametrize(("method", "information"), METHODS)
def test_a_method_is_valid_or_refuses(method, information):
    outcomes = Counter()
    for at_once in (False, True):
        for instance in instances(at_once):
            if len(instance) > 16:
                continue
            try:
                result = orsched.solve(
                    instance, method=method, information=information, stop=MaxIterations(2)
                )
            except (InputError, InfeasibleError) as error:
                outcomes["refused"] += 1
                outcomes["told what to do"] += bool(getattr(error, "remedy", "leave it out"))
                continue
            assert check(instance, result.schedule) == []
            assert result.schedule.results["hit_tokens"] == result.schedule.work.hit.sum()
            outcomes["valid"] += 1
            outcomes["hits"] += result.schedule.work.hit.any()
    assert outcomes["refused"] == outcomes["told what to do"]
    if method not in WITHOUT_CACHES:
        assert outcomes["hits"] > 0, outcomes
