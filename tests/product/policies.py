"""The policies of the product: every registered method, as it is and with its notable parameters,
with each information class that it declares. What it refuses, and the error that says so, is named
in ``REFUSALS``."""

from __future__ import annotations

from typing import NamedTuple

from orsched.common.registry import names, resolve
from orsched.heuristics.policy_method import PolicyMethod
from tests.product.modes import FACTORS

SEARCHES = ("windows", "fleet", "exact", "auto", "latency_search")
"""Methods that plan before anything runs: no policies to ask; they have tests of their own."""

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
    "vllm@clairvoyant+order=volume+max_num_batched_tokens=6",
    "vllm@predicted+order=longest+aging_s=0.02",
    "fcfs@predicted+order=longest",
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
}  # parameters that methods with a policy a worker take on several workers


def is_dispatched(spec):
    """Whether the policy serves one worker, and several by a dispatcher."""
    method = resolve("methods", spec.partition("@")[0])
    return isinstance(method, PolicyMethod) and not method.many_workers


NEVER_IDLE = (
    "fcfs", "offline", "online", "hybrid", "vllm", "vtc", "static", "one_at_a_time", "sls", "ils",
    "ssjf", "sjf", "fcfs_batched",
)  # fmt: skip
"""Methods under which no worker rests while a request that it was given is unfinished."""


def conserves_work(spec, sharing):
    """Whether the documentation promises INV-12 of a policy: not where requests wait for a batch to
    fill or for their prediction. A worker that steals is asked at arrivals and evictions only: what
    it takes may have waited elsewhere while it rested."""
    waits = any(part in spec for part in ("batching=dynamic", "predictor_latency_s="))
    steals = "steal" in SHARING[sharing]
    return spec.partition("@")[0] in NEVER_IDLE and not waits and not steals


SEVERAL = tuple(name for name in FACTORS["workers"] if name != "one")
PANG = ("offline", "online", "hybrid")
PLANNED = ("robust",)
STEALING = ("stealing", "least_work_stealing")
COLOCATED = ("echo", "hygen", "conserve", "slack")
ITERATION_LEVEL = ("vllm", "vtc", "ils", "scls_continuous", "gittins", "disaggregated", "mc_sf")
ITERATION_LEVEL += COLOCATED
BATCHED = ("ssjf", "sjf", "fcfs_batched")


class Refusal(NamedTuple):
    """A mode that methods refuse with an ``InputError``, unless ``lacks`` is a parameter."""

    methods: tuple[str, ...]  # their names
    factor: str
    levels: tuple[str, ...]
    field: str  # what the error names
    why: str
    lacks: tuple[str, ...] = ()


REFUSALS = (
    Refusal(PANG, "workers", SEVERAL, "workers", "Pang's model has one worker"),
    Refusal(PANG, "padding", ("on",), "padding", "Pang's times of stages know no padding"),
    Refusal(ITERATION_LEVEL, "padding", ("on",), "padding", "nobody pads at iteration level"),
    Refusal(PLANNED, "padding", ("on",), "padding", "planned times of stages know no padding"),
    Refusal(PLANNED, "sharing", STEALING, "steal", "they give no waiting request away"),
    Refusal(BATCHED, "padding", ("on",), "padding", "nobody pads at iteration level",
            ("batching=none", "batching=dynamic")),
)  # fmt: skip


def refusal_of(policy, factor, level):
    name = policy.partition("@")[0]
    for refusal in REFUSALS:
        if name in refusal.methods and factor == refusal.factor and level in refusal.levels:
            return None if any(part in policy for part in refusal.lacks) else refusal
    return None


def refusals_of(cell):
    modes = ((name, level) for name, level in cell.items() if name != "policy")
    found = (refusal_of(cell["policy"], name, level) for name, level in modes)
    return [one for one in found if one is not None]


def goes_together(one, other):
    """Whether two levels (factor, level) may stand in one cell that is served."""
    pair = dict((one, other))
    # A dispatcher is for several workers, and for policies that serve one each.
    alone = pair.get("workers") == "one" or not is_dispatched(pair.get("policy", "fcfs"))
    if alone and pair.get("sharing", "as_it_is") != "as_it_is":
        return False
    if "policy" not in pair:
        return True
    ((name, level),) = [item for item in pair.items() if item[0] != "policy"]
    return refusal_of(pair["policy"], name, level) is None
