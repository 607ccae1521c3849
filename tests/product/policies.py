"""The policies of the product: every registered method, as it is and with its notable parameters.

A method that is registered anew is in the product by itself, with each information class that it
declares. What it refuses is to be named in ``refusals.py``.
"""

from __future__ import annotations

from orsched.common.registry import names, resolve
from orsched.heuristics.policy_method import PolicyMethod

SEARCHES = ("windows", "exact", "auto", "latency_search")
"""Methods that plan before anything runs: no policies to ask step by step. They have tests of their
own."""

METHODS = tuple(name for name in names("methods") if name not in SEARCHES)

NOTABLE = (
    "offline@predicted+gate=waited_time",
    "online@none+gate=idle_cost+order=shortest+steal=false",
    "hybrid@predicted+assignment=shared+gate_factor=0.5",
    "vllm@none+chunked_prefill=false",
    "vllm@none+max_num_batched_tokens=7",
    "vllm@none+mode=decode_first+max_num_batched_tokens=9+long_prefill_token_threshold=4",
    "vllm@none+mode=prefill_first",
    "vllm@none+reserve_full_prompt=false+watermark_blocks=1+max_num_batched_tokens=8",
    "vllm@none+policy=priority+priority=service_class+aging_s=0.05",
    "vllm@predicted+policy=priority+priority=length",
    "vllm@clairvoyant+policy=priority+priority=length+max_num_batched_tokens=6",
    "vtc@none+mode=decode_first+max_num_batched_tokens=9+prompt_weight=3",
    "static@none+batch_size=2",
    "static@predicted+policy=priority+priority=length+aging_s=0.02",
    "dynamic@none+max_batch_size=2+batch_wait_timeout_s=0.15",
    "dynamic@none+policy=priority+priority=service_class",
    "one_at_a_time@none+policy=priority+priority=service_class",
    "sls@none+batch_size=2",
    "ils@none+parallel=2",
    "scls@none+slice_tokens=3+interval_s=0.1",
    "scls@none+slice_tokens=3+batching=arrival+batch_size=2+interval=none+offloading=round_robin",
    "scls@none+slice_tokens=4+batching=adaptive+batch_size=2+interval=fixed+interval_s=0.2",
    "scls@none+slice_tokens=2+memory=deepspeed+interval_s=0.05",
    "scls_continuous@none+slice_tokens=3",
    "scls_continuous@none+slice_tokens=2+renew=idle",
    "scls_continuous@none+slice_tokens=3+renew=never",
    "ssjf@predicted+batching=none",
    "ssjf@predicted+batching=dynamic+batch_wait_timeout_s=0.1",
    "ssjf@predicted+max_batch_size=2+aging_s=0.01+predictor_latency_s=0.02",
    "sjf@clairvoyant+batching=dynamic+max_batch_size=2",
    "fcfs_batched@none+batching=none",
    "fcfs_batched@none+batching=dynamic",
    "mico@predicted+batching=batch",
    "mico@predicted+distribution=quantity+shares=equal+backoff=false",
    "mico@predicted+order=long_answer+insertion=mixed+trade_off=true",
    "mico@none+order=random+insertion=decoupled+batch_size=2",
    "mico@clairvoyant+order=short_prompt+buckets=2",
    "gittins@none+index=serpt+aging=0",
    "gittins@predicted+max_num_batched_tokens=8+reserve=0",
    "mc_sf@predicted+margin=0.5",
)

POLICIES = (
    *(f"{name}@{kind}" for name in METHODS for kind in resolve("methods", name).information),
    *NOTABLE,
)

SHARING = {
    "as_it_is": {},
    "fewest_requests": {"dispatch": "fewest_requests"},
    "least_work": {"dispatch": "least_work"},
    "stealing": {"steal": True},
    "least_work_stealing": {"dispatch": "least_work", "steal": True},
}
"""Parameters that methods with a policy a worker take on several workers."""


def is_dispatched(spec):
    """Whether the policy serves one worker, and several by a dispatcher."""
    method = resolve("methods", spec.partition("@")[0])
    return isinstance(method, PolicyMethod) and not method.many_workers


NEVER_IDLE = (
    "fcfs",
    "offline",
    "online",
    "hybrid",
    "vllm",
    "vtc",
    "static",
    "one_at_a_time",
    "sls",
    "ils",
    "ssjf",
    "sjf",
    "fcfs_batched",
)
"""Methods under which no worker rests while a request that it was given is unfinished."""


def conserves_work(spec, sharing):
    """Whether the documentation promises INV-12 of a policy.

    Not where requests wait for a batch to fill or for their prediction. A worker that steals is
    asked at arrivals and evictions only: what it takes may have waited elsewhere while it rested.
    """
    waits = any(part in spec for part in ("batching=dynamic", "predictor_latency_s="))
    steals = "steal" in SHARING[sharing]
    return spec.partition("@")[0] in NEVER_IDLE and not waits and not steals
