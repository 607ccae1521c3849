"""Parameters of policies that are no such values: each is refused, and its name is in the error."""

import pytest

from orsched import InputError
from orsched.common.registry import resolve

NAN, INF = float("nan"), float("inf")
NO_POSITIVE_NUMBERS = (0, -1, NAN, INF, "x", True, 1e10)
WRONG = {
    "fcfs": [("dispatch", "random"), ("dispatch", [1]), ("steal", 1)],
    "hybrid": [
        ("assignment", "nowhere"), ("order", "best"), ("steal", 1), ("gate", "open"),
        ("gate_factor", -1), ("gate_factor", NAN), ("gate_factor", "2"), ("use_clients", "fewest"),
    ],
    "vllm": [
        ("policy", "sjf"), ("priority", "size"), ("aging_s", -1.0), ("mode", "v0"),
        ("chunked_prefill", 1), ("max_num_batched_tokens", 0), ("watermark_blocks", 1.5),
        ("long_prefill_token_threshold", -1), ("long_prefill_token_threshold_adaptive", 1),
        ("prefill_schedule_interval", 0), ("max_num_scheduled_tokens", 0),
        ("max_num_active_seqs", 0), ("max_num_queued_reqs", 1.5),
    ],
    "vtc": [("policy", "fcfs"), ("prompt_weight", 0), ("output_weight", 1.5)],
    "mc_sf": [("margin", -1)],
    "disaggregated": [
        ("mode", "fast"), ("decode_place", "nowhere"), ("local_prompt_tokens", -1),
        ("prefill_queue_tokens", 1.5), ("chunked_prefill", 3),
    ],
    "sjf": [
        ("batching", "static"), ("max_batch_size", 0), ("batch_wait_timeout_s", -1),
        ("aging_s", -1), ("predictor_latency_s", -1),
    ],
    "scls": [
        ("slice_tokens", 0), ("batch_size", 1.5), ("batching", "fifo"), ("interval_s", 0),
        ("interval_share", 1.1), ("interval_s", True), ("memory_share", NAN), ("interval", "none"),
    ],
    "scls_continuous": [("slice_tokens", 0), ("renew", 1)],
    "ils": [("parallel", 0)],
    "mico": [
        ("distribution", "best"), ("batching", None), ("buckets", 0), ("buckets", None),
        ("batch_size", 0), ("backoff", 1), ("trade_off", "yes"), ("longest_tokens", -1),
    ],
    "gittins": [
        ("index", "longest"), ("aging", -1), ("aging", NAN), ("gate", 0), ("gate", True),
        ("ttft_s", -1), ("ttft_s", "2"), ("ttft_s", INF), ("max_num_batched_tokens", 0),
        ("window_s", 0), ("reserve", -0.1), ("batch_weight", 2.0),
        *((name, value) for name in ("boost_s", "crowd") for value in NO_POSITIVE_NUMBERS),
    ],
    "echo": [
        ("configuration", "bs+s"), ("estimator", "guess"), ("buckets", 0), ("candidates", 0),
        ("hit_benefit", 2), ("margin", -0.1), ("window_s", 0), ("sigmas", "two"), ("ttft_s", -1),
        ("max_num_batched_tokens", 0),
    ],
    "hygen": [("latency_budget_s", -1)],
    "conserve": [("safepoint_s", True)],
    "slack": [("quantile", 1.5), ("order", "random"), ("groups", 0), ("idle_step_s", "long")],
}  # fmt: skip
TOGETHER = [
    ("vtc", {"priority": "service_class"}, "policy"),
    ("vtc", {"aging_s": 1.0}, "policy"),
    (
        "vllm",
        {"mode": "prefill_first", "prefill_schedule_interval": 2},
        "prefill_schedule_interval",
    ),
    ("sjf", {"policy": "fcfs"}, "parameters"),
    ("hybrid", {"nonsense": 2}, "parameters"),
    ("online", {"assignment": "packing", "steal": False, "use_clients": "latency"}, "use_clients"),
    ("scls", {"interval": "none", "batching": "arrival"}, "interval"),
]
CASES = [(name, {field: value}, field) for name, rows in WRONG.items() for field, value in rows]


@pytest.mark.parametrize(("method", "parameters", "field"), [*CASES, *TOGETHER], ids=str)
def test_it_is_refused_by_its_name(method, parameters, field):
    with pytest.raises(InputError) as caught:
        resolve("methods", method).check_parameters(parameters)
    assert caught.value.field == field
