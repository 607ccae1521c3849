"""Seeded instances whose workers have roles, for the tests of all parts that know of them."""

from dataclasses import replace

import numpy as np

from orsched import AffineCost, BlockMemory, Instance, Link, Requests, RooflineCost, Worker
from orsched.heuristics.disaggregated import Disaggregated, DisaggregatedParams, InTime

POOLS = (
    ("prefill", "decode"), ("prefill", "decode", "decode"), ("prefill", "both"),
    ("both", "prefill", "both", "decode"), ("prefill", "prefill", "decode"),
)  # fmt: skip
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
    prompts, outputs = draw.integers(1, 200, n), draw.integers(1, 30, n)
    requests = Requests(prompts, outputs, arrival_ns=np.sort(draw.integers(0, spread, n)))
    cost = CONTEXTS if seed % 3 == 0 else AffineCost()
    memory = BlockMemory(int(draw.integers(16, 32)), 16, "paged") if seed % 2 else None
    roles = POOLS[seed % len(POOLS)]
    devices = ["gpu" if seed % 5 == 0 and index < 2 else "" for index in range(len(roles))]
    workers = tuple(
        Worker(int(draw.integers(2, 9)), cost, None, memory, f"w{index}", role=role, device=device)
        for index, (role, device) in enumerate(zip(roles, devices, strict=True))
    )
    link = Link(ns_per_token=int(draw.integers(0, 10**6)), latency_ns=int(draw.integers(0, 10**6)))
    if seed % 7 == 0:
        link = Link()
    return Instance(requests, workers, first_token=first_token, link=link)


def pool_policy(seed, ttft_s=None):
    """A policy with parameters that differ from seed to seed."""
    draw = np.random.default_rng(seed)
    params = DisaggregatedParams(
        max_num_batched_tokens=int(draw.integers(200, 512)), watermark_blocks=seed % 2,
        mode=("mixed", "prefill_first", "decode_first")[seed % 3],
        decode_place="memory" if seed % 2 else "requests",
        local_prompt_tokens=60 if seed % 4 == 3 else 0,
        prefill_queue_tokens=300 if seed % 4 == 2 else None, ttft_s=ttft_s,
    )  # fmt: skip
    return Disaggregated(params) if ttft_s is None else InTime(params)


def split_on_one_device(one):
    """The workers of both roles that one worker of both is the same as, on one device."""
    return (
        replace(one, role="prefill", device="gpu", name="prefill"),
        replace(one, role="decode", device="gpu", name="decode"),
    )
