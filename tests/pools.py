"""Seeded instances whose workers have roles, for the tests of all parts that know of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from orsched.costs import AffineCost, RooflineCost
from orsched.data.instance import Instance
from orsched.data.links import Link
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.heuristics.disaggregated import Disaggregated, DisaggregatedParams

POOLS = (
    ("prefill", "decode"),
    ("prefill", "decode", "decode"),
    ("prefill", "both"),
    ("both", "prefill", "both", "decode"),
    ("prefill", "prefill", "decode"),
)
CONTEXTS = RooflineCost(
    fixed_fs=10**12, weights_fs=5 * 10**12, token_fs=3 * 10**10, context_fs=10**9,
    attended_fs=10**8, time_scale=1,
)  # fmt: skip
"""A cost in which contexts matter."""


def pool_instance(seed, first_token="prefill"):
    """An instance with workers of some roles; memory binds for odd seeds, devices at times."""
    draw = np.random.default_rng(seed)
    n = int(draw.integers(1, 30))
    spread = 10**8 * int(draw.integers(1, 20))
    requests = Requests(
        draw.integers(1, 200, n),
        draw.integers(1, 30, n),
        arrival_ns=np.sort(draw.integers(0, spread, n)),
    )
    cost = CONTEXTS if seed % 3 == 0 else AffineCost()
    memory = BlockMemory(int(draw.integers(16, 32)), 16, "paged") if seed % 2 else None
    workers = tuple(
        Worker(
            int(draw.integers(2, 9)),
            cost,
            role=role,
            memory=memory,
            name=f"w{index}",
            device="gpu" if seed % 5 == 0 and index < 2 else "",
        )
        for index, role in enumerate(POOLS[seed % len(POOLS)])
    )
    link = Link(ns_per_token=int(draw.integers(0, 10**6)), latency_ns=int(draw.integers(0, 10**6)))
    if seed % 7 == 0:
        link = Link()
    return Instance(requests, workers, first_token=first_token, link=link)


def pool_policy(seed):
    """A policy with parameters that differ from seed to seed."""
    draw = np.random.default_rng(seed)
    return Disaggregated(
        DisaggregatedParams(
            max_num_batched_tokens=int(draw.integers(200, 512)),
            mode=("mixed", "prefill_first", "decode_first")[seed % 3],
            decode_place="memory" if seed % 2 else "requests",
            local_prompt_tokens=60 if seed % 4 == 3 else 0,
            prefill_queue_tokens=300 if seed % 4 == 2 else None,
            watermark_blocks=seed % 2,
        )
    )


def split_on_one_device(one):
    """The workers of both roles that one worker of both is the same as, on one device."""
    return (
        replace(one, role="prefill", device="gpu", name="prefill"),
        replace(one, role="decode", device="gpu", name="decode"),
    )
