"""Keys of a result's row, in the order that files and commands promise."""

RESULT_KEYS = [
    "method", "information", "objective", "objective_value", "objective_bound", "gap", "status",
    "best_of", "certified", "termination", "notes", "makespan_s", "bound_s", "slot_utilization",
    "prefill_stages", "decode_rounds", "tokens_per_s", "decision_p99_s", "checked",
    "ttft_mean_s", "ttft_p50_s", "ttft_p99_s", "tpot_mean_s", "tpot_p50_s", "tpot_p99_s",
    "itl_p50_s", "itl_p95_s", "itl_p99_s", "itl_max_s", "stall_p50_s", "stall_p99_s",
    "jct_mean_s", "jct_p50_s", "jct_p99_s", "slo_attainment", "goodput_per_s",
    "jct_mean_bound_s", "ttft_mean_bound_s", "weighted_jct_mean_s",
    "weighted_tardiness_mean_s", "lateness_max_s", "restarts", "mixed_steps",
    "invalid_tokens", "pad_tokens", "kv_blocks_peak", "hit_rate", "worker_s", "lost_steps",
    "lost_s", "starts", "refused", "bubble_share", "tail_s", "slo_limits", "slo_kept", "overloaded",
]  # fmt: skip
